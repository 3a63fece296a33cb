// SPDX-License-Identifier: BSD-3-Clause
// The common terms of patterns, schedule and kernel: a group of queries, one per lane, meets keys tile by tile.
//
//                  lanes: at most 64 queries of a group
//                  0 1 2 3 ...            63
//          key 0   1 1 1 1 1 1 1 1 1 1 1 1 1     a bit: may this lane see this key?
//          key 1   . 1 1 1 1 1 1 1 1 1 1 1 1     a row of bits is the key's lane mask
//          ...
//          key 63  . . . . . . . . . . . . 1     at most 64 keys of a tile
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "attributes.h"

namespace headspan {

constexpr int kLanes = 64;       // maximum queries per group: one per lane
constexpr int kTileKeys = 64;    // maximum keys per tile
constexpr int kKeyGroup = 4;     // keys of a tile that are computed, or skipped, together
constexpr int kBatchTiles = 64;  // maximum tiles per step; also the block in which float32 sums are carried

constexpr int kAxes = 3;  // maximum axes of a position

// Keys that some query of the group may see.
struct Tile {
  ptrdiff_t first, step;       // the keys first, first + step, first + 2 * step ..., or,
  const int64_t* indices;      // when not null, the keys at these indices
  const uint64_t* lane_masks;  // for each key the set of lanes that may see it; null: every lane sees every key
  int count;
  bool soft;  // a pair may have x >= z: the mask is below 1 and the span has a gradient
};

HEADSPAN_INLINE ptrdiff_t key_index(const Tile& tile, int r) {
  return tile.indices ? (ptrdiff_t)tile.indices[r] : tile.first + r * tile.step;
}

}  // namespace headspan
