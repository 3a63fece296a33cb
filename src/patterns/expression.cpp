// SPDX-License-Identifier: BSD-3-Clause
#include "expression.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <stdexcept>
#include <vector>

#include "base/tile.h"
#include "intervals.h"
#include "lane_set.h"
#include "primitive.h"

namespace headspan {

Pattern::Pattern(const Description& conjunctions) {
  for (const auto& conjunction : conjunctions) {
    conjunctions_.emplace_back();
    for (const auto& [name, numbers, avoid] : conjunction) {
      primitives_.push_back(make_primitive(name, numbers, avoid));
      Primitive const& primitive = *primitives_.back();
      conjunctions_.back().push_back(&primitive);
      if (primitive.grouping().grid.axes) grid_ = primitive.grouping().grid;
      std::vector<std::int64_t> both;
      std::set_union(global_tokens_.begin(), global_tokens_.end(), primitive.global_tokens().begin(),
                     primitive.global_tokens().end(), std::back_inserter(both));
      global_tokens_.swap(both);
    }
  }
}

void Pattern::check(std::ptrdiff_t queries, std::ptrdiff_t keys) const {
  for (const auto& primitive : primitives_) {
    Grid const grid = primitive->grouping().grid;
    if (!grid.axes) continue;
    std::ptrdiff_t outside = 0;
    for (std::int64_t const token : global_tokens_) outside += !grid.holds(token);
    if (!(grid == grid_ && grid.first >= 0 && grid.tokens() + outside == keys && queries <= keys))
      throw std::invalid_argument("the shape of a pattern is not that of the tokens");
  }
  if (!global_tokens_.empty() && (global_tokens_.front() < 0 || global_tokens_.back() >= keys))
    throw std::invalid_argument("a global token is out of range");
}

bool Pattern::sees_itself() const {
  return std::any_of(conjunctions_.begin(), conjunctions_.end(), [](const Conjunction& conjunction) {
    return std::all_of(conjunction.begin(), conjunction.end(),
                       [](const Primitive* primitive) { return primitive->sees_itself(); });
  });
}

UnionMask::UnionMask(const std::vector<Conjunction>& conjunctions, const Lanes& lanes, std::ptrdiff_t keys) {
  conjunctions_.reserve(conjunctions.size());
  for (const Conjunction& conjunction : conjunctions) {
    conjunctions_.emplace_back();
    for (const Primitive* primitive : conjunction) conjunctions_.back().push_back(primitive->of(lanes, keys));
  }
}

Intervals UnionMask::intervals() const {
  Intervals seen, in_conjunction, in_primitive, before;
  for (const auto& conjunction : conjunctions_) {
    in_conjunction.clear();
    for (const auto& primitive : conjunction) {
      in_primitive.clear();
      primitive->intervals(in_primitive);
      before.swap(in_conjunction);
      if (primitive == conjunction.front())
        in_conjunction.swap(in_primitive);
      else
        intersect(before, in_primitive, in_conjunction);
    }
    before.swap(seen);
    unite(before, in_conjunction, seen);
  }
  return seen;
}

void UnionMask::fill(const Tile& tile, std::uint64_t* masks) const {
  std::uint64_t in_conjunction[kTileKeys], more[kTileKeys];
  for (const auto& conjunction : conjunctions_) {
    bool const is_first = &conjunction == &conjunctions_.front();
    std::uint64_t* const to = is_first ? masks : in_conjunction;
    conjunction.front()->fill(tile, to);
    for (std::size_t i = 1; i < conjunction.size(); i++) {
      conjunction[i]->fill(tile, more);
      for (int r = 0; r < tile.count; r++) to[r] &= more[r];
    }
    for (int r = 0; r < tile.count && !is_first; r++) masks[r] |= in_conjunction[r];
  }
}

}  // namespace headspan
