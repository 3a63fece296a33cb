// SPDX-License-Identifier: BSD-3-Clause
#include "grid.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/tile.h"
#include "intervals.h"

namespace headspan {

void GridBoxes::set_axis(int axis, const GridRange* ranges, int lanes) {
  std::ptrdiff_t lowest = PTRDIFF_MAX, end = 0;
  for (int lane = 0; lane < lanes; lane++) {
    if (ranges[lane].first >= ranges[lane].last) continue;
    lowest = std::min(lowest, ranges[lane].first);
    end = std::max(end, ranges[lane].last);
  }
  if (lowest >= end) return;
  std::vector<std::uint64_t>& masks = axis_[axis].masks;
  axis_[axis].lowest = lowest;
  masks.assign(static_cast<std::size_t>(end - lowest + 1), 0);
  std::uint64_t stepping = 0;
  for (int lane = 0; lane < lanes; lane++) {
    if (ranges[lane].first >= ranges[lane].last) continue;
    std::uint64_t const bit = std::uint64_t(1) << lane;
    masks[static_cast<std::size_t>(ranges[lane].first - lowest)] ^= bit;  // toggled where its range starts
    masks[static_cast<std::size_t>(ranges[lane].last - lowest)] ^= bit;   // and where it ends
    if (ranges[lane].step > 1) stepping |= bit;
  }
  for (std::size_t c = 1; c < masks.size(); c++) masks[c] ^= masks[c - 1];
  for (std::ptrdiff_t c = lowest; c < end && stepping; c++)
    for (std::uint64_t left = stepping; left; left &= left - 1) {
      int const lane = __builtin_ctzll(left);
      if ((c - ranges[lane].first) % ranges[lane].step)
        masks[static_cast<std::size_t>(c - lowest)] &= ~(std::uint64_t(1) << lane);
    }
}

Intervals GridBoxes::coordinates(int axis) const {
  Intervals seen;
  std::ptrdiff_t c = axis_[axis].lowest;
  for (std::uint64_t mask : axis_[axis].masks) {
    if (mask) append(seen, c, c + 1, PTRDIFF_MAX);
    c++;
  }
  return seen;
}

void GridBoxes::intervals(std::ptrdiff_t keys, Intervals& out) const {
  Intervals seen[kGridAxes] = {{{0, 1}}, {{0, 1}}, {{0, 1}}};
  for (int axis = 0; axis < grid_.axes; axis++) seen[kGridAxes - grid_.axes + axis] = coordinates(axis);
  auto const for_each = [](const Intervals& all, auto visit) {
    for (Interval const& some : all)
      for (std::ptrdiff_t c = some.first; c < some.last; c++) visit(c);
  };
  std::ptrdiff_t const rows = grid_.axes > 1 ? grid_.shape[grid_.axes - 2] : 1, length = grid_.shape[grid_.axes - 1];
  for_each(seen[0], [&](std::ptrdiff_t plane) {
    for_each(seen[1], [&](std::ptrdiff_t row) {
      std::ptrdiff_t const start = grid_.first + (plane * rows + row) * length;
      for (Interval const& some : seen[2]) append(out, start + some.first, start + some.last, keys);
    });
  });
}

// Key by key along a row, the masks of the other axes stay the same.
void GridBoxes::fill(const Tile& tile, std::uint64_t* masks) const {
  int const along = grid_.axes - 1;
  for (int r = 0; r < tile.count;) {
    std::ptrdiff_t at[kGridAxes], key = key_index(tile, r);
    if (!grid_.holds(key)) {
      masks[r++] = 0;
      continue;
    }
    grid_.coordinates(key, at);
    std::uint64_t row = ~std::uint64_t(0);
    for (int axis = 0; axis < along; axis++) row &= axis_[axis].mask(at[axis]);
    do {
      masks[r++] = row & axis_[along].mask(at[along]++);
      key++;
    } while (r < tile.count && key_index(tile, r) == key && at[along] < grid_.shape[along]);
  }
}

}  // namespace headspan
