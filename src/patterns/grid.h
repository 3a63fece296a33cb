// SPDX-License-Identifier: BSD-3-Clause
// Tokens on a grid, and boxes in it: for each lane a range of coordinates on every axis.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/tile.h"
#include "intervals.h"
#include "lane_set.h"

namespace headspan {

constexpr int kGridAxes = 3;
static_assert(kGridAxes <= kAxes, "a position has as many axes");

// Tokens laid out in rows, planes or a volume, the last axis fastest. No axes: a plain sequence. There may be other
// tokens before and after the grid, which have no coordinates.
struct Grid {
  int axes = 0;
  std::ptrdiff_t shape[kGridAxes] = {1, 1, 1};
  std::ptrdiff_t first = 0;  // first token of the grid

  std::ptrdiff_t tokens() const { return shape[0] * shape[1] * shape[2]; }
  bool holds(std::ptrdiff_t index) const { return index >= first && index - first < tokens(); }
  void coordinates(std::ptrdiff_t index, std::ptrdiff_t* at) const {
    index -= first;
    for (int axis = axes - 1; axis >= 0; axis--) {
      at[axis] = index % shape[axis];
      index /= shape[axis];
    }
  }
  bool operator==(const Grid& other) const {
    return axes == other.axes && first == other.first && std::equal(shape, shape + kGridAxes, other.shape);
  }
};

// On one axis a lane sees the coordinates first, first + step, ... below last.
struct GridRange {
  std::ptrdiff_t first, last, step;
};

class GridBoxes {
 public:
  // range_of(lane, axis, coordinate of the lane, or -1 outside the grid).
  template <class RangeOf>
  GridBoxes(const Grid& grid, const Lanes& lanes, RangeOf range_of) : grid_(grid) {
    GridRange ranges[kGridAxes][kLanes];
    for (int lane = 0; lane < lanes.count; lane++) {
      std::ptrdiff_t at[kGridAxes] = {-1, -1, -1};
      if (grid.holds(lanes.index[lane])) grid.coordinates(lanes.index[lane], at);
      for (int axis = 0; axis < grid.axes; axis++) ranges[axis][lane] = range_of(lane, axis, at[axis]);
    }
    for (int axis = 0; axis < grid.axes; axis++) set_axis(axis, ranges[axis], lanes.count);
  }

  // As in GroupMask.
  void intervals(std::ptrdiff_t keys, Intervals& out) const;
  void fill(const Tile& tile, std::uint64_t* masks) const;

 private:
  // The lanes that see each of the coordinates of an axis from `lowest` on.
  struct Axis {
    std::ptrdiff_t lowest = 0;
    std::vector<std::uint64_t> masks;
    std::uint64_t mask(std::ptrdiff_t coordinate) const {
      std::size_t const i = static_cast<std::size_t>(coordinate - lowest);  // large for coordinates before `lowest`
      return i < masks.size() ? masks[i] : 0;
    }
  };
  void set_axis(int axis, const GridRange* ranges, int lanes);
  Intervals coordinates(int axis) const;  // that some lane sees

  Grid grid_;
  Axis axis_[kGridAxes];
};

}  // namespace headspan
