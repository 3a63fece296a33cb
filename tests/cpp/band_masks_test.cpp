// SPDX-License-Identifier: BSD-3-Clause
#include "patterns/band_masks.h"

#include <doctest.h>

#include <cstddef>
#include <cstdint>

#include "base/tile.h"
#include "patterns/intervals.h"
#include "random_cases.h"

namespace headspan {

TEST_CASE("the rank of a key is the number of keys before it") {
  for (int seed = 0; seed < 300; seed++) {
    CAPTURE(seed);
    Random random(seed);
    SomeTile const tile(random, 150);
    if (!ascends(tile)) continue;
    for (std::ptrdiff_t key = -3; key < 155; key++) {
      int before = 0;
      for (int r = 0; r < tile->count; r++) before += key_index(tile, r) < key;
      CHECK(rank_in_tile(tile, key) == before);
    }
  }
}

TEST_CASE("a band is what neighbouring lanes see behind and ahead of themselves") {
  for (int seed = 0; seed < 1000; seed++) {
    CAPTURE(seed);
    Random random(seed);
    SomeTile const tile(random, 200);
    int const lanes = static_cast<int>(random.one_in(2) ? kLanes : random.between(1, kLanes));
    std::ptrdiff_t const index = random.between(-100, 250), far = PTRDIFF_MAX / 4,
                         back = random.one_of({random.between(0, 10), random.between(0, 200), far}),
                         ahead = random.one_of({std::ptrdiff_t(-1), std::ptrdiff_t(0), random.between(0, 200), far});
    std::uint64_t masks[kTileKeys];
    fill_band(tile, index, back, ahead, lanes, masks);
    CHECK(are_masks_of(masks, tile, lanes, [=](int lane, std::ptrdiff_t key) {
      return key >= index + lane - back && key <= index + lane + ahead;
    }));
  }
}

TEST_CASE("ranges are what each lane sees for itself, for keys in any order") {
  for (int seed = 0; seed < 1000; seed++) {
    CAPTURE(seed);
    Random random(seed);
    SomeTile const tile(random, 200);
    int const lanes = static_cast<int>(random.between(1, kLanes));
    Intervals ranges;
    for (int lane = 0; lane < lanes; lane++) {
      std::ptrdiff_t const first = random.between(-20, 220);
      ranges.push_back({first, first + random.one_of({random.between(-5, 5), random.between(0, 300)})});
    }
    auto const range = [&](int lane) { return ranges[static_cast<std::size_t>(lane)]; };
    std::uint64_t masks[kTileKeys];
    fill_ranges(tile, lanes, masks, range);
    CHECK(are_masks_of(masks, tile, lanes, [&](int lane, std::ptrdiff_t key) {
      return key >= range(lane).first && key < range(lane).last;
    }));
  }
}

}  // namespace headspan
