// SPDX-License-Identifier: BSD-3-Clause
// Expressions of primitives, and how they are computed: a union of terms is cut into passes of terms whose queries like
// the same groups. A pair in several passes counts in the first; their results are merged by log-sum-exp.
#pragma once

#include <utility>

#include "patterns/primitive.h"

namespace headspan {

using Term = std::vector<const Primitive*>;  // a pair is in a term if it is in every primitive

// Queries in the order in which they are computed, cut into groups.
struct Order {
  std::vector<std::ptrdiff_t> query;
  std::vector<std::ptrdiff_t> start;  // of each group; one more for the end
  std::ptrdiff_t apart = 0;           // the first groups, of queries that are kept apart from the others
  std::ptrdiff_t groups() const { return static_cast<std::ptrdiff_t>(start.size()) - 1; }
  int lanes(std::ptrdiff_t group) const { return static_cast<int>(start_of(group + 1) - start_of(group)); }
  const std::ptrdiff_t* queries(std::ptrdiff_t group) const { return query.data() + start_of(group); }

 private:
  std::ptrdiff_t start_of(std::ptrdiff_t group) const { return start[static_cast<std::size_t>(group)]; }
};
// Groups that are apart see far more keys than others. Each is cut into shares of the keys, to be computed with the
// groups of these keys, while the caches hold them.
struct Shares {
  std::ptrdiff_t each, groups;  // 1 share: the groups apart are groups like others
  Shares(const Order& order, std::ptrdiff_t keys) : each(1), groups(order.groups()) {
    constexpr std::ptrdiff_t most = 64, least_keys = 256;
    if (order.apart > 0 && keys >= 8 * least_keys) each = keys / least_keys < most ? keys / least_keys : most;
  }
  // How many shares have a first, or all, of their groups before this one.
  std::ptrdiff_t begun_before(std::ptrdiff_t group) const { return (group * each + groups - 1) / groups; }
  std::ptrdiff_t done_before(std::ptrdiff_t group) const { return group * each / groups; }
};
// Tokens in `apart` come first, in groups of their own.
Order make_order(const Grouping& grouping, std::ptrdiff_t queries, std::ptrdiff_t keys,
                 const std::vector<std::int64_t>& apart);

// Keys of one class: first, first + step ... below last.
struct KeyRun {
  std::ptrdiff_t first, last, step;
};

struct Pass {
  std::ptrdiff_t stride = 1;
  std::vector<Term> terms;
  std::vector<Term> earlier;  // whose pairs have been counted
  bool self_pairs = false;    // every token is known to see itself, be it in another pass
  Order order;

  bool plain() const { return stride == 1; }  // neighbouring queries, or a grid's
  // The runs of keys that may be seen.
  std::vector<KeyRun> runs(const Lanes& lanes, std::ptrdiff_t keys) const;
  void words(const Lanes& lanes, const Tile& tile, std::ptrdiff_t keys, std::uint64_t* words) const;
};

class Pattern {
 public:
  using Description = std::vector<std::vector<std::pair<std::string, Numbers>>>;  // of every term its primitives
  explicit Pattern(const Description& terms);

  std::vector<Pass> passes(std::ptrdiff_t queries, std::ptrdiff_t keys) const;
  Pass whole() const;  // all terms at once, for queries in any order
  // Throws std::invalid_argument if it does not suit as many tokens.
  void check(std::ptrdiff_t queries, std::ptrdiff_t keys) const;
  const std::vector<std::int64_t>& global_tokens() const { return global_tokens_; }
  const Grid& grid() const { return grid_; }

 private:
  std::vector<std::unique_ptr<Primitive>> primitives_;
  std::vector<Term> terms_;
  std::vector<std::int64_t> global_tokens_;
  Grid grid_;
};

}  // namespace headspan
