// SPDX-License-Identifier: BSD-3-Clause
// How the queries of every head are cut into groups: neighbours, unless a pattern asks for others.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "patterns/grid.h"
#include "stage.h"

namespace headspan {

class Plan {
 public:
  // Of one pattern for all heads, or one for each, or none.
  Plan(const std::vector<const Pattern*>& patterns, std::ptrdiff_t queries, std::ptrdiff_t keys)
      : patterns_(patterns), neighbours_((queries + kLanes - 1) / kLanes) {
    for (const Pattern* pattern : patterns) {
      auto const [entry, is_new] = of_pattern_.try_emplace(pattern);
      if (!is_new) continue;
      entry->second.passes = pattern->passes(queries, keys);
      entry->second.whole = pattern->whole();
      if (pattern->grid().axes) entry->second.find_coordinates(pattern->grid());
    }
  }

  // Most passes that a head needs.
  std::ptrdiff_t passes() const {
    std::size_t most = patterns_.empty() ? 1 : 0;
    for (const auto& entry : of_pattern_) most = std::max(most, entry.second.passes.size());
    return static_cast<std::ptrdiff_t>(most);
  }
  const Pattern* pattern(std::ptrdiff_t head) const {
    return patterns_.empty() ? nullptr : patterns_[patterns_.size() == 1 ? 0 : static_cast<std::size_t>(head)];
  }
  // Null for neighbours without a pattern, and where the head has fewer passes.
  const Pass* pass(std::ptrdiff_t head, std::ptrdiff_t number) const {
    if (patterns_.empty()) return nullptr;
    auto const& passes = of(head).passes;
    return number < static_cast<std::ptrdiff_t>(passes.size()) ? &passes[static_cast<std::size_t>(number)] : nullptr;
  }
  // For queries in any order.
  const Pass* whole(std::ptrdiff_t head) const { return patterns_.empty() ? nullptr : &of(head).whole; }
  // None if the head has fewer passes.
  std::ptrdiff_t groups(std::ptrdiff_t head, std::ptrdiff_t number) const {
    if (patterns_.empty()) return neighbours_;
    const Pass* const of_head = pass(head, number);
    return of_head ? of_head->order.groups() : 0;
  }
  std::ptrdiff_t most_groups(std::ptrdiff_t number) const {
    std::ptrdiff_t most = patterns_.empty() ? neighbours_ : 0;
    for (std::size_t head = 0; head < patterns_.size(); head++)
      most = std::max(most, groups(static_cast<std::ptrdiff_t>(head), number));
    return most;
  }
  // Where the keys stand on an axis of the pattern's grid; null: it has none.
  const double* coordinates(std::ptrdiff_t head, int axis) const {
    if (patterns_.empty() || of(head).coordinates[axis].empty()) return nullptr;
    return of(head).coordinates[axis].data();
  }

 private:
  struct OfPattern {
    std::vector<Pass> passes;
    Pass whole;
    std::vector<double> coordinates[kGridAxes];

    // On an axis every coordinate stands once for each token of the later axes, over and over.
    void find_coordinates(const Grid& grid) {
      std::ptrdiff_t const tokens = grid.tokens();
      for (std::ptrdiff_t axis = 0, times = tokens; axis < grid.axes && tokens > 0; axis++) {
        coordinates[axis].resize(static_cast<std::size_t>(tokens));
        times /= grid.shape[axis];
        for (double *to = coordinates[axis].data(), *const end = to + tokens; to < end;)
          for (std::ptrdiff_t at = 0; at < grid.shape[axis]; at++) to = std::fill_n(to, times, static_cast<double>(at));
      }
    }
  };
  const OfPattern& of(std::ptrdiff_t head) const { return of_pattern_.at(pattern(head)); }

  std::vector<const Pattern*> const patterns_;
  std::ptrdiff_t const neighbours_;
  std::map<const Pattern*, OfPattern> of_pattern_;
};

}  // namespace headspan
