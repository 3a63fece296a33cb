// SPDX-License-Identifier: BSD-3-Clause
// Boxes on a grid of tokens: for each lane a range of coordinates on every axis.
#pragma once

#include <vector>

#include "pattern.h"

namespace headspan {

// On one axis a lane sees the coordinates first, first + step, ... below last.
struct GridRange {
  std::ptrdiff_t first, last, step;
};

class GridBoxes {
 public:
  // range_of(lane, axis, coordinate of the lane); a lane before the grid sees nothing.
  template <class RangeOf>
  GridBoxes(const Grid& grid, const Lanes& lanes, RangeOf range_of) : grid_(grid), lanes_(lanes.count) {
    for (int lane = 0; lane < lanes_; lane++) {
      std::ptrdiff_t at[kGridAxes];
      inside_[lane] = lanes.index[lane] >= 0;
      grid.coordinates(inside_[lane] ? lanes.index[lane] : 0, at);
      for (int axis = 0; axis < grid.axes; axis++) range_[axis][lane] = range_of(lane, axis, at[axis]);
    }
  }

  // As of a primitive.
  void intervals(std::ptrdiff_t keys, Intervals& out) const;
  void words(const Tile& tile, std::uint64_t* words) const;

 private:
  std::vector<std::ptrdiff_t> coordinates(int axis) const;  // that some lane sees, ascending
  void axis_words(int axis, std::ptrdiff_t lowest, std::ptrdiff_t highest, std::vector<std::uint64_t>& words) const;

  Grid grid_;
  int lanes_;
  bool inside_[kLanes];
  GridRange range_[kGridAxes][kLanes];
};

}  // namespace headspan
