// SPDX-License-Identifier: BSD-3-Clause
#include "grid.h"

#include <algorithm>

namespace headspan {

void GridBoxes::set_axis(int axis, const GridRange* ranges, int lanes) {
  std::ptrdiff_t lowest = PTRDIFF_MAX, end = 0;
  for (int lane = 0; lane < lanes; lane++) {
    if (ranges[lane].first >= ranges[lane].last) continue;
    lowest = std::min(lowest, ranges[lane].first);
    end = std::max(end, ranges[lane].last);
  }
  if (lowest >= end) return;
  std::vector<std::uint64_t>& words = axis_[axis].words;
  axis_[axis].lowest = lowest;
  words.assign(static_cast<std::size_t>(end - lowest + 1), 0);
  std::uint64_t stepping = 0;
  for (int lane = 0; lane < lanes; lane++) {
    if (ranges[lane].first >= ranges[lane].last) continue;
    std::uint64_t const bit = std::uint64_t(1) << lane;
    words[static_cast<std::size_t>(ranges[lane].first - lowest)] ^= bit;  // toggled where its range starts
    words[static_cast<std::size_t>(ranges[lane].last - lowest)] ^= bit;   // and where it ends
    if (ranges[lane].step > 1) stepping |= bit;
  }
  for (std::size_t c = 1; c < words.size(); c++) words[c] ^= words[c - 1];
  for (std::ptrdiff_t c = lowest; c < end && stepping; c++)
    for (std::uint64_t left = stepping; left; left &= left - 1) {
      int const lane = __builtin_ctzll(left);
      if ((c - ranges[lane].first) % ranges[lane].step)
        words[static_cast<std::size_t>(c - lowest)] &= ~(std::uint64_t(1) << lane);
    }
}

std::vector<std::ptrdiff_t> GridBoxes::coordinates(int axis) const {
  std::vector<std::ptrdiff_t> seen;
  for (std::size_t c = 0; c < axis_[axis].words.size(); c++)
    if (axis_[axis].words[c]) seen.push_back(axis_[axis].lowest + static_cast<std::ptrdiff_t>(c));
  return seen;
}

void GridBoxes::intervals(std::ptrdiff_t keys, Intervals& out) const {
  std::vector<std::ptrdiff_t> seen[kGridAxes] = {{0}, {0}, {0}};
  for (int axis = 0; axis < grid_.axes; axis++) seen[kGridAxes - grid_.axes + axis] = coordinates(axis);
  std::ptrdiff_t const rows = grid_.axes > 1 ? grid_.shape[grid_.axes - 2] : 1, length = grid_.shape[grid_.axes - 1];
  for (std::ptrdiff_t plane : seen[0])
    for (std::ptrdiff_t row : seen[1])
      for (std::ptrdiff_t c : seen[2]) {
        std::ptrdiff_t const key = (plane * rows + row) * length + c;
        append(out, key, key + 1, keys);
      }
}

void GridBoxes::words(const Tile& tile, std::uint64_t* words) const {
  GridWalk walk(grid_);
  for (int r = 0; r < tile.count; r++) {
    const std::ptrdiff_t* const at = walk.to(key_index(tile, r));
    words[r] = axis_[0].word(at[0]);
    for (int axis = 1; axis < grid_.axes; axis++) words[r] &= axis_[axis].word(at[axis]);
  }
}

}  // namespace headspan
