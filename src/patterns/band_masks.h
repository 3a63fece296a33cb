// SPDX-License-Identifier: BSD-3-Clause
// Words of a tile from one range of keys for each lane.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/tile.h"

namespace headspan {

// How many keys of a tile, which ascend, come before `key`.
inline int rank_in_tile(const Tile& tile, std::ptrdiff_t key) {
  if (tile.indices)
    return static_cast<int>(std::lower_bound(tile.indices, tile.indices + tile.count, key) - tile.indices);
  std::ptrdiff_t const before = key - tile.first;
  if (before <= 0) return 0;
  std::ptrdiff_t const rank = tile.step == 1 ? before : (before + tile.step - 1) / tile.step;
  return static_cast<int>(std::min<std::ptrdiff_t>(rank, tile.count));
}

// words[r]: of lanes that stand at `index`, index + 1, ... those that see the key r if each sees as far as `back`
// behind and `ahead` before itself.
inline void words_of_band(const Tile& tile, std::ptrdiff_t index, std::ptrdiff_t back, std::ptrdiff_t ahead, int lanes,
                          std::uint64_t* words) {
  constexpr std::uint64_t every = ~std::uint64_t(0);
  auto const lanes_from = [](std::ptrdiff_t lane) { return lane <= 0 ? every : lane < kLanes ? every << lane : 0; };
  auto const lanes_to = [](std::ptrdiff_t lane) {
    return lane < 0 ? 0 : lane < kLanes ? every >> (kLanes - 1 - lane) : every;
  };
  std::uint64_t const all = lanes_to(lanes - 1);
  if (tile.indices || tile.step != 1) {
    for (int r = 0; r < tile.count; r++) {
      std::ptrdiff_t const lane = key_index(tile, r) - index;
      words[r] = lanes_from(lane - ahead) & lanes_to(lane + back) & all;
    }
    return;
  }
  // From one key to the next both ends move on by a lane. Most tiles lie at one end of the band, or at none: the keys
  // from `left` on have left some lanes behind, and those before `come` have not come to all.
  std::ptrdiff_t const first = tile.first - index - ahead, last = tile.first - index + back,
                       left = std::max<std::ptrdiff_t>(1 - first, 0),
                       come = std::min<std::ptrdiff_t>(lanes - 1 - last, tile.count);
  std::fill_n(words, tile.count, all);
  std::uint64_t from = lanes_from(first + left), to = lanes_to(last + come - 1);
  for (std::ptrdiff_t r = left; r < tile.count; r++, from <<= 1) words[r] &= from;
  for (std::ptrdiff_t r = come - 1; r >= 0; r--, to >>= 1) words[r] &= to;
}

inline bool ascends(const Tile& tile) {
  return !tile.indices || std::is_sorted(tile.indices, tile.indices + tile.count);
}

// words[r]: the lanes for whom contains(lane, key), key by key; for keys in any order.
template <class Contains>
void words_by_key(const Tile& tile, int lanes, std::uint64_t* words, Contains contains) {
  for (int r = 0; r < tile.count; r++) {
    words[r] = 0;
    for (int lane = 0; lane < lanes; lane++)
      words[r] |= static_cast<std::uint64_t>(contains(lane, static_cast<std::ptrdiff_t>(key_index(tile, r)))) << lane;
  }
}

// words[r]: the lanes in whose range the key r lies; range(lane) has first and last. A lane's bit is toggled where its
// range starts and where it ends; running over the keys then gives every word.
template <class Range>
void words_of_ranges(const Tile& tile, int lanes, std::uint64_t* words, Range range) {
  if (!ascends(tile))
    return words_by_key(tile, lanes, words, [&](int lane, std::ptrdiff_t key) {
      auto const r = range(lane);
      return key >= r.first && key < r.last;
    });
  std::ptrdiff_t const first = key_index(tile, 0), last = key_index(tile, tile.count - 1);
  std::uint64_t toggle[kTileKeys + 1] = {}, word = 0;
  for (int lane = 0; lane < lanes; lane++) {
    auto const& r = range(lane);
    std::uint64_t const bit = std::uint64_t(1) << lane;
    if (r.first <= first && r.last > last) {  // most lanes; toggles of one key would wait for each other
      word |= bit;
    } else if (r.first < r.last && r.first <= last && r.last > first) {
      toggle[rank_in_tile(tile, r.first)] ^= bit;
      if (r.last <= last) toggle[rank_in_tile(tile, r.last)] ^= bit;
    }
  }
  for (int r = 0; r < tile.count; r++) words[r] = word ^= toggle[r];
}

}  // namespace headspan
