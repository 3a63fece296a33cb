// SPDX-License-Identifier: BSD-3-Clause
// A group of queries of one head, and the tiles of keys that it meets.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/tile.h"
#include "patterns/expression.h"
#include "plan.h"
#include "stage.h"
#include "tile_list.h"
#include "visibility.h"

namespace headspan {

// The queries of a group; lanes without a query repeat the first one, masked.
struct GroupQueries {
  int lanes;
  std::ptrdiff_t query[kLanes];
  bool of_several_heads = false;
  std::ptrdiff_t heads_on[kLanes];  // if so, the number of heads from the head of the group to that of the lane
  double span[kLanes];              // infinity: unlimited
};

// The queries of group number `index` of a stage of a head of a batch item, with their spans, span_of(query). If
// neighbouring queries have different spans they are sorted by the first key they see, so that the lanes of a vector
// have most of their keys in common.
template <class SpanOf>
GroupQueries group_queries(const Plan& plan, std::ptrdiff_t item, std::ptrdiff_t head, std::ptrdiff_t stage_number,
                           std::ptrdiff_t index, bool span_per_query, SpanOf span_of) {
  const PatternStage* const stage = plan.stage(item, head, stage_number);
  std::ptrdiff_t const first = index * kLanes, left = plan.queries() - first;
  const std::ptrdiff_t* const chosen = stage ? stage->order.queries(index) : nullptr;
  GroupQueries group;
  group.lanes = stage ? stage->order.lanes(index) : static_cast<int>(std::min<std::ptrdiff_t>(left, kLanes));
  for (int lane = 0; lane < group.lanes; lane++) group.query[lane] = chosen ? chosen[lane] : first + lane;
  if (span_per_query && (!stage || stage->along_tokens()) && !plan.coordinates(item, head, 0)) {
    // The key in the upper bits and the lane in the lower ones, because plain integers sort faster.
    constexpr double furthest = 1e15;
    std::int64_t order[kLanes];
    for (int lane = 0; lane < group.lanes; lane++) {
      double const first_key = static_cast<double>(group.query[lane]) - std::min(span_of(group.query[lane]), furthest);
      order[lane] = static_cast<std::int64_t>(first_key) * kLanes + lane;
    }
    std::sort(order, order + group.lanes);
    std::ptrdiff_t query[kLanes];
    std::copy_n(group.query, group.lanes, query);
    for (int lane = 0; lane < group.lanes; lane++) group.query[lane] = query[order[lane] & (kLanes - 1)];
  }
  std::fill(group.query + group.lanes, group.query + kLanes, group.query[0]);
  for (int lane = 0; lane < kLanes; lane++) group.span[lane] = span_of(group.query[lane]);
  return group;
}

class GroupSchedule {
 public:
  // `limited`: spans are given. `removed`: for each key whether it has a bias of -infinity; null: none has.
  GroupSchedule(const Visibility& visibility, const Pattern* pattern, const PatternStage* stage,
                const GroupQueries& queries, bool limited, const bool* removed, int tiles_at_once);
  GroupSchedule(const GroupSchedule&) = delete;  // parts of it point to each other
  GroupSchedule& operator=(const GroupSchedule&) = delete;

  int lanes() const { return queries_.lanes; }
  std::ptrdiff_t query(int lane) const { return queries_.query[lane]; }
  const std::ptrdiff_t* queries() const { return queries_.query; }  // of all lanes
  std::ptrdiff_t index(int lane) const { return index_[lane]; }
  std::ptrdiff_t heads_on(int lane) const { return queries_.of_several_heads ? queries_.heads_on[lane] : 0; }
  double span(int lane) const { return queries_.span[lane]; }  // infinity for global tokens
  PairRules const& rules() const { return rules_; }

  VisibleKeys visible_keys() const;
  TileList tiles(const VisibleKeys& keys) const { return TileList(keys, {index_, queries_.lanes}, rules_); }

 private:
  Visibility const visibility_;
  GroupQueries queries_;
  std::ptrdiff_t index_[kLanes];
  std::ptrdiff_t grid_reach_[kLanes];
  PairRules rules_;
};

}  // namespace headspan
