// SPDX-License-Identifier: BSD-3-Clause
#include "count.h"

#include <algorithm>

#include "base/buffer_pool.h"
#include "group_schedule.h"

namespace headspan {

namespace {

std::int64_t pairs_of_group(const GroupSchedule& group, TileBatch& batch, const StopCheck& stop) {
  std::int64_t count = 0;
  for_each_batch(group.tiles(group.visible_keys()), batch, stop, [&](const Tile* tiles, int n) {
    for (const Tile* tile = tiles; tile < tiles + n; tile++) {
      if (!tile->lane_masks) count += static_cast<std::int64_t>(tile->count) * group.lanes();
      for (int r = 0; r < tile->count && tile->lane_masks; r++) count += __builtin_popcountll(tile->lane_masks[r]);
    }
    return true;
  });
  return count;
}

}  // namespace

void count_pairs(const Visibility& visibility, const ArrayView<const double, 3>& span,
                 const std::vector<const Pattern*>& patterns, const ArrayView<std::int64_t, 2>& pairs,
                 const InterruptCheck& interrupted) {
  std::ptrdiff_t const heads = pairs.shape[1];
  Plan const plan(patterns, visibility.queries, visibility.keys);
  parallel_for(pairs.shape[0] * heads, 1, interrupted, [&](std::ptrdiff_t task, const StopCheck& stop) {
    std::ptrdiff_t const batch = task / heads, head = task % heads;
    auto const span_of = [&](std::ptrdiff_t query) { return *span.at(batch, head, query); };
    std::int64_t& count = *pairs.at(batch, head);
    count = 0;
    for (std::ptrdiff_t query = 0; query < visibility.queries && patterns.empty(); query++) {
      if (query % 65536 == 0 && stop()) return;
      count += key_range(visibility, query, span_reach(visibility, span_of(query))).count();
    }
    if (patterns.empty()) return;
    Buffer<TileBatch> const tiles(1);
    for (std::ptrdiff_t number = 0; number < plan.stages(); number++)
      for (std::ptrdiff_t index = 0; index < plan.groups(head, number) && !stop(); index++) {
        GroupQueries const queries = group_queries(plan, head, number, index, span.stride[2] != 0, span_of);
        GroupSchedule const group(visibility, plan, head, plan.stage(head, number), queries, true, nullptr,
                                  kBatchTiles);
        count += pairs_of_group(group, *tiles.data(), stop);
      }
  });
}

void pattern_mask(const Pattern& pattern, const ArrayView<bool, 2>& mask, const InterruptCheck& interrupted) {
  std::ptrdiff_t const queries = mask.shape[0], keys = mask.shape[1];
  parallel_for((queries + kLanes - 1) / kLanes, 1, interrupted, [&](std::ptrdiff_t group, const StopCheck&) {
    std::ptrdiff_t index[kLanes];
    int count = 0;
    for (std::ptrdiff_t i = group * kLanes; i < std::min(queries, (group + 1) * kLanes); i++)
      index[count++] = i + keys - queries;
    UnionMask const allowed(pattern.conjunctions(), Lanes(index, count), keys);
    for (std::ptrdiff_t first = 0; first < keys; first += kTileKeys) {
      std::uint64_t masks[kTileKeys];
      Tile const tile{first, 1, nullptr, nullptr, static_cast<int>(std::min<std::ptrdiff_t>(kTileKeys, keys - first)),
                      false};
      allowed.fill(tile, masks);
      for (int lane = 0; lane < count; lane++)
        for (int r = 0; r < tile.count; r++) *mask.at(group * kLanes + lane, first + r) = masks[r] >> lane & 1;
    }
  });
}

}  // namespace headspan
