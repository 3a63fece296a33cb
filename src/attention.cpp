// SPDX-License-Identifier: BSD-3-Clause
#include "attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "group.h"

namespace headspan {

namespace {

// One call's state, so that its parts need not pass a dozen arguments. Groups are taken head by head, so that the keys
// and values of one head stay in the cache; long rows first, so that no thread ends late.
template <class T>
class ForwardPass {
 public:
  ForwardPass(const Problem<T>& problem, const ForwardViews<T>& results)
      : problem_(problem), results_(results), kernel_(active_kernel<T>()), band_(problem.band()) {}

  void run(const Control& control) const {
    if (parts() > 1)
      run_in_parts(control);
    else
      run_whole(control);
  }

 private:
  std::ptrdiff_t groups() const { return problem_.batch() * problem_.heads() * problem_.groups(); }

  // Few queries with many keys are computed in parts, each with a share of the keys. The cut depends on shapes only, so
  // that the sums come out the same for every number of threads.
  std::ptrdiff_t parts() const {
    constexpr std::ptrdiff_t tasks_wanted = 64, least_keys = 2048;
    return std::min(tasks_wanted / std::max<std::ptrdiff_t>(groups(), 1), problem_.keys() / least_keys);
  }

  QueryGroup<T> group(std::ptrdiff_t number) const {
    std::ptrdiff_t const each = problem_.groups(), head = number / each;
    return neighbours(problem_, head / problem_.heads(), head % problem_.heads(), each - 1 - number % each);
  }

  // A task is a few neighbouring groups of a head, so that each can fetch the next one's rows.
  void run_whole(const Control& control) const {
    int const threads = useful_threads(problem_, control);
    std::ptrdiff_t const each = problem_.groups(), wanted = std::clamp<std::ptrdiff_t>(groups() / (16 * threads), 1, 8),
                         tasks = (each + wanted - 1) / wanted;
    parallel_for(problem_.batch() * problem_.heads() * tasks, threads, control.interrupted,
                 [&](std::ptrdiff_t task, const StopCheck& stop) {
                   std::ptrdiff_t const head = task / tasks, first = head * each + task % tasks * wanted,
                                        last = std::min(first + wanted, (head + 1) * each);
                   for (std::ptrdiff_t number = first; number < last && !stop(); number++)
                     run_group(number, number + 1 < last, stop);
                 });
  }

  void run_group(std::ptrdiff_t number, bool has_next, const StopCheck& stop) const {
    QueryGroup<T> queries = group(number);
    if (has_next) {
      std::ptrdiff_t const next = queries.query[0] / kLanes - 1;
      queries.group.ahead[0] = rows_ahead(problem_.query, queries.batch, queries.head, next);
      queries.group.ahead[1] = rows_ahead(results_.out, queries.batch, queries.head, next);
    }
    ForwardRows<T> rows;
    for (int lane = 0; lane < queries.group.lanes; lane++) rows.out[lane] = out_row(queries, lane);
    Scratch<T> const scratch(kernel_, problem_.head_dim(), problem_.value_dim());
    if (run_forward(kernel_, queries, queries.keys(band_), rows, scratch, stop)) store_statistics(queries, rows);
  }

  void run_in_parts(const Control& control) const {
    std::ptrdiff_t const all = groups(), each = parts();
    std::size_t const part_rows = checked_product(kLanes, static_cast<std::size_t>(problem_.value_dim()));
    Buffer<T> const outs(checked_product(part_rows, static_cast<std::size_t>(all * each)));
    std::vector<ForwardRows<T>> rows(static_cast<std::size_t>(all * each));
    int const threads = useful_threads(problem_, control);
    parallel_for(all * each, threads, control.interrupted, [&](std::ptrdiff_t task, const StopCheck& stop) {
      QueryGroup<T> queries = group(task / each);
      GroupKeys keys = queries.keys(band_);
      std::ptrdiff_t const first = keys.first(), count = std::max<std::ptrdiff_t>(keys.last() - first, 0);
      auto const cut = [&](std::ptrdiff_t part) { return first + count * part / each / kTileKeys * kTileKeys; };
      keys.clip(cut(task % each), task % each + 1 < each ? cut(task % each + 1) : keys.last());
      ForwardRows<T>& part = rows[static_cast<std::size_t>(task)];
      for (int lane = 0; lane < kLanes; lane++)
        part.out[lane] = outs.data() + part_rows * static_cast<std::size_t>(task) + lane * problem_.value_dim();
      Scratch<T> const scratch(kernel_, problem_.head_dim(), problem_.value_dim());
      run_forward(kernel_, queries, keys, part, scratch, stop);
    });
    parallel_for(all, 1, control.interrupted, [&](std::ptrdiff_t number, const StopCheck&) {
      QueryGroup<T> const queries = group(number);
      ForwardRows<T> whole;
      for (int lane = 0; lane < queries.group.lanes; lane++) {
        whole.out[lane] = out_row(queries, lane);
        merge(&rows[static_cast<std::size_t>(number * each)], each, lane, whole);
      }
      store_statistics(queries, whole);
    });
  }

  // A row over all keys from its parts: out = sum of part.out * share, share = part.sum / sum of the sums, under one
  // maximum.
  void merge(const ForwardRows<T>* parts, std::ptrdiff_t count, int lane, ForwardRows<T>& whole) const {
    T maximum = -std::numeric_limits<T>::infinity();
    for (std::ptrdiff_t i = 0; i < count; i++)
      if (!(parts[i].maximum[lane] <= maximum)) maximum = parts[i].maximum[lane];  // or NaN
    auto const sum_of = [&](const ForwardRows<T>& part) {
      return part.sum[lane] == 0 ? 0 : part.sum[lane] * std::exp2(static_cast<double>(part.maximum[lane] - maximum));
    };
    double sum = 0;
    for (std::ptrdiff_t i = 0; i < count; i++) sum += sum_of(parts[i]);
    whole.maximum[lane] = maximum;
    whole.sum[lane] = sum;
    whole.inverse_sum[lane] = sum == 0 ? T(0) : static_cast<T>(1 / sum);
    std::fill_n(whole.out[lane], problem_.value_dim(), T(0));
    for (std::ptrdiff_t i = 0; i < count; i++) {
      if (parts[i].sum[lane] == 0) continue;
      T const share = static_cast<T>(sum_of(parts[i]) / sum);
      for (int d = 0; d < problem_.value_dim(); d++) whole.out[lane][d] += parts[i].out[lane][d] * share;
    }
  }

  T* out_row(const QueryGroup<T>& queries, int lane) const {
    return results_.out.at(queries.batch, queries.head, queries.query[lane]);
  }

  void store_statistics(const QueryGroup<T>& queries, const ForwardRows<T>& rows) const {
    for (int lane = 0; lane < queries.group.lanes; lane++) {
      std::ptrdiff_t const i = queries.query[lane];
      if (results_.lse) *results_.lse.at(queries.batch, queries.head, i) = log_sum_exp(rows, lane);
      if (!results_.statistics) continue;
      *results_.statistics.at(queries.batch, queries.head, i, 0) = rows.maximum[lane];
      *results_.statistics.at(queries.batch, queries.head, i, 1) = rows.inverse_sum[lane];
    }
  }

  const Problem<T>& problem_;
  const ForwardViews<T>& results_;
  Kernel<T> const kernel_;
  Band const band_;
};

}  // namespace

template <class T>
void attention_forward(const Problem<T>& problem, const ForwardViews<T>& results, const Control& control) {
  ForwardPass<T>(problem, results).run(control);
}

void count_pairs(const Band& band, const ArrayView<const double, 3>& span, const ArrayView<std::int64_t, 2>& pairs,
                 const Control& control) {
  std::ptrdiff_t const heads = pairs.shape[1];
  parallel_for(pairs.shape[0] * heads, 1, control.interrupted, [&](std::ptrdiff_t task, const StopCheck& stop) {
    std::ptrdiff_t const batch = task / heads, head = task % heads;
    std::int64_t count = 0;
    for (std::ptrdiff_t i = 0; i < band.queries; i++) {
      if (i % 65536 == 0 && stop()) return;
      double const z = span ? *span.at(batch, head, i) : std::numeric_limits<double>::infinity();
      count += key_range(band, i, extent(band, z)).count();
    }
    *pairs.at(batch, head) = count;
  });
}

template void attention_forward(const Problem<float>&, const ForwardViews<float>&, const Control&);
template void attention_forward(const Problem<double>&, const ForwardViews<double>&, const Control&);

}  // namespace headspan
