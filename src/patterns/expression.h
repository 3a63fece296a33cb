// SPDX-License-Identifier: BSD-3-Clause
// Expressions of primitives: a union of conjunctions, such as (window & blocks) | global.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "base/tile.h"
#include "grid.h"
#include "intervals.h"
#include "lane_set.h"
#include "primitive.h"

namespace headspan {

using Conjunction = std::vector<const Primitive*>;  // a pair belongs to it if it belongs to every primitive

class Pattern {
 public:
  // The primitives of every conjunction: name, numbers, and the pattern to avoid or null.
  using Description = std::vector<std::vector<std::tuple<std::string, Numbers, std::shared_ptr<Pattern>>>>;
  explicit Pattern(const Description& conjunctions);

  // Throws std::invalid_argument if the pattern does not fit the number of tokens.
  void check(std::ptrdiff_t queries, std::ptrdiff_t keys) const;

  const std::vector<Conjunction>& conjunctions() const { return conjunctions_; }
  // Tokens whose pairs no span limits, ascending.
  const std::vector<std::int64_t>& global_tokens() const { return global_tokens_; }
  const Grid& grid() const { return grid_; }
  bool sees_itself() const;  // whether every token is known to see itself

 private:
  std::vector<std::unique_ptr<Primitive>> primitives_;
  std::vector<Conjunction> conjunctions_;
  std::vector<std::int64_t> global_tokens_;
  Grid grid_;
};

// The keys that one group of queries may see in a union of conjunctions.
class UnionMask {
 public:
  UnionMask(const std::vector<Conjunction>& conjunctions, const Lanes& lanes, std::ptrdiff_t keys);
  bool empty() const { return conjunctions_.empty(); }  // it contains no conjunction

  Intervals intervals() const;
  void fill(const Tile& tile, std::uint64_t* masks) const;

 private:
  std::vector<std::vector<std::unique_ptr<GroupMask>>> conjunctions_;
};

}  // namespace headspan
