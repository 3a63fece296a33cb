// SPDX-License-Identifier: BSD-3-Clause
#include "attention.h"

#include <algorithm>

#include "group.h"

namespace headspan {

template <class T>
void attention_forward(const Problem<T>& problem, const ForwardViews<T>& results, const Control& control) {
  Kernel<T> const kernel = active_kernel<T>();
  Band const band = problem.band();
  std::ptrdiff_t const groups = problem.groups();
  // Head by head, so that the keys and values of one head stay in the cache; long rows first, so that no thread ends
  // late.
  auto const run_group = [&](std::ptrdiff_t batch, std::ptrdiff_t head, std::ptrdiff_t index, bool has_next,
                             const StopCheck& stop) {
    QueryGroup<T> queries = neighbours(problem, batch, head, index);
    if (has_next) {
      queries.group.ahead[0] = rows_ahead(problem.query, batch, head, index - 1);
      queries.group.ahead[1] = rows_ahead(results.out, batch, head, index - 1);
    }
    ForwardRows<T> rows;
    for (int lane = 0; lane < queries.group.lanes; lane++)
      rows.out[lane] = results.out.at(batch, head, queries.query[lane]);
    Scratch<T> const scratch(kernel, problem.head_dim(), problem.value_dim());
    if (!run_forward(kernel, queries, queries.keys(band), rows, scratch, stop)) return;
    for (int lane = 0; lane < queries.group.lanes; lane++) {
      std::ptrdiff_t const i = queries.query[lane];
      if (results.lse) *results.lse.at(batch, head, i) = log_sum_exp(rows, lane);
      if (!results.statistics) continue;
      *results.statistics.at(batch, head, i, 0) = rows.maximum[lane];
      *results.statistics.at(batch, head, i, 1) = rows.inverse_sum[lane];
    }
  };
  // A task is a few neighbouring groups, so that each can fetch the next one's rows.
  int const threads = useful_threads(problem, control);
  std::ptrdiff_t const all = problem.batch() * problem.heads() * groups,
                       wanted = std::clamp<std::ptrdiff_t>(all / (16 * threads), 1, 8),
                       tasks = (groups + wanted - 1) / wanted;
  parallel_for(problem.batch() * problem.heads() * tasks, threads, control.interrupted,
               [&](std::ptrdiff_t task, const StopCheck& stop) {
                 std::ptrdiff_t const batch = task / tasks / problem.heads(), head = task / tasks % problem.heads();
                 std::ptrdiff_t const last = groups - task % tasks * wanted,
                                      first = std::max<std::ptrdiff_t>(0, last - wanted);
                 for (std::ptrdiff_t index = last - 1; index >= first && !stop(); index--)
                   run_group(batch, head, index, index > first, stop);
               });
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
