// SPDX-License-Identifier: BSD-3-Clause
// The window of keys around a query on a grid of 1 to 3 axes, shifted at the borders so that it is always whole.
// Hassani et al., "Neighborhood Attention Transformer", 2023, and "Dilated Neighborhood Attention Transformer", 2022.
#include <algorithm>

#include "patterns/primitive.h"

namespace headspan {

namespace {

class Neighborhood : public Primitive {
 public:
  // axes, then shape, window and dilation of each axis
  explicit Neighborhood(const Numbers& numbers) {
    grid_.axes = static_cast<int>(numbers.at(0));
    for (int axis = 0; axis < grid_.axes; axis++) {
      grid_.shape[axis] = numbers.at(static_cast<std::size_t>(1 + axis));
      window_[axis] = numbers.at(static_cast<std::size_t>(1 + grid_.axes + axis));
      dilation_[axis] = numbers.at(static_cast<std::size_t>(1 + 2 * grid_.axes + axis));
      for (std::ptrdiff_t c = 0; c < grid_.shape[axis]; c++) windows_[axis].push_back(window(axis, c));
    }
  }

  Grouping grouping() const override {
    Grouping grouping;
    grouping.grid = grid_;
    std::copy_n(dilation_, kGridAxes, grouping.dilation);
    return grouping;
  }

  std::unique_ptr<GroupMask> of(const Lanes& lanes, std::ptrdiff_t keys) const override {
    auto const windows = std::make_shared<GridBoxes>(grid_, lanes, [this](int, int axis, std::ptrdiff_t at) {
      return windows_[axis][static_cast<std::size_t>(at)];
    });
    return group_mask([windows, keys](Intervals& out) { windows->intervals(keys, out); },
                      [windows](const Tile& tile, std::uint64_t* masks) { windows->fill(tile, masks); });
  }

 private:
  GridRange window(int axis, std::ptrdiff_t coordinate) const {
    std::ptrdiff_t const step = dilation_[axis], rest = coordinate % step,
                         length = (grid_.shape[axis] - rest + step - 1) / step;
    std::ptrdiff_t const start =
        std::clamp<std::ptrdiff_t>(coordinate / step - window_[axis] / 2, 0, length - window_[axis]);
    return {rest + step * start, rest + step * (start + window_[axis] - 1) + 1, step};
  }

  Grid grid_;
  std::ptrdiff_t window_[kGridAxes] = {1, 1, 1}, dilation_[kGridAxes] = {1, 1, 1};
  std::vector<GridRange> windows_[kGridAxes];  // of every coordinate
};

}  // namespace

std::unique_ptr<Primitive> make_neighborhood(const Numbers& numbers) { return std::make_unique<Neighborhood>(numbers); }

}  // namespace headspan
