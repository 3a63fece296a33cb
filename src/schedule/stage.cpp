// SPDX-License-Identifier: BSD-3-Clause
#include "stage.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/tile.h"
#include "patterns/expression.h"
#include "patterns/grid.h"
#include "patterns/intervals.h"
#include "patterns/lane_set.h"
#include "patterns/primitive.h"
#include "query_order.h"

namespace headspan {

namespace {

// The grouping of a conjunction is that of its most demanding primitive: a grid, then a stride, then sections.
Grouping grouping_of(const Conjunction& conjunction) {
  auto const rank = [](const Grouping& g) { return g.grid.axes ? 3 : g.stride > 1 ? 2 : g.section ? 1 : 0; };
  Grouping best;
  for (const Primitive* primitive : conjunction) {
    Grouping const grouping = primitive->grouping();
    if (rank(grouping) > rank(best)) best = grouping;
  }
  return best;
}

bool same_groups(const Grouping& a, const Grouping& b) {
  return a.stride == b.stride && a.grid == b.grid && std::equal(a.dilation, a.dilation + kGridAxes, b.dilation);
}

std::vector<std::int64_t> global_tokens_of(const std::vector<Conjunction>& conjunctions) {
  std::vector<std::int64_t> tokens;
  for (const Conjunction& conjunction : conjunctions)
    for (const Primitive* primitive : conjunction)
      tokens.insert(tokens.end(), primitive->global_tokens().begin(), primitive->global_tokens().end());
  std::sort(tokens.begin(), tokens.end());
  return tokens;
}

}  // namespace

std::vector<PatternStage> stages_of(const Pattern& pattern, std::ptrdiff_t queries, std::ptrdiff_t keys) {
  struct Draft {
    Grouping grouping;
    std::vector<Conjunction> conjunctions;
  };
  std::vector<Draft> drafts;
  for (const Conjunction& conjunction : pattern.conjunctions()) {
    Grouping const grouping = grouping_of(conjunction);
    auto draft = std::find_if(drafts.begin(), drafts.end(),
                              [&](const Draft& other) { return same_groups(other.grouping, grouping); });
    if (draft == drafts.end()) draft = drafts.insert(drafts.end(), {grouping, {}});
    draft->grouping.section = std::max(draft->grouping.section, grouping.section);
    draft->grouping.apart = draft->grouping.apart && grouping.apart;
    for (int axis = 0; axis < kGridAxes; axis++)
      draft->grouping.sharing[axis] = std::max(draft->grouping.sharing[axis], grouping.sharing[axis]);
    draft->conjunctions.push_back(conjunction);
  }
  std::vector<PatternStage> stages;
  for (const Draft& draft : drafts) {
    PatternStage stage;
    stage.self_pairs = pattern.sees_itself();
    stage.stride = draft.grouping.stride;
    stage.conjunctions = draft.conjunctions;
    for (const PatternStage& done : stages)
      stage.earlier.insert(stage.earlier.end(), done.conjunctions.begin(), done.conjunctions.end());
    stage.order = make_query_order(draft.grouping, queries, keys, global_tokens_of(draft.conjunctions));
    stages.push_back(std::move(stage));
  }
  return stages;
}

PatternStage make_single_stage(const Pattern& pattern) {
  PatternStage stage;
  stage.conjunctions = pattern.conjunctions();
  return stage;
}

StageMask::StageMask(const PatternStage& stage, const Lanes& lanes, std::ptrdiff_t keys)
    : stage_(stage),
      lanes_(lanes),
      keys_(keys),
      now_(stage.conjunctions, lanes, keys),
      earlier_(stage.earlier, lanes, keys) {}

std::vector<KeyRun> StageMask::runs() const {
  std::vector<KeyRun> runs;
  std::ptrdiff_t const stride = stage_.stride;
  auto const add = [&](const Intervals& seen, std::ptrdiff_t residue) {
    runs.reserve(runs.size() + seen.size());
    for (const Interval& interval : seen) {
      std::ptrdiff_t const first = interval.first + floor_mod(residue - interval.first, stride);
      if (first < interval.last) runs.push_back({first, interval.last, stride});
    }
  };
  LaneClasses const classes = residues(lanes_, stride);
  if (classes.count() == 1) {
    add(now_.intervals(), classes.at(0));
    return runs;
  }
  for (int i = 0; i < classes.count(); i++) {
    std::ptrdiff_t index[kLanes];
    int count = 0;
    for (int lane = 0; lane < lanes_.count; lane++)
      if (classes.mask(i) >> lane & 1) index[count++] = lanes_.index[lane];
    add(UnionMask(stage_.conjunctions, Lanes(index, count), keys_).intervals(), classes.at(i));
  }
  return runs;
}

void StageMask::fill(const Tile& tile, std::uint64_t* masks) const {
  now_.fill(tile, masks);
  if (earlier_.empty()) return;
  std::uint64_t counted[kTileKeys];
  earlier_.fill(tile, counted);
  for (int r = 0; r < tile.count; r++) masks[r] &= ~counted[r];
}

}  // namespace headspan
