// SPDX-License-Identifier: BSD-3-Clause
#include "primitive.h"

#include <algorithm>

namespace headspan {

const std::vector<std::int64_t>& Primitive::global_tokens() const {
  static const std::vector<std::int64_t> none;
  return none;
}

bool Grid::operator==(const Grid& other) const {
  return axes == other.axes && std::equal(shape, shape + kGridAxes, other.shape);
}

std::uint64_t all(const Lanes& lanes) { return ~std::uint64_t(0) >> (kLanes - lanes.count); }

Interval index_range(const Lanes& lanes) {
  auto const ends = std::minmax_element(lanes.index, lanes.index + lanes.count);
  return {*ends.first, *ends.second};
}

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

// Both spare the division for what lies a stride after, or in the block of, the lane before.

LaneClasses residues(const Lanes& lanes, std::ptrdiff_t stride) {
  std::ptrdiff_t before = 0, residue = 0;
  return LaneClasses(lanes, [=](std::ptrdiff_t p) mutable {
    if (p - before != stride) residue = floor_mod(p, stride);
    before = p;
    return residue;
  });
}

LaneClasses block_rows(const Lanes& lanes, std::ptrdiff_t block_size) {
  std::ptrdiff_t block = 0, first = 0;
  return LaneClasses(lanes, [=](std::ptrdiff_t p) mutable {
    if (p < first || p - first >= block_size) block = floor_div(p, block_size), first = block * block_size;
    return block;
  });
}

void LaneClasses::add(std::ptrdiff_t its_class, std::uint64_t word) {
  int i = count_;
  while (i > 0 && class_[i - 1] > its_class) i--;
  if (i == 0 || class_[i - 1] != its_class) {
    for (int j = count_; j > i; j--) class_[j] = class_[j - 1], word_[j] = word_[j - 1];
    class_[i] = its_class;
    word_[i] = 0;
    count_++;
    i++;
  }
  word_[i - 1] |= word;
}

std::uint64_t LaneClasses::word_of(std::ptrdiff_t wanted) const {
  const std::ptrdiff_t* const end = class_ + count_;
  const std::ptrdiff_t* const found = std::lower_bound(class_, end, wanted);
  return found != end && *found == wanted ? word_[found - class_] : 0;
}

}  // namespace headspan
