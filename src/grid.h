// SPDX-License-Identifier: BSD-3-Clause
// Boxes on a grid of tokens: for each lane a range of coordinates on every axis.
#pragma once

#include <vector>

#include "pattern.h"

namespace headspan {

// Coordinates of tokens that mostly follow each other.
class GridWalk {
 public:
  explicit GridWalk(const Grid& grid) : grid_(grid) {}
  const std::ptrdiff_t* to(std::ptrdiff_t index) {
    int const last = grid_.axes - 1;
    if (index == index_ + 1 && at_[last] + 1 < grid_.shape[last])
      at_[last]++;
    else if (index != index_)
      grid_.coordinates(index, at_);
    index_ = index;
    return at_;
  }

 private:
  Grid const& grid_;
  std::ptrdiff_t index_ = -2, at_[kGridAxes];
};

// On one axis a lane sees the coordinates first, first + step, ... below last.
struct GridRange {
  std::ptrdiff_t first, last, step;
};

class GridBoxes {
 public:
  // range_of(lane, axis, coordinate of the lane); a lane before the grid sees nothing.
  template <class RangeOf>
  GridBoxes(const Grid& grid, const Lanes& lanes, RangeOf range_of) : grid_(grid), lanes_(lanes.count) {
    GridWalk walk(grid);
    for (int lane = 0; lane < lanes_; lane++) {
      inside_[lane] = lanes.index[lane] >= 0;
      const std::ptrdiff_t* const at = walk.to(inside_[lane] ? lanes.index[lane] : 0);
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
