// SPDX-License-Identifier: BSD-3-Clause
// Attention, its gradient, its weights and the number of its pairs.
#include <pybind11/stl.h>

#include <optional>

#include "attention/request.h"
#include "numpy_views.h"
#include "schedule/count.h"

namespace headspan::bindings {

namespace {

using OptionalArray = std::optional<py::array>;
using Patterns = std::vector<std::shared_ptr<Pattern>>;

std::vector<const Pattern*> pointers(const Patterns& patterns, std::ptrdiff_t heads, std::ptrdiff_t queries,
                                     std::ptrdiff_t keys) {
  require(patterns.size() <= 1 || static_cast<std::ptrdiff_t>(patterns.size()) == heads, "patterns",
          " are not as many as heads");
  std::vector<const Pattern*> result;
  for (const std::shared_ptr<Pattern>& pattern : patterns) {
    pattern->check(queries, keys);
    result.push_back(pattern.get());
  }
  return result;
}

// The arguments of one attention, held together with the arrays that own its memory.
class PyProblem {
 public:
  PyProblem(py::array query, py::array key, py::array value, OptionalArray span, OptionalArray temperature,
            OptionalArray slopes, double scale, double ramp, bool causal, bool include_self)
      : query_(std::move(query)),
        key_(std::move(key)),
        value_(std::move(value)),
        span_(std::move(span)),
        temperature_(std::move(temperature)),
        slopes_(std::move(slopes)),
        scale_(scale),
        ramp_(ramp),
        causal_(causal),
        include_self_(include_self) {}

  // Arguments that few calls have. `removed` says where key_bias is -infinity; the segments of keys are first .. last
  // - 1.
  void extend(Patterns patterns, OptionalArray query_positions, OptionalArray key_positions, OptionalArray key_lengths,
              OptionalArray segment_first, OptionalArray segment_last, OptionalArray key_bias, OptionalArray removed) {
    patterns_ = std::move(patterns);
    query_positions_ = std::move(query_positions);
    key_positions_ = std::move(key_positions);
    key_lengths_ = std::move(key_lengths);
    segment_first_ = std::move(segment_first);
    segment_last_ = std::move(segment_last);
    key_bias_ = std::move(key_bias);
    removed_ = std::move(removed);
  }

  py::tuple forward(bool with_lse, bool with_statistics) const {
    return is_float32() ? forward_as<float>(with_lse, with_statistics) : forward_as<double>(with_lse, with_statistics);
  }
  py::tuple backward(const py::array& out, const py::array& statistics, const py::array& grad_out,
                     const OptionalArray& grad_lse) const {
    return is_float32() ? backward_as<float>(out, statistics, grad_out, grad_lse)
                        : backward_as<double>(out, statistics, grad_out, grad_lse);
  }
  py::array weights(const py::array& rows, const py::array& cols, std::ptrdiff_t pool_rows,
                    std::ptrdiff_t pool_cols) const {
    return is_float32() ? weights_as<float>(rows, cols, pool_rows, pool_cols)
                        : weights_as<double>(rows, cols, pool_rows, pool_cols);
  }

 private:
  bool is_float32() const { return py::isinstance<py::array_t<float>>(query_); }

  // Checked as far as memory goes; what a user may have meant is checked in Python.
  template <class T>
  Request<T> problem() const {
    Request<T> p;
    p.query = rows_view<T, 4>(query_, "query");
    p.key = rows_view<T, 4>(key_, "key");
    p.value = rows_view<T, 4>(value_, "value");
    std::ptrdiff_t const batch = p.batch(), heads = p.heads(), tokens = p.queries();
    require(p.key_heads() > 0 && heads % p.key_heads() == 0 && p.keys() > 0, "key", " has another shape");
    require(p.query.shape[3] > 0 && p.query.shape[3] < 1 << 20 && p.value.shape[3] < 1 << 20, "head_dim",
            " is too large");
    require_shape(p.key, {batch, p.key_heads(), p.keys(), p.query.shape[3]}, "key");
    require_shape(p.value, {batch, p.key_heads(), p.keys()}, "value");
    if (span_) p.span = broadcast_view<T, 3>(*span_, {batch, heads, tokens}, "span");
    if (temperature_) p.temperature = broadcast_view<T, 3>(*temperature_, {batch, heads, tokens}, "temperature");
    if (slopes_) p.slopes = broadcast_view<T, 2>(*slopes_, {batch, heads}, "alibi_slopes");
    p.scale = scale_;
    p.ramp = ramp_;
    p.causal = causal_;
    p.include_self = include_self_;
    set_extensions(p);
    return p;
  }

  template <class T>
  void set_extensions(Request<T>& p) const {
    std::ptrdiff_t const batch = p.batch(), queries = p.queries(), keys = p.keys();
    p.patterns = pointers(patterns_, p.heads(), queries, keys);
    if (key_bias_) p.key_bias = broadcast_view<T, 3>(*key_bias_, {batch, p.heads(), keys}, "key_bias");
    if (removed_) p.removed = tokens_view<bool, 3>(*removed_, {batch, p.heads(), keys}, "removed");
    require(query_positions_.has_value() == key_positions_.has_value(), "key_positions",
            " must be given with the others");
    if (query_positions_) {
      p.query_positions = tokens_view<double, 2>(*query_positions_, {batch, queries}, "query_positions");
      p.key_positions = tokens_view<double, 2>(*key_positions_, {batch, keys}, "key_positions");
    }
    if (key_lengths_) p.key_lengths = broadcast_view<std::int64_t, 1>(*key_lengths_, {batch}, "key_lengths");
    require(segment_first_.has_value() == segment_last_.has_value(), "segments", " must be given with both ends");
    if (!segment_first_) return;
    require(queries <= keys, "segments", " need a key for every query");
    p.segment_first = tokens_view<std::int64_t, 2>(*segment_first_, {batch, keys}, "segments");
    p.segment_last = tokens_view<std::int64_t, 2>(*segment_last_, {batch, keys}, "segments");
  }

  template <class T>
  py::tuple forward_as(bool with_lse, bool with_statistics) const {
    Request<T> const p = problem<T>();
    py::array_t<T> out = new_array<T>({p.batch(), p.heads(), p.queries(), p.value_dim()});
    py::object lse = py::none(), statistics = py::none();
    ForwardViews<T> results;
    results.out = writable_view<T, 4>(out);
    if (with_lse) {
      py::array_t<T> array = new_array<T>({p.batch(), p.heads(), p.queries()});
      results.lse = writable_view<T, 3>(array);
      lse = std::move(array);
    }
    if (with_statistics) {
      py::array_t<T> array = new_array<T>({p.batch(), p.heads(), p.queries(), 2});
      results.statistics = writable_view<T, 4>(array);
      statistics = std::move(array);
    }
    call_core([&](const Control& control) { attention_forward(p, results, control); });
    return py::make_tuple(out, lse, statistics);
  }

  template <class T>
  py::tuple backward_as(const py::array& out, const py::array& statistics, const py::array& grad_out,
                        const OptionalArray& grad_lse) const {
    Request<T> const p = problem<T>();
    std::ptrdiff_t const batch = p.batch(), heads = p.heads(), tokens = p.queries(), head_dim = p.head_dim(),
                         value_dim = p.value_dim();
    Upstream<T> upstream;
    require_shape(upstream.out = rows_view<T, 4>(out, "out"), {batch, heads, tokens, value_dim}, "out");
    require_shape(upstream.grad_out = rows_view<T, 4>(grad_out, "grad_out"), {batch, heads, tokens, value_dim},
                  "grad_out");
    require_shape(upstream.statistics = view<T, 4>(statistics, "statistics"), {batch, heads, tokens, 2}, "statistics");
    if (grad_lse)
      require_shape(upstream.grad_lse = view<T, 3>(*grad_lse, "grad_lse"), {batch, heads, tokens}, "grad_lse");

    py::array_t<T> query = new_array<T>({batch, heads, tokens, head_dim}),
                   key = new_array<T>({batch, p.key_heads(), p.keys(), head_dim}),
                   value = new_array<T>({batch, p.key_heads(), p.keys(), value_dim});
    GradientViews<T> gradients;
    gradients.query = writable_view<T, 4>(query);
    gradients.key = writable_view<T, 4>(key);
    gradients.value = writable_view<T, 4>(value);
    auto const per_query = [&](bool wanted, ArrayView<double, 3>& gradient) -> py::object {
      if (!wanted) return py::none();
      py::array_t<double> array = new_array<double>({batch, heads, tokens});
      gradient = writable_view<double, 3>(array);
      return std::move(array);
    };
    py::object const span = per_query(span_.has_value(), gradients.span),
                     temperature = per_query(temperature_.has_value(), gradients.temperature),
                     slopes = per_query(slopes_.has_value(), gradients.slopes);
    py::object key_bias = py::none();
    if (key_bias_) {
      py::array_t<double> array = new_array<double>({batch, heads, p.keys()});
      gradients.key_bias = writable_view<double, 3>(array);
      key_bias = std::move(array);
    }
    call_core([&](const Control& control) { attention_backward(p, upstream, gradients, control); });
    return py::make_tuple(query, key, value, span, temperature, slopes, key_bias);
  }

  template <class T>
  py::array weights_as(const py::array& rows, const py::array& cols, std::ptrdiff_t pool_rows,
                       std::ptrdiff_t pool_cols) const {
    Request<T> const p = problem<T>();
    require(pool_rows > 0 && pool_cols > 0, "pool", " must be positive");
    Selection const selection{view<std::int64_t, 1>(rows, "rows"), view<std::int64_t, 1>(cols, "cols"), pool_rows,
                              pool_cols};
    require_below(selection.rows, p.queries(), "rows");
    require_below(selection.cols, p.keys(), "cols");
    py::array_t<T> weights = new_array<T>({p.batch(), p.heads(), (selection.rows.shape[0] + pool_rows - 1) / pool_rows,
                                           (selection.cols.shape[0] + pool_cols - 1) / pool_cols});
    ArrayView<T, 4> const weights_view = writable_view<T, 4>(weights);
    call_core([&](const Control& control) { attention_weights(p, selection, weights_view, control); });
    return std::move(weights);
  }

  static void require_below(const ArrayView<const std::int64_t, 1>& indices, std::ptrdiff_t limit, const char* name) {
    for (std::ptrdiff_t i = 0; i < indices.shape[0]; i++)
      require(*indices.at(i) >= 0 && *indices.at(i) < limit, name, " is out of range");
  }

  py::array query_, key_, value_;
  OptionalArray span_, temperature_, slopes_;
  double scale_, ramp_;
  bool causal_, include_self_;
  Patterns patterns_;
  OptionalArray query_positions_, key_positions_, key_lengths_, segment_first_, segment_last_, key_bias_, removed_;
};

py::array pairs(std::ptrdiff_t queries, std::ptrdiff_t keys, const py::array& span, double ramp, bool causal,
                const Patterns& patterns) {
  ArrayView<const double, 3> const span_view = view<double, 3>(span, "span");
  require(queries >= 0 && keys > 0 && span_view.shape[2] == queries, "span", " has another shape");
  py::array_t<std::int64_t> counts({span_view.shape[0], span_view.shape[1]});
  ArrayView<std::int64_t, 2> const counts_view = writable_view<std::int64_t, 2>(counts);
  std::vector<const Pattern*> const of_heads = pointers(patterns, span_view.shape[1], queries, keys);
  call_core([&](const Control& control) {
    count_pairs({queries, keys, causal, true, ramp}, span_view, of_heads, counts_view, control.interrupted);
  });
  return std::move(counts);
}

py::array mask(const Pattern& pattern, std::ptrdiff_t queries, std::ptrdiff_t keys) {
  require(queries >= 0 && keys > 0, "tokens", " must be positive");
  pattern.check(queries, keys);
  py::array_t<bool> allowed({queries, keys});
  ArrayView<bool, 2> const view = writable_view<bool, 2>(allowed);
  call_core([&](const Control& control) { pattern_mask(pattern, view, control.interrupted); });
  return std::move(allowed);
}

}  // namespace

void register_attention(py::module_& m) {
  py::class_<Pattern, std::shared_ptr<Pattern>>(
      m, "Pattern", "A union of terms, each an intersection of primitives by name and numbers.")
      .def(py::init<Pattern::Description>(), py::arg("terms"))
      .def("mask", &mask, py::arg("queries"), py::arg("keys"));
  py::class_<PyProblem>(m, "Problem",
                        "The arguments of one attention: arrays of one type, parameters broadcast to (batch, heads, "
                        "tokens) or (batch, heads).")
      .def(py::init<py::array, py::array, py::array, OptionalArray, OptionalArray, OptionalArray, double, double, bool,
                    bool>(),
           py::arg("query"), py::arg("key"), py::arg("value"), py::arg("span"), py::arg("temperature"),
           py::arg("slopes"), py::arg("scale"), py::arg("ramp"), py::arg("causal"), py::arg("include_self"))
      .def("extend", &PyProblem::extend, py::arg("patterns"), py::arg("query_positions"), py::arg("key_positions"),
           py::arg("key_lengths"), py::arg("segment_first"), py::arg("segment_last"), py::arg("key_bias"),
           py::arg("removed"))
      .def("forward", &PyProblem::forward, py::arg("with_lse"), py::arg("with_statistics"))
      .def("backward", &PyProblem::backward, py::arg("out"), py::arg("statistics"), py::arg("grad_out"),
           py::arg("grad_lse"))
      .def("weights", &PyProblem::weights, py::arg("rows"), py::arg("cols"), py::arg("pool_rows"),
           py::arg("pool_cols"));
  m.def("pairs", &pairs, py::arg("queries"), py::arg("keys"), py::arg("span"), py::arg("ramp"), py::arg("causal"),
        py::arg("patterns"));
}

}  // namespace headspan::bindings
