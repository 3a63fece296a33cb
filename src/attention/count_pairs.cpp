// SPDX-License-Identifier: BSD-3-Clause
// Counts the pairs with a mask above 0 in the tiles that the stages would compute.
#include <cstddef>
#include <cstdint>

#include "base/array_view.h"
#include "base/buffer_pool.h"
#include "base/parallel.h"
#include "base/tile.h"
#include "query_group.h"
#include "request.h"
#include "schedule/plan.h"
#include "schedule/tile_list.h"
#include "schedule/visibility.h"

namespace headspan {

namespace {

template <class T>
std::int64_t pairs_of_group(const QueryGroup<T>& queries, TileBatch& batch, const StopCheck& stop) {
  std::int64_t count = 0;
  VisibleKeys const keys = queries.schedule.visible_keys();
  for_each_batch(queries.schedule.tiles(keys), batch, stop, [&](const Tile* tiles, int n) {
    for (const Tile* tile = tiles; tile < tiles + n; tile++) {
      if (!tile->lane_masks) count += static_cast<std::int64_t>(tile->count) * queries.schedule.lanes();
      for (int r = 0; r < tile->count && tile->lane_masks; r++) count += __builtin_popcountll(tile->lane_masks[r]);
    }
    return true;
  });
  return count;
}

// If no key inside the ranges is left out, the keys of every query are a range.
template <class T>
std::int64_t pairs_of_ranges(const Request<T>& request, std::ptrdiff_t item, std::ptrdiff_t head,
                             const StopCheck& stop) {
  Visibility const visibility = request.visibility(item);
  std::int64_t count = 0;
  for (std::ptrdiff_t query = 0; query < request.queries(); query++) {
    if (query % 65536 == 0 && stop()) break;
    count += key_range(visibility, query, span_reach(visibility, request.span_of(item, head, query))).count();
  }
  return count;
}

}  // namespace

template <class T>
PairCounts pair_counts(const Request<T>& request) {
  auto const differs = [&](int axis) {
    return (request.span && request.span.stride[axis]) || (request.removed && request.removed.stride[axis]);
  };
  std::ptrdiff_t const patterns = static_cast<std::ptrdiff_t>(request.patterns.size());
  bool const items =
      differs(0) || patterns > std::max<std::ptrdiff_t>(request.heads(), 1) ||
      (request.query_positions && request.query_positions.stride[0]) ||
      (request.key_positions && request.key_positions.stride[0]) ||
      (request.key_start && request.key_start.stride[0]) || (request.key_stop && request.key_stop.stride[0]) ||
      (request.prefix_end && request.prefix_end.stride[0]) || (request.range_first && request.range_first.stride[0]);
  return {items ? request.batch() : 1, differs(1) || patterns > 1 ? request.heads() : 1};
}

template <class T>
void count_pairs(const Request<T>& request, const ArrayView<std::int64_t, 2>& pairs, const Control& control) {
  std::ptrdiff_t const heads = pairs.shape[1];
  Plan const plan(request.patterns, request.heads(), request.queries(), request.keys());
  bool const ranges = request.patterns.empty() && !request.removed;
  parallel_for(pairs.shape[0] * heads, control.threads, control.interrupted,
               [&](std::ptrdiff_t task, const StopCheck& stop) {
                 std::ptrdiff_t const item = task / heads, head = task % heads;
                 std::int64_t& count = *pairs.at(item, head);
                 if (ranges) {
                   count = pairs_of_ranges(request, item, head, stop);
                   return;
                 }
                 count = 0;
                 Buffer<TileBatch> const tiles(1);
                 for (std::ptrdiff_t stage = 0; stage < plan.stages(); stage++)
                   for (std::ptrdiff_t index = 0; index < plan.groups(item, head, stage) && !stop(); index++)
                     count += pairs_of_group(group_of(request, plan, item, head, stage, index), *tiles.data(), stop);
               });
}

template PairCounts pair_counts(const Request<float>&);
template PairCounts pair_counts(const Request<double>&);
template void count_pairs(const Request<float>&, const ArrayView<std::int64_t, 2>&, const Control&);
template void count_pairs(const Request<double>&, const ArrayView<std::int64_t, 2>&, const Control&);

}  // namespace headspan
