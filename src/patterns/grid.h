// SPDX-License-Identifier: BSD-3-Clause
// Boxes on a grid of tokens: for each lane a range of coordinates on every axis.
#pragma once

#include <vector>

#include "primitive.h"

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
  GridBoxes(const Grid& grid, const Lanes& lanes, RangeOf range_of) : grid_(grid) {
    GridWalk walk(grid);
    GridRange ranges[kGridAxes][kLanes];
    for (int lane = 0; lane < lanes.count; lane++) {
      bool const inside = lanes.index[lane] >= 0;
      const std::ptrdiff_t* const at = walk.to(inside ? lanes.index[lane] : 0);
      for (int axis = 0; axis < grid.axes; axis++)
        ranges[axis][lane] = inside ? range_of(lane, axis, at[axis]) : GridRange{0, 0, 1};
    }
    for (int axis = 0; axis < grid.axes; axis++) set_axis(axis, ranges[axis], lanes.count);
  }

  // As of a primitive.
  void intervals(std::ptrdiff_t keys, Intervals& out) const;
  void words(const Tile& tile, std::uint64_t* words) const;

 private:
  // The lanes that see each of the coordinates of an axis from `lowest` on.
  struct Axis {
    std::ptrdiff_t lowest = 0;
    std::vector<std::uint64_t> words;
    std::uint64_t word(std::ptrdiff_t coordinate) const {
      std::size_t const i = static_cast<std::size_t>(coordinate - lowest);  // large for what lies before
      return i < words.size() ? words[i] : 0;
    }
  };
  void set_axis(int axis, const GridRange* ranges, int lanes);
  Intervals coordinates(int axis) const;  // that some lane sees

  Grid grid_;
  Axis axis_[kGridAxes];
};

}  // namespace headspan
