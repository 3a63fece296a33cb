// SPDX-License-Identifier: BSD-3-Clause
// Masks of a tile from one range of keys for each lane.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/tile.h"

namespace headspan {

// The number of keys of a tile, which are ascending, before `key`.
inline int rank_in_tile(const Tile& tile, std::ptrdiff_t key) {
  if (tile.indices)
    return static_cast<int>(std::lower_bound(tile.indices, tile.indices + tile.count, key) - tile.indices);
  std::ptrdiff_t const before = key - tile.first;
  if (before <= 0) return 0;
  std::ptrdiff_t const rank = tile.step == 1 ? before : (before + tile.step - 1) / tile.step;
  return static_cast<int>(std::min<std::ptrdiff_t>(rank, tile.count));
}

// masks[r]: the lanes at positions `index`, index + 1, ... that see key r, if each sees keys up to `back` back and
// `ahead` ahead.
inline void fill_band(const Tile& tile, std::ptrdiff_t index, std::ptrdiff_t back, std::ptrdiff_t ahead, int lanes,
                      std::uint64_t* masks) {
  constexpr std::uint64_t every = ~std::uint64_t(0);
  auto const lanes_from = [](std::ptrdiff_t lane) { return lane <= 0 ? every : lane < kLanes ? every << lane : 0; };
  auto const lanes_to = [](std::ptrdiff_t lane) {
    return lane < 0 ? 0 : lane < kLanes ? every >> (kLanes - 1 - lane) : every;
  };
  std::uint64_t const all = lanes_to(lanes - 1);
  if (tile.indices || tile.step != 1) {
    for (int r = 0; r < tile.count; r++) {
      std::ptrdiff_t const lane = key_index(tile, r) - index;
      masks[r] = lanes_from(lane - ahead) & lanes_to(lane + back) & all;
    }
    return;
  }
  // From one key to the next both ends move by one lane. Most tiles contain one end of the band, or none: the keys from
  // `left` on are out of reach of some lanes, and those before `come` are not in reach of all lanes yet.
  std::ptrdiff_t const first = tile.first - index - ahead, last = tile.first - index + back,
                       left = std::max<std::ptrdiff_t>(1 - first, 0),
                       come = std::min<std::ptrdiff_t>(lanes - 1 - last, tile.count);
  std::fill_n(masks, tile.count, all);
  std::uint64_t from = lanes_from(first + left), to = lanes_to(last + come - 1);
  for (std::ptrdiff_t r = left; r < tile.count; r++, from <<= 1) masks[r] &= from;
  for (std::ptrdiff_t r = come - 1; r >= 0; r--, to >>= 1) masks[r] &= to;
}

inline bool ascends(const Tile& tile) {
  return !tile.indices || std::is_sorted(tile.indices, tile.indices + tile.count);
}

// masks[r]: the lanes for which contains(lane, key) is true, key by key, for keys in any order.
template <class Contains>
void fill_by_pair(const Tile& tile, int lanes, std::uint64_t* masks, Contains contains) {
  for (int r = 0; r < tile.count; r++) {
    masks[r] = 0;
    for (int lane = 0; lane < lanes; lane++)
      masks[r] |= static_cast<std::uint64_t>(contains(lane, static_cast<std::ptrdiff_t>(key_index(tile, r)))) << lane;
  }
}

// masks[r]: the lanes whose range contains key r; range(lane) has first and last. The bit of a lane is toggled where
// its range starts and where it ends, and running over the keys then gives every mask.
template <class Range>
void fill_ranges(const Tile& tile, int lanes, std::uint64_t* masks, Range range) {
  if (!ascends(tile))
    return fill_by_pair(tile, lanes, masks, [&](int lane, std::ptrdiff_t key) {
      auto const r = range(lane);
      return key >= r.first && key < r.last;
    });
  std::ptrdiff_t const first = key_index(tile, 0), last = key_index(tile, tile.count - 1);
  std::uint64_t toggle[kTileKeys + 1] = {}, mask = 0;
  for (int lane = 0; lane < lanes; lane++) {
    auto const& r = range(lane);
    std::uint64_t const bit = std::uint64_t(1) << lane;
    if (r.first <= first && r.last > last) {  // most lanes; toggles of one key would depend on each other
      mask |= bit;
    } else if (r.first < r.last && r.first <= last && r.last > first) {
      toggle[rank_in_tile(tile, r.first)] ^= bit;
      if (r.last <= last) toggle[rank_in_tile(tile, r.last)] ^= bit;
    }
  }
  for (int r = 0; r < tile.count; r++) masks[r] = mask ^= toggle[r];
}

}  // namespace headspan
