// SPDX-License-Identifier: BSD-3-Clause
#include "patterns/grid.h"

#include <doctest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/tile.h"
#include "patterns/intervals.h"
#include "patterns/lane_set.h"
#include "random_cases.h"

namespace headspan {

namespace {

Grid some_grid(Random& random) {
  Grid grid;
  grid.axes = static_cast<int>(random.between(1, kGridAxes));
  std::ptrdiff_t const longest = grid.axes == 1 ? 200 : grid.axes == 2 ? 16 : 7;
  for (int axis = 0; axis < grid.axes; axis++) grid.shape[axis] = random.between(1, longest);
  grid.first = random.one_in(2) ? 0 : random.between(1, 5);
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

TEST_CASE("a grid may begin after other tokens, and end before some") {
  Grid const grid{2, {3, 4, 1}, 5};
  CHECK(!grid.holds(4));
  CHECK(grid.holds(5));
  CHECK(grid.holds(16));
  CHECK(!grid.holds(17));
  std::ptrdiff_t at[kGridAxes];
  grid.coordinates(10, at);
  CHECK(at[0] == 1);
  CHECK(at[1] == 1);
}

TEST_CASE("a lane sees the keys whose coordinates are in its ranges on every axis") {
  for (int seed = 0; seed < 1000; seed++) {
    CAPTURE(seed);
    Random random(seed);
    Grid const grid = some_grid(random);
    std::ptrdiff_t const keys = grid.first + grid.tokens() + random.between(0, 5);
    auto const index = some_lanes(random, -5, keys);
    Lanes const lanes(index.data(), static_cast<int>(index.size()));
    GridRange ranges[kLanes][kGridAxes];
    for (auto& of_lane : ranges)
      for (int axis = 0; axis < grid.axes; axis++) {
        std::ptrdiff_t const first = random.between(0, grid.shape[axis]);
        of_lane[axis] = {first, random.between(first, grid.shape[axis]), random.between(1, 3)};
      }
    GridBoxes const boxes(grid, lanes, [&](int lane, int axis, std::ptrdiff_t at) {
      std::ptrdiff_t coordinates[kGridAxes] = {-1, -1, -1};
      if (grid.holds(index[static_cast<std::size_t>(lane)]))
        grid.coordinates(index[static_cast<std::size_t>(lane)], coordinates);
      CHECK(at == coordinates[axis]);
      return ranges[lane][axis];
    });
    auto const sees = [&](int lane, std::ptrdiff_t key) {
      std::ptrdiff_t at[kGridAxes];
      grid.coordinates(key, at);
      bool inside = grid.holds(key);
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
