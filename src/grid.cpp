// SPDX-License-Identifier: BSD-3-Clause
#include "grid.h"

#include <algorithm>

namespace headspan {

std::vector<std::ptrdiff_t> GridBoxes::coordinates(int axis) const {
  std::ptrdiff_t lowest = PTRDIFF_MAX, highest = -1;
  for (int lane = 0; lane < lanes_; lane++) {
    if (!inside_[lane]) continue;
    lowest = std::min(lowest, range_[axis][lane].first);
    highest = std::max(highest, range_[axis][lane].last - 1);
  }
  std::vector<std::ptrdiff_t> seen;
  if (lowest > highest) return seen;
  std::vector<std::uint64_t> words;
  axis_words(axis, lowest, highest, words);
  for (std::ptrdiff_t c = lowest; c <= highest; c++)
    if (words[static_cast<std::size_t>(c - lowest)]) seen.push_back(c);
  return seen;
}

// The lanes that see each of the coordinates lowest .. highest of an axis.
void GridBoxes::axis_words(int axis, std::ptrdiff_t lowest, std::ptrdiff_t highest,
                           std::vector<std::uint64_t>& words) const {
  words.assign(static_cast<std::size_t>(highest - lowest + 2), 0);
  std::uint64_t stepping = 0;
  for (int lane = 0; lane < lanes_; lane++) {
    GridRange const& range = range_[axis][lane];
    std::ptrdiff_t const first = std::max(range.first, lowest), last = std::min(range.last, highest + 1);
    if (!inside_[lane] || first >= last) continue;
    words[static_cast<std::size_t>(first - lowest)] ^= std::uint64_t(1) << lane;  // toggled where its range starts
    words[static_cast<std::size_t>(last - lowest)] ^= std::uint64_t(1) << lane;   // and ends
    stepping |= static_cast<std::uint64_t>(range.step > 1) << lane;
  }
  for (std::size_t c = 1; c < words.size(); c++) words[c] ^= words[c - 1];
  for (std::ptrdiff_t c = lowest; c <= highest && stepping; c++)
    for (std::uint64_t left = stepping; left; left &= left - 1) {
      int const lane = __builtin_ctzll(left);
      if ((c - range_[axis][lane].first) % range_[axis][lane].step)
        words[static_cast<std::size_t>(c - lowest)] &= ~(std::uint64_t(1) << lane);
    }
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
  std::ptrdiff_t at[kTileKeys][kGridAxes], lowest[kGridAxes], highest[kGridAxes];
  std::fill_n(lowest, kGridAxes, PTRDIFF_MAX);
  std::fill_n(highest, kGridAxes, 0);
  GridWalk walk(grid_);
  for (int r = 0; r < tile.count; r++) {
    const std::ptrdiff_t* const here = walk.to(key_index(tile, r));
    for (int axis = 0; axis < grid_.axes; axis++) {
      at[r][axis] = here[axis];
      lowest[axis] = std::min(lowest[axis], at[r][axis]);
      highest[axis] = std::max(highest[axis], at[r][axis]);
    }
  }
  std::fill_n(words, tile.count, ~std::uint64_t(0));
  std::vector<std::uint64_t> of_axis;
  for (int axis = 0; axis < grid_.axes; axis++) {
    axis_words(axis, lowest[axis], highest[axis], of_axis);
    for (int r = 0; r < tile.count; r++) words[r] &= of_axis[static_cast<std::size_t>(at[r][axis] - lowest[axis])];
  }
}

}  // namespace headspan
