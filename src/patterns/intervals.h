// SPDX-License-Identifier: BSD-3-Clause
// Sets of keys as intervals.
#pragma once

#include <cstddef>
#include <vector>

#include "base/tile.h"

namespace headspan {

// The keys first .. last - 1.
struct Interval {
  std::ptrdiff_t first, last;
};
using Intervals = std::vector<Interval>;  // ascending and separate

Interval key_interval(const Tile& tile);  // from the least key to past the largest

// Appends an interval and joins it with an adjacent one; clipped to 0 .. keys - 1. Call in ascending order.
void append(Intervals& out, std::ptrdiff_t first, std::ptrdiff_t last, std::ptrdiff_t keys);
void unite(const Intervals& a, const Intervals& b, Intervals& out);
void intersect(const Intervals& a, const Intervals& b, Intervals& out);

}  // namespace headspan
