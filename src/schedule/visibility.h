// SPDX-License-Identifier: BSD-3-Clause
// Who can be reached: the keys that causality, a prefix, spans, positions, padding and ranges leave to a query.
// Patterns come on top of it, see patterns/; tile_list.h makes both into tiles for the kernel.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/tile.h"

namespace headspan {

// Which pairs exist at all, for one item of the batch. Query i has index i + keys - queries among the keys, so that the
// last query meets the last key, and that is where it stands unless positions are given.
struct Visibility {
  std::ptrdiff_t queries, keys;
  bool causal, include_self;
  double ramp;
  // Both or none. Those of the keys ascend, with ranges within each of them.
  const double *query_position = nullptr, *key_position = nullptr;
  std::ptrdiff_t key_begin = 0, key_end = PTRDIFF_MAX;               // keys outside are padding
  const std::int64_t *range_first = nullptr, *range_last = nullptr;  // of each query: its keys are among these
  std::ptrdiff_t prefix_end = 0;                                     // keys before it are seen whatever causality says

  std::ptrdiff_t index(std::ptrdiff_t query) const { return query + keys - queries; }
  double position(std::ptrdiff_t query) const {
    return query_position ? query_position[query] : static_cast<double>(index(query));
  }
  // The keys that a query has by its range, all of them without one.
  std::ptrdiff_t first_of(std::ptrdiff_t query) const {
    return range_first ? std::clamp<std::ptrdiff_t>(range_first[query], 0, keys) : 0;
  }
  std::ptrdiff_t last_of(std::ptrdiff_t query) const {
    return range_last ? std::clamp<std::ptrdiff_t>(range_last[query], first_of(query), keys) : keys;
  }
  // By positions, the first of these for which `past` holds; it does for all that follow.
  template <class Past>
  std::ptrdiff_t first_key(std::ptrdiff_t query, Past past) const {
    return std::partition_point(key_position + first_of(query), key_position + last_of(query),
                                [&](double k) { return !past(k); }) -
           key_position;
  }
};

// A span in whole distances: m > 0 up to `furthest`, and x >= z from `ramp_start` on.
struct SpanReach {
  std::ptrdiff_t furthest, ramp_start;
  double span;
};
SpanReach span_reach(const Visibility& visibility, double span);

// The keys first .. last - 1 that one query may see, less those from self_first to self_last - 1.
struct KeyRange {
  std::ptrdiff_t first, last, self_first, self_last;
  bool empty() const { return first >= last; }
  std::ptrdiff_t count() const;
};
KeyRange key_range(const Visibility& visibility, std::ptrdiff_t query, const SpanReach& reach);

}  // namespace headspan
