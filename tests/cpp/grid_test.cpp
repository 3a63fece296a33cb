// SPDX-License-Identifier: BSD-3-Clause
#include "patterns/grid.h"

#include <doctest.h>

#include "random_cases.h"

namespace headspan {

namespace {

Grid some_grid(Random& random) {
  Grid grid;
  grid.axes = static_cast<int>(random.between(1, kGridAxes));
  std::ptrdiff_t const longest = grid.axes == 1 ? 200 : grid.axes == 2 ? 16 : 7;
  for (int axis = 0; axis < grid.axes; axis++) grid.shape[axis] = random.between(1, longest);
  return grid;
}

}  // namespace

TEST_CASE("coordinates count through a grid, the last axis fastest") {
  Grid const grid{3, {2, 3, 4}};
  std::ptrdiff_t index = 0;
  for (std::ptrdiff_t plane = 0; plane < 2; plane++)
    for (std::ptrdiff_t row = 0; row < 3; row++)
      for (std::ptrdiff_t column = 0; column < 4; column++) {
        std::ptrdiff_t at[kGridAxes];
        grid.coordinates(index++, at);
        CHECK(at[0] == plane);
        CHECK(at[1] == row);
        CHECK(at[2] == column);
      }
  CHECK(grid.tokens() == index);
}

TEST_CASE("a lane sees the keys whose coordinates are in its ranges on every axis") {
  for (int seed = 0; seed < 1000; seed++) {
    CAPTURE(seed);
    Random random(seed);
    Grid const grid = some_grid(random);
    std::ptrdiff_t const keys = grid.tokens();
    auto const index = some_lanes(random, -5, keys);  // those before the grid see nothing
    Lanes const lanes(index.data(), static_cast<int>(index.size()));
    GridRange ranges[kLanes][kGridAxes];
    for (auto& of_lane : ranges)
      for (int axis = 0; axis < grid.axes; axis++) {
        std::ptrdiff_t const first = random.between(0, grid.shape[axis]);
        of_lane[axis] = {first, random.between(first, grid.shape[axis]), random.between(1, 3)};
      }
    GridBoxes const boxes(grid, lanes, [&](int lane, int axis, std::ptrdiff_t at) {
      std::ptrdiff_t its[kGridAxes];
      grid.coordinates(index[static_cast<std::size_t>(lane)], its);
      CHECK(at == its[axis]);
      return ranges[lane][axis];
    });
    auto const sees = [&](int lane, std::ptrdiff_t key) {
      std::ptrdiff_t at[kGridAxes];
      grid.coordinates(key, at);
      bool inside = index[static_cast<std::size_t>(lane)] >= 0;
      for (int axis = 0; axis < grid.axes; axis++) {
        GridRange const& range = ranges[lane][axis];
        inside =
            inside && at[axis] >= range.first && at[axis] < range.last && (at[axis] - range.first) % range.step == 0;
      }
      return inside;
    };
    SomeTile const tile(random, keys);
    std::uint64_t masks[kTileKeys];
    boxes.fill(tile, masks);
    CHECK(are_masks_of(masks, tile, lanes.count, sees));

    Intervals intervals;
    boxes.intervals(keys, intervals);
    std::vector<char> held(static_cast<std::size_t>(keys));
    std::ptrdiff_t end = -1;
    for (Interval const& interval : intervals) {
      CHECK(interval.first > end);
      CHECK(interval.last <= keys);
      end = interval.last;
      for (std::ptrdiff_t key = interval.first; key < interval.last; key++) held[static_cast<std::size_t>(key)] = true;
    }
    bool all_held = true;
    for (std::ptrdiff_t key = 0; key < keys; key++)
      for (int lane = 0; lane < lanes.count; lane++)
        all_held = all_held && (held[static_cast<std::size_t>(key)] || !sees(lane, key));
    CHECK(all_held);
  }
}

}  // namespace headspan
