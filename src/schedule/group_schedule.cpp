// SPDX-License-Identifier: BSD-3-Clause
#include "group_schedule.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/tile.h"
#include "patterns/expression.h"
#include "stage.h"
#include "tile_list.h"
#include "visibility.h"

namespace headspan {

GroupSchedule::GroupSchedule(const Visibility& visibility, const Pattern* pattern, const PatternStage* stage,
                             const GroupQueries& queries, bool limited, const bool* removed, int tiles_at_once)
    : visibility_(visibility), queries_(queries) {
  for (int lane = 0; lane < kLanes; lane++) index_[lane] = visibility.index(queries.query[lane]);
  rules_.stage = stage;
  rules_.keys = visibility.keys;
  rules_.removed = removed;
  rules_.tiles_at_once = tiles_at_once;
  if (!pattern || !limited) return;
  std::vector<std::int64_t> const& tokens = pattern->global_tokens();
  if (!tokens.empty()) rules_.exempt_keys = &tokens;
  for (int lane = 0; lane < kLanes && !tokens.empty(); lane++)
    if (std::binary_search(tokens.begin(), tokens.end(), index_[lane]))
      queries_.span[lane] = std::numeric_limits<double>::infinity();
  if (!pattern->grid().axes) return;
  rules_.grid = &pattern->grid();
  for (int lane = 0; lane < kLanes; lane++) grid_reach_[lane] = span_reach(visibility, queries_.span[lane]).furthest;
  rules_.grid_reach = grid_reach_;
}

VisibleKeys GroupSchedule::visible_keys() const {
  double unlimited[kLanes];
  std::fill_n(unlimited, kLanes, std::numeric_limits<double>::infinity());
  VisibleKeys keys{GroupKeyRange(visibility_, queries_.query, queries_.lanes, rules_.grid ? unlimited : queries_.span),
                   {}};
  if (rules_.exempt_keys) keys.span_exempt.emplace(visibility_, queries_.query, queries_.lanes, unlimited);
  return keys;
}

}  // namespace headspan
