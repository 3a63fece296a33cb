// SPDX-License-Identifier: BSD-3-Clause
// How the queries of every head are divided into groups: neighbours, unless a pattern requests others.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <vector>

#include "base/tile.h"
#include "patterns/expression.h"
#include "patterns/grid.h"
#include "stage.h"

namespace headspan {

class Plan {
 public:
  // For one pattern for all heads, one per head, one per batch item and head, item by item, or none.
  Plan(const std::vector<const Pattern*>& patterns, std::ptrdiff_t heads, std::ptrdiff_t queries, std::ptrdiff_t keys)
      : patterns_(patterns), heads_(heads), queries_(queries), neighbours_((queries + kLanes - 1) / kLanes) {
    for (const Pattern* pattern : patterns) {
      auto const [entry, is_new] = of_pattern_.try_emplace(pattern);
      if (!is_new) continue;
      entry->second.stages = stages_of(*pattern, queries, keys);
      entry->second.single_stage = make_single_stage(*pattern);
      if (pattern->grid().axes) entry->second.find_coordinates(pattern->grid(), keys);
    }
  }

  std::ptrdiff_t queries() const { return queries_; }
  // The number of different batch items: 1 if they share their patterns.
  std::ptrdiff_t items() const {
    std::ptrdiff_t const count = static_cast<std::ptrdiff_t>(patterns_.size());
    return count > heads_ && count > 1 ? count / heads_ : 1;
  }
  // The maximum number of stages of a head.
  std::ptrdiff_t stages() const {
    std::size_t most = patterns_.empty() ? 1 : 0;
    for (const auto& entry : of_pattern_) most = std::max(most, entry.second.stages.size());
    return static_cast<std::ptrdiff_t>(most);
  }
  const Pattern* pattern(std::ptrdiff_t item, std::ptrdiff_t head) const {
    if (patterns_.size() <= 1) return patterns_.empty() ? nullptr : patterns_.front();
    return patterns_[static_cast<std::size_t>((items() > 1 ? item * heads_ : 0) + head)];
  }
  // Null for neighbours without a pattern, and if the head has fewer stages.
  const PatternStage* stage(std::ptrdiff_t item, std::ptrdiff_t head, std::ptrdiff_t number) const {
    if (patterns_.empty()) return nullptr;
    auto const& stages = of(item, head).stages;
    return number < static_cast<std::ptrdiff_t>(stages.size()) ? &stages[static_cast<std::size_t>(number)] : nullptr;
  }
  // For queries in any order.
  const PatternStage* single_stage(std::ptrdiff_t item, std::ptrdiff_t head) const {
    return patterns_.empty() ? nullptr : &of(item, head).single_stage;
  }
  // Null if the head has fewer stages.
  std::ptrdiff_t groups(std::ptrdiff_t item, std::ptrdiff_t head, std::ptrdiff_t number) const {
    if (patterns_.empty()) return neighbours_;
    const PatternStage* const of_head = stage(item, head, number);
    return of_head ? of_head->order.groups() : 0;
  }
  std::ptrdiff_t most_groups(std::ptrdiff_t number) const {
    std::ptrdiff_t most = patterns_.empty() ? neighbours_ : 0;
    for (const auto& entry : of_pattern_) {
      auto const& stages = entry.second.stages;
      if (number < static_cast<std::ptrdiff_t>(stages.size()))
        most = std::max(most, stages[static_cast<std::size_t>(number)].order.groups());
    }
    return most;
  }
  // The positions of the keys on an axis of the pattern's grid; null: there is no grid.
  const double* coordinates(std::ptrdiff_t item, std::ptrdiff_t head, int axis) const {
    if (patterns_.empty()) return nullptr;
    std::vector<double> const& values = of(item, head).coordinates[axis];
    return values.empty() ? nullptr : values.data();
  }

 private:
  struct OfPattern {
    std::vector<PatternStage> stages;
    PatternStage single_stage;
    std::vector<double> coordinates[kGridAxes];

    // On an axis every coordinate is repeated once for each token of the later axes, over and over. Tokens outside the
    // grid are global, and their distances are never used.
    void find_coordinates(const Grid& grid, std::ptrdiff_t keys) {
      std::ptrdiff_t const tokens = grid.tokens();
      for (std::ptrdiff_t axis = 0, times = tokens; axis < grid.axes && tokens > 0; axis++) {
        coordinates[axis].resize(static_cast<std::size_t>(keys));
        times /= grid.shape[axis];
        for (double *to = coordinates[axis].data() + grid.first, *const end = to + tokens; to < end;)
          for (std::ptrdiff_t at = 0; at < grid.shape[axis]; at++) to = std::fill_n(to, times, static_cast<double>(at));
      }
    }
  };
  const OfPattern& of(std::ptrdiff_t item, std::ptrdiff_t head) const { return of_pattern_.at(pattern(item, head)); }

  std::vector<const Pattern*> const patterns_;
  std::ptrdiff_t const heads_, queries_, neighbours_;  // the last: number of groups of neighbours
  std::map<const Pattern*, OfPattern> of_pattern_;
};

}  // namespace headspan
