// SPDX-License-Identifier: BSD-3-Clause
// The window of keys around a query on a grid of 1 to 3 axes, shifted at the borders so that it is always complete; on
// a causal axis it ends at the query instead. Hassani et al., "Neighborhood Attention Transformer", 2023, "Dilated
// Neighborhood Attention Transformer", 2022, and "Generalized Neighborhood Attention", 2025, whose stride lets
// neighbouring queries share the window of one of them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/tile.h"
#include "patterns/grid.h"
#include "patterns/intervals.h"
#include "patterns/lane_set.h"
#include "patterns/primitive.h"

namespace headspan {

namespace {

class Neighborhood : public Primitive {
 public:
  // axes, first token of the grid, then shape, window, dilation, whether it is causal and stride of each axis
  explicit Neighborhood(const Numbers& numbers) {
    grid_.axes = static_cast<int>(numbers.at(0));
    grid_.first = numbers.at(1);
    for (int axis = 0; axis < grid_.axes; axis++) {
      auto const number = [&](int which) {
        return numbers.at(static_cast<std::size_t>(2 + which * grid_.axes + axis));
      };
      grid_.shape[axis] = number(0);
      window_[axis] = number(1);
      dilation_[axis] = number(2);
      causal_[axis] = number(3) != 0;
      stride_[axis] = number(4);
      for (std::ptrdiff_t c = 0; c < grid_.shape[axis]; c++) windows_[axis].push_back(window(axis, c));
    }
  }

  Grouping grouping() const override {
    Grouping grouping;
    grouping.grid = grid_;
    std::copy_n(dilation_, kGridAxes, grouping.dilation);
    std::copy_n(stride_, kGridAxes, grouping.sharing);
    return grouping;
  }

  std::unique_ptr<GroupMask> of(const Lanes& lanes, std::ptrdiff_t keys) const override {
    auto const windows = std::make_shared<GridBoxes>(grid_, lanes, [this](int, int axis, std::ptrdiff_t at) {
      return at < 0 ? GridRange{0, 0, 1} : windows_[axis][static_cast<std::size_t>(at)];
    });
    return group_mask([windows, keys](Intervals& out) { windows->intervals(keys, out); },
                      [windows](const Tile& tile, std::uint64_t* masks) { windows->fill(tile, masks); });
  }

 private:
  GridRange window(int axis, std::ptrdiff_t coordinate) const {
    std::ptrdiff_t const step = dilation_[axis], rest = coordinate % step, place = coordinate / step;
    std::ptrdiff_t const length = (grid_.shape[axis] - rest + step - 1) / step;
    // One of `stride` queries leads: the middle one, on a causal axis the last. The last group may be smaller.
    std::ptrdiff_t const stride = stride_[axis], first = place / stride * stride;
    std::ptrdiff_t const leader = std::min(first + (causal_[axis] ? stride - 1 : stride / 2), length - 1);
    if (causal_[axis])
      return {rest + step * std::max<std::ptrdiff_t>(leader - window_[axis] + 1, 0), coordinate + 1, step};
    std::ptrdiff_t const start = std::clamp<std::ptrdiff_t>(leader - window_[axis] / 2, 0, length - window_[axis]);
    return {rest + step * start, rest + step * (start + window_[axis] - 1) + 1, step};
  }

  Grid grid_;
  std::ptrdiff_t window_[kGridAxes] = {1, 1, 1}, dilation_[kGridAxes] = {1, 1, 1}, stride_[kGridAxes] = {1, 1, 1};
  bool causal_[kGridAxes] = {false, false, false};
  std::vector<GridRange> windows_[kGridAxes];  // of every coordinate
};

}  // namespace

std::unique_ptr<Primitive> make_neighborhood(const Numbers& numbers) { return std::make_unique<Neighborhood>(numbers); }

}  // namespace headspan
