// SPDX-License-Identifier: BSD-3-Clause
// The keys that causality, a prefix, spans, positions, padding and ranges leave to a query. Patterns limit these keys
// further (see patterns/), and tile_list.h makes tiles for the kernel from both.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/tile.h"

namespace headspan {

// Which pairs exist, for one batch item. Query i has index i + keys - queries among the keys, so that the last query
// meets the last key, and this index is its position unless positions are given.
struct Visibility {
  std::ptrdiff_t queries, keys;
  bool causal, include_self;
  double ramp;
  // Both or neither. Those of the keys ascend; with ranges, within each of them.
  const double *query_position = nullptr, *key_position = nullptr;
  std::ptrdiff_t key_start = 0, key_stop = PTRDIFF_MAX;              // keys outside are padding
  const std::int64_t *range_first = nullptr, *range_last = nullptr;  // of each query: the range of its keys
  std::ptrdiff_t prefix_end = 0;  // keys before it are visible whatever causality says

  std::ptrdiff_t index(std::ptrdiff_t query) const { return query + keys - queries; }
  double position(std::ptrdiff_t query) const {
    return query_position ? query_position[query] : static_cast<double>(index(query));
  }
  // The keys of the range of a query, or all keys without a range.
  std::ptrdiff_t first_of(std::ptrdiff_t query) const {
    return range_first ? std::clamp<std::ptrdiff_t>(range_first[query], 0, keys) : 0;
  }
  std::ptrdiff_t last_of(std::ptrdiff_t query) const {
    return range_last ? std::clamp<std::ptrdiff_t>(range_last[query], first_of(query), keys) : keys;
  }
  // By positions: the first key for which `past` holds; it holds for all later ones, too.
  template <class Past>
  std::ptrdiff_t first_key(std::ptrdiff_t query, Past past) const {
    return std::partition_point(key_position + first_of(query), key_position + last_of(query),
                                [&](double k) { return !past(k); }) -
           key_position;
  }
};

// A span in integer distances: m > 0 up to `furthest`, and x >= z from `ramp_start` on.
struct SpanReach {
  std::ptrdiff_t furthest, ramp_start;
  double span;
};
SpanReach span_reach(const Visibility& visibility, double span);

// The keys first .. last - 1 that one query may see, except for those from self_first to self_last - 1.
struct KeyRange {
  std::ptrdiff_t first, last, self_first, self_last;
  bool empty() const { return first >= last; }
  std::ptrdiff_t count() const;
};
KeyRange key_range(const Visibility& visibility, std::ptrdiff_t query, const SpanReach& reach);

}  // namespace headspan
