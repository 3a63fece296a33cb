// SPDX-License-Identifier: BSD-3-Clause
// The computation of a pattern: its conjunctions are divided into stages whose queries suit the same groups, such as
// local windows (neighbours) and strides (every n-th query). A pair in several stages counts in the first one. The
// results of the stages are merged by log-sum-exp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/tile.h"
#include "patterns/expression.h"
#include "patterns/lane_set.h"
#include "query_order.h"

namespace headspan {

// Keys of one class: first, first + step ... below last.
struct KeyRun {
  std::ptrdiff_t first, last, step;
};

struct PatternStage {
  std::ptrdiff_t stride = 1;
  std::vector<Conjunction> conjunctions;
  std::vector<Conjunction> earlier;  // whose pairs have been counted
  bool self_pairs = false;           // every token is known to see itself, possibly in another stage
  QueryOrder order;

  bool along_tokens() const { return stride == 1; }  // neighbouring queries, or a grid's
};

std::vector<PatternStage> stages_of(const Pattern& pattern, std::ptrdiff_t queries, std::ptrdiff_t keys);
PatternStage make_single_stage(const Pattern& pattern);  // all of it at once, for queries in any order

// The keys that a stage lets one group of queries see.
class StageMask {
 public:
  StageMask(const PatternStage& stage, const Lanes& lanes, std::ptrdiff_t keys);

  // The runs of visible keys.
  std::vector<KeyRun> runs() const;
  void fill(const Tile& tile, std::uint64_t* masks) const;

 private:
  PatternStage const& stage_;
  Lanes const lanes_;
  std::ptrdiff_t const keys_;
  UnionMask const now_, earlier_;
};

}  // namespace headspan
