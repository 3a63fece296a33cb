// SPDX-License-Identifier: BSD-3-Clause
// Attention, its gradient, its weights and the number of its pairs.
#include <pybind11/stl.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "attention/request.h"
#include "attention/terms/score_term.h"
#include "base/array_view.h"
#include "base/parallel.h"
#include "key_cache.h"
#include "numpy_views.h"
#include "patterns/expression.h"
#include "patterns/pattern_mask.h"

namespace headspan::bindings {

namespace {

using OptionalArray = std::optional<py::array>;
using Patterns = std::vector<std::shared_ptr<Pattern>>;

std::vector<const Pattern*> pointers(const Patterns& patterns, std::ptrdiff_t batch, std::ptrdiff_t heads,
                                     std::ptrdiff_t queries, std::ptrdiff_t keys) {
  std::ptrdiff_t const count = static_cast<std::ptrdiff_t>(patterns.size());
  require(count <= 1 || count == heads || count == batch * heads, "patterns", " are not as many as heads");
  std::vector<const Pattern*> result;
  for (const std::shared_ptr<Pattern>& pattern : patterns) {
    pattern->check(queries, keys);
    result.push_back(pattern.get());
  }
  return result;
}

// The arguments of one attention, together with the arrays that own their memory.
class PyRequest {
 public:
  // `options`: the options that were passed, by name.
  PyRequest(py::array query, py::array key, py::array value, const py::dict& options)
      : query_(std::move(query)), key_(std::move(key)), value_(std::move(value)) {
    for (auto const& [name, option] : options) set(py::cast<std::string>(name), option);
  }

  // The results are written to `out` if it is given.
  py::tuple forward(const OptionalArray& out, bool with_lse, bool with_statistics, int threads) const {
    return is_float32() ? forward_as<float>(out, with_lse, with_statistics, threads)
                        : forward_as<double>(out, with_lse, with_statistics, threads);
  }
  // Computes the gradients that `into` names, each into an array or, if that is None, into a new one.
  py::dict backward(const py::array& out, const py::array& statistics, const py::array& grad_out,
                    const OptionalArray& grad_lse, const py::dict& into, int threads) const {
    return is_float32() ? backward_as<float>(out, statistics, grad_out, grad_lse, into, threads)
                        : backward_as<double>(out, statistics, grad_out, grad_lse, into, threads);
  }
  py::array weights(const py::array& rows, const py::array& cols, std::ptrdiff_t pool_rows, std::ptrdiff_t pool_cols,
                    int threads) const {
    return is_float32() ? weights_as<float>(rows, cols, pool_rows, pool_cols, threads)
                        : weights_as<double>(rows, cols, pool_rows, pool_cols, threads);
  }
  // For all batch items and heads, or for one if they are all equal.
  py::array pairs(int threads) const { return is_float32() ? pairs_as<float>(threads) : pairs_as<double>(threads); }

 private:
  void set(const std::string& name, const py::handle& option) {
    static constexpr struct {
      const char* name;
      OptionalArray PyRequest::* array;
    } arrays[] = {
        {"new_key", &PyRequest::new_key_},
        {"new_value", &PyRequest::new_value_},
        {"persistent_key", &PyRequest::persistent_key_},
        {"persistent_value", &PyRequest::persistent_value_},
        {"span", &PyRequest::span_},
        {"temperature", &PyRequest::temperature_},
        {"alibi_slopes", &PyRequest::slopes_},
        {"sinks", &PyRequest::sinks_},
        {"key_bias", &PyRequest::key_bias_},
        {"removed", &PyRequest::removed_},
        {"query_positions", &PyRequest::query_positions_},
        {"key_positions", &PyRequest::key_positions_},
        {"key_start", &PyRequest::key_start_},
        {"key_stop", &PyRequest::key_stop_},
        {"prefix_end", &PyRequest::prefix_end_},
        {"range_first", &PyRequest::range_first_},
        {"range_last", &PyRequest::range_last_},
    };
    for (auto const& row : arrays)
      if (name == row.name) {
        this->*row.array = py::cast<py::array>(option);
        return;
      }
    if (name == "scale")
      scale_ = py::cast<double>(option);
    else if (name == "ramp")
      ramp_ = py::cast<double>(option);
    else if (name == "softcap")
      softcap_ = py::cast<double>(option);
    else if (name == "dropout")
      dropout_ = py::cast<double>(option);
    else if (name == "seed")
      seed_ = py::cast<std::uint64_t>(option);
    else if (name == "causal")
      causal_ = py::cast<bool>(option);
    else if (name == "include_self")
      include_self_ = py::cast<bool>(option);
    else if (name == "cache")
      cache_ = py::cast<std::shared_ptr<PyKeyCache>>(option);
    else if (name == "terms")
      terms_ = py::cast<py::dict>(option);
    else if (name == "patterns")
      patterns_ = py::cast<Patterns>(option);
    else
      require(false, name.c_str(), " is no option");
  }

  bool is_float32() const { return py::isinstance<py::array_t<float>>(query_); }

  // Checks that memory accesses are valid; Python checks the meaning of the arguments.
  template <class T>
  Request<T> request() const {
    Request<T> r;
    r.query = rows_view<T, 4>(query_, "query");
    r.key = rows_view<T, 4>(key_, "key");
    r.value = rows_view<T, 4>(value_, "value");
    std::ptrdiff_t const batch = r.batch(), heads = r.heads(), queries = r.queries(), keys = r.keys();
    require(r.key_heads() > 0 && heads % r.key_heads() == 0 && keys > 0, "key", " has another shape");
    require(r.query.shape[3] > 0 && r.query.shape[3] < 1 << 20 && r.value.shape[3] < 1 << 20, "head_dim",
            " is too large");
    require_shape(r.key, {batch, r.key_heads(), keys, r.query.shape[3]}, "key");
    require_shape(r.value, {batch, r.key_heads(), keys}, "value");
    if (cache_) cache_->lend(r, new_key_, new_value_);
    require(persistent_key_.has_value() == persistent_value_.has_value(), "persistent_key",
            " must be given with its value");
    if (persistent_key_) {
      r.persistent_key = rows_view<T, 3>(*persistent_key_, "persistent_key");
      r.persistent_value = rows_view<T, 3>(*persistent_value_, "persistent_value");
      require_shape(r.persistent_key, {r.key_heads(), r.persistent_keys(), r.query.shape[3]}, "persistent_key");
      require_shape(r.persistent_value, {r.key_heads(), r.persistent_keys(), r.value.shape[3]}, "persistent_value");
    }
    if (span_) r.span = broadcast_view<T, 3>(*span_, {batch, heads, queries}, "span");
    if (temperature_) r.temperature = broadcast_view<T, 3>(*temperature_, {batch, heads, queries}, "temperature");
    if (slopes_) r.slopes = broadcast_view<T, 2>(*slopes_, {batch, heads}, "alibi_slopes");
    if (sinks_) r.sinks = broadcast_view<T, 2>(*sinks_, {batch, heads}, "sinks");
    if (key_bias_) r.key_bias = broadcast_view<T, 3>(*key_bias_, {batch, heads, keys}, "key_bias");
    if (removed_) r.removed = tokens_view<bool, 3>(*removed_, {batch, heads, keys}, "removed");
    if (key_start_) r.key_start = broadcast_view<std::int64_t, 1>(*key_start_, {batch}, "key_start");
    if (key_stop_) r.key_stop = broadcast_view<std::int64_t, 1>(*key_stop_, {batch}, "key_stop");
    require(query_positions_.has_value() == key_positions_.has_value(), "key_positions",
            " must be given with the others");
    if (query_positions_) {
      r.query_positions = tokens_view<double, 2>(*query_positions_, {batch, queries}, "query_positions");
      r.key_positions = tokens_view<double, 2>(*key_positions_, {batch, keys}, "key_positions");
    }
    if (prefix_end_) r.prefix_end = broadcast_view<std::int64_t, 1>(*prefix_end_, {batch}, "prefix_end");
    require(range_first_.has_value() == range_last_.has_value(), "ranges", " must be given with both ends");
    if (range_first_) {
      r.range_first = tokens_view<std::int64_t, 2>(*range_first_, {batch, queries}, "ranges");
      r.range_last = tokens_view<std::int64_t, 2>(*range_last_, {batch, queries}, "ranges");
    }
    for (auto const& [name, arrays] : terms_) r.terms.push_back(term<T>(py::cast<std::string>(name), arrays));
    r.patterns = pointers(patterns_, batch, heads, queries, keys);
    r.scale = scale_;
    r.ramp = ramp_;
    r.softcap = softcap_;
    require(dropout_ >= 0 && dropout_ < 1, "dropout", " is no share");
    r.dropout = dropout_;
    r.seed = seed_;
    r.causal = causal_;
    r.include_self = include_self_;
    return r;
  }

  // The class of the term in Python has checked the shapes.
  template <class T>
  static std::shared_ptr<const ScoreTerm<T>> term(const std::string& name, const py::handle& arrays) {
    TermArrays<T> views;
    for (py::handle const& item : arrays) {
      py::array const array = py::cast<py::array>(item);
      if (py::isinstance<py::array_t<std::int64_t>>(array))
        views.integers.push_back(view<std::int64_t, 1>(array, name.c_str()));
      else
        views.numbers.push_back(view<T, 4>(array, name.c_str()));
    }
    return make_score_term(name, views);
  }

  template <class T>
  py::tuple forward_as(const OptionalArray& target, bool with_lse, bool with_statistics, int threads) const {
    Request<T> const r = request<T>();
    py::object lse = py::none(), statistics = py::none();
    ForwardViews<T> results;
    py::array const out = result_array(target, {r.batch(), r.heads(), r.queries(), r.value_dim()}, results.out, "out");
    if (with_lse) lse = result_array({}, {r.batch(), r.heads(), r.queries()}, results.lse, "lse");
    if (with_statistics)
      statistics = result_array({}, {r.batch(), r.heads(), r.queries(), 2}, results.statistics, "statistics");
    call_core(threads, [&](const Control& control) { attention_forward(r, results, control); });
    return py::make_tuple(out, lse, statistics);
  }

  template <class T>
  py::dict backward_as(const py::array& out, const py::array& statistics, const py::array& grad_out,
                       const OptionalArray& grad_lse, const py::dict& into, int threads) const {
    Request<T> const r = request<T>();
    require(!r.cache, "cache", " has no gradient");
    std::ptrdiff_t const batch = r.batch(), heads = r.heads(), queries = r.queries(), value_dim = r.value_dim();
    Upstream<T> upstream;
    require_shape(upstream.out = rows_view<T, 4>(out, "out"), {batch, heads, queries, value_dim}, "out");
    require_shape(upstream.grad_out = rows_view<T, 4>(grad_out, "grad_out"), {batch, heads, queries, value_dim},
                  "grad_out");
    require_shape(upstream.statistics = view<T, 4>(statistics, "statistics"), {batch, heads, queries, 2}, "statistics");
    if (grad_lse)
      require_shape(upstream.grad_lse = view<T, 3>(*grad_lse, "grad_lse"), {batch, heads, queries}, "grad_lse");

    GradientViews<T> gradients;
    py::dict results;
    auto const wanted = [&](const char* name, bool possible, std::vector<std::ptrdiff_t> const& shape, auto& gradient) {
      if (!into.contains(name)) return;
      require(possible, name, " was not given and has no gradient");
      py::object const target = into[name];
      results[name] =
          result_array(target.is_none() ? OptionalArray() : py::cast<py::array>(target), shape, gradient, name);
    };
    wanted("query", true, {batch, heads, queries, r.head_dim()}, gradients.query);
    wanted("key", true, {batch, r.key_heads(), r.keys(), r.head_dim()}, gradients.key);
    wanted("value", true, {batch, r.key_heads(), r.keys(), value_dim}, gradients.value);
    wanted("span", span_.has_value(), {batch, heads, queries}, gradients.span);
    wanted("temperature", temperature_.has_value(), {batch, heads, queries}, gradients.temperature);
    wanted("alibi_slopes", slopes_.has_value(), {batch, heads, queries}, gradients.slopes);
    wanted("sinks", sinks_.has_value(), {batch, heads, queries}, gradients.sinks);
    wanted("key_bias", key_bias_.has_value(), {batch, heads, r.keys()}, gradients.key_bias);
    std::ptrdiff_t const memory = r.persistent_keys();
    wanted("persistent_key", persistent_key_.has_value(), {batch, heads, memory * r.head_dim()},
           gradients.persistent_key);
    wanted("persistent_value", persistent_key_.has_value(), {batch, heads, memory * value_dim},
           gradients.persistent_value);
    gradients.terms.resize(r.terms.size());
    std::size_t number = 0;
    for (auto const& [name, arrays] : terms_) {
      wanted(py::cast<std::string>(name).c_str(), true, {batch, heads, r.terms[number]->gradient_size()},
             gradients.terms[number]);
      number++;
    }
    require(results.size() == into.size(), "into", " names what has no gradient");
    call_core(threads, [&](const Control& control) { attention_backward(r, upstream, gradients, control); });
    return results;
  }

  template <class T>
  py::array weights_as(const py::array& rows, const py::array& cols, std::ptrdiff_t pool_rows, std::ptrdiff_t pool_cols,
                       int threads) const {
    Request<T> const r = request<T>();
    require(pool_rows > 0 && pool_cols > 0, "pool", " must be positive");
    Selection const selection{view<std::int64_t, 1>(rows, "rows"), view<std::int64_t, 1>(cols, "cols"), pool_rows,
                              pool_cols};
    require_below(selection.rows, r.queries(), "rows");
    require_below(selection.cols, r.keys(), "cols");
    py::array_t<T> weights = new_array<T>({r.batch(), r.heads(), (selection.rows.shape[0] + pool_rows - 1) / pool_rows,
                                           (selection.cols.shape[0] + pool_cols - 1) / pool_cols});
    ArrayView<T, 4> const weights_view = writable_view<T, 4>(weights);
    call_core(threads, [&](const Control& control) { attention_weights(r, selection, weights_view, control); });
    return py::array(std::move(weights));
  }

  template <class T>
  py::array pairs_as(int threads) const {
    Request<T> const r = request<T>();
    PairCounts const counts = pair_counts(r);
    py::array_t<std::int64_t> pairs({counts.items, counts.heads});
    ArrayView<std::int64_t, 2> const view = writable_view<std::int64_t, 2>(pairs);
    call_core(threads, [&](const Control& control) { count_pairs(r, view, control); });
    return py::array(std::move(pairs));
  }

  static void require_below(const ArrayView<const std::int64_t, 1>& indices, std::ptrdiff_t limit, const char* name) {
    for (std::ptrdiff_t i = 0; i < indices.shape[0]; i++)
      require(*indices.at(i) >= 0 && *indices.at(i) < limit, name, " is out of range");
  }

  py::array query_, key_, value_;
  std::shared_ptr<PyKeyCache> cache_;
  OptionalArray new_key_, new_value_, persistent_key_, persistent_value_, span_, temperature_, slopes_, sinks_,
      key_bias_, removed_, query_positions_, key_positions_, key_start_, key_stop_, prefix_end_, range_first_,
      range_last_;
  Patterns patterns_;
  py::dict terms_;  // by name, their arrays
  double scale_ = 1, ramp_ = 32, softcap_ = 0, dropout_ = 0;
  std::uint64_t seed_ = 0;
  bool causal_ = true, include_self_ = true;
};

// The numbers of a primitive are an array or a list: selected blocks may have very many.
using NumbersArray = py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>;
using Conjunctions = std::vector<std::vector<std::tuple<std::string, NumbersArray, std::shared_ptr<Pattern>>>>;

std::shared_ptr<Pattern> make_pattern(const Conjunctions& conjunctions) {
  Pattern::Description description;
  for (auto const& conjunction : conjunctions) {
    auto& primitives = description.emplace_back();
    for (auto const& [name, numbers, avoid] : conjunction)
      primitives.emplace_back(name, Numbers(numbers.data(), numbers.data() + numbers.size()), avoid);
  }
  return std::make_shared<Pattern>(description);
}

py::array mask(const Pattern& pattern, std::ptrdiff_t queries, std::ptrdiff_t keys) {
  require(queries >= 0 && keys > 0, "tokens", " must be positive");
  pattern.check(queries, keys);
  py::array_t<bool> allowed({queries, keys});
  ArrayView<bool, 2> const view = writable_view<bool, 2>(allowed);
  call_core(1, [&](const Control& control) { pattern_mask(pattern, view, control.interrupted); });
  return py::array(std::move(allowed));
}

}  // namespace

void register_attention(py::module_& m) {
  py::class_<Pattern, std::shared_ptr<Pattern>>(m, "Pattern",
                                                "A union of conjunctions of primitives, each by name, numbers and the "
                                                "pattern that it keeps clear of, or None.")
      .def(py::init(&make_pattern), py::arg("conjunctions"))
      .def("mask", &mask, py::arg("queries"), py::arg("keys"));
  py::class_<PyPages>(m, "Pages",
                      "Slabs (heads, pages, page_rows, elements), and which of all pages each batch item has, (batch, "
                      "pages).")
      .def(py::init([](std::vector<py::array> keys, std::vector<py::array> values,
                       py::array_t<std::int64_t, py::array::c_style | py::array::forcecast> table) {
             return PyPages{std::move(keys), std::move(values), std::move(table)};
           }),
           py::arg("keys"), py::arg("values"), py::arg("table"));
  py::class_<PyKeyCache, std::shared_ptr<PyKeyCache>>(
      m, "KeyCache", "Keys and values of a text that is continued, in arrays (batch, rows, dims) for every key head.")
      .def(py::init<std::vector<py::array>, std::vector<py::array>, PyPages, std::vector<std::int64_t>, std::ptrdiff_t,
                    std::vector<std::ptrdiff_t>, std::string>(),
           py::arg("keys"), py::arg("values"), py::arg("pages"), py::arg("kept"), py::arg("count"), py::arg("first"),
           py::arg("stored"))
      .def("encoded", &PyKeyCache::encoded, py::arg("rows"))
      .def("append", &PyKeyCache::append, py::arg("key"), py::arg("value"))
      .def("truncate", &PyKeyCache::truncate, py::arg("count"))
      .def_property_readonly("count", &PyKeyCache::count)
      .def_property_readonly("first", &PyKeyCache::first);
  py::class_<PyRequest>(m, "Request",
                        "The arguments of one attention: arrays of one type, and options by name, broadcast to (batch, "
                        "heads, tokens) or (batch, heads).")
      .def(py::init<py::array, py::array, py::array, py::dict>(), py::arg("query"), py::arg("key"), py::arg("value"),
           py::arg("options"))
      .def("forward", &PyRequest::forward, py::arg("out"), py::arg("with_lse"), py::arg("with_statistics"),
           py::arg("threads"))
      .def("backward", &PyRequest::backward, py::arg("out"), py::arg("statistics"), py::arg("grad_out"),
           py::arg("grad_lse"), py::arg("into"), py::arg("threads"))
      .def("weights", &PyRequest::weights, py::arg("rows"), py::arg("cols"), py::arg("pool_rows"), py::arg("pool_cols"),
           py::arg("threads"))
      .def("pairs", &PyRequest::pairs, py::arg("threads"));
}

}  // namespace headspan::bindings
