// SPDX-License-Identifier: BSD-3-Clause
#include "intervals.h"

#include <stdint.h>

#include <algorithm>
#include <cstddef>

#include "base/tile.h"

namespace headspan {

Interval key_interval(const Tile& tile) {
  if (!tile.indices) return {tile.first, key_index(tile, tile.count - 1) + 1};
  auto const ends = std::minmax_element(tile.indices, tile.indices + tile.count);
  return {*ends.first, *ends.second + 1};
}

void append(Intervals& out, std::ptrdiff_t first, std::ptrdiff_t last, std::ptrdiff_t keys) {
  first = std::max<std::ptrdiff_t>(first, 0);
  last = std::min(last, keys);
  if (first >= last) return;
  if (!out.empty() && first <= out.back().last)
    out.back().last = std::max(out.back().last, last);
  else
    out.push_back({first, last});
}

void unite(const Intervals& a, const Intervals& b, Intervals& out) {
  out.clear();
  out.reserve(a.size() + b.size());
  for (std::size_t i = 0, j = 0; i < a.size() || j < b.size();) {
    bool const from_a = j == b.size() || (i < a.size() && a[i].first <= b[j].first);
    Interval const next = from_a ? a[i++] : b[j++];
    append(out, next.first, next.last, PTRDIFF_MAX);
  }
}

void intersect(const Intervals& a, const Intervals& b, Intervals& out) {
  out.clear();
  out.reserve(a.size() + b.size());
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    append(out, std::max(a[i].first, b[j].first), std::min(a[i].last, b[j].last), PTRDIFF_MAX);
    if (a[i].last < b[j].last)
      i++;
    else
      j++;
  }
}

}  // namespace headspan
