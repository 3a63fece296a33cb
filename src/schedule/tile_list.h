// SPDX-License-Identifier: BSD-3-Clause
// The tiles of a group of queries: what it can reach, and of that what its pattern allows.
#pragma once

#include <algorithm>
#include <optional>

#include "stage.h"
#include "visibility.h"

namespace headspan {

// Room for the tiles of one step.
struct TileBatch {
  Tile tiles[kBatchTiles];
  std::uint64_t words[kBatchTiles][kTileKeys];
  std::int64_t indices[kBatchTiles][kTileKeys];
};

// What decides about the pairs of a group besides its reach.
struct Choice {
  const Pass* pass = nullptr;                            // null: no pattern
  const std::vector<std::int64_t>* free_keys = nullptr;  // global tokens, whose pairs no span limits
  const bool* removed = nullptr;                         // keys with a bias of -infinity
  int tiles_at_once = kBatchTiles;                       // in one step
  std::ptrdiff_t keys = 0;
  const Grid* grid = nullptr;                  // on which spans are measured; null: along the tokens
  const std::ptrdiff_t* grid_reach = nullptr;  // of each lane; null: unlimited
};

// The group's reach with its spans, and without, for pairs that no span limits, where there are any.
struct Reach {
  GroupKeys near;
  std::optional<GroupKeys> free;

  // Leaves to others what is not number `share` of `shares` parts of the keys, in whole tiles.
  void clip_to_share(std::ptrdiff_t share, std::ptrdiff_t shares) {
    GroupKeys const& widest = free ? *free : near;
    std::ptrdiff_t const first = widest.first(), count = std::max<std::ptrdiff_t>(widest.last() - first, 0);
    auto const cut = [&](std::ptrdiff_t at) { return first + count * at / shares / kTileKeys * kTileKeys; };
    std::ptrdiff_t const from = cut(share), to = share + 1 < shares ? cut(share + 1) : first + count;
    near.clip(from, to);
    if (free) free->clip(from, to);
  }
};

class TileList {
 public:
  TileList(const Reach& reach, const Lanes& lanes, const Choice& choice);
  int next(TileBatch& batch);  // how many tiles, `at_once` unless these were the last
  int at_once() const { return choice_.tiles_at_once; }

  // A tile over chosen keys (in any order, repeated or not), each seen by the lanes that may see it; none if no lane
  // sees any. Pairs that no span limits are in a tile of their own. To be asked before `next`.
  std::optional<Tile> gathered(const std::int64_t* indices, int count, bool free, std::uint64_t* words) const;

 private:
  Tile next_of_band();
  Tile next_of_pattern(std::int64_t* indices);
  bool meets(const Interval& keys, bool free) const;  // whether some lane may see one of them
  bool see(Tile& tile, bool free, std::uint64_t* words) const;
  std::size_t free_keys() const;
  void find_runs();

  const GroupKeys& near_;
  const GroupKeys& free_;
  const Lanes lanes_;
  const Choice choice_;
  // of a band: where to go on; the tiles from full_first_ to full_last_ are whole and seen by all lanes
  std::ptrdiff_t at_, full_first_, full_last_;
  // of a pattern
  std::size_t free_at_ = 0, run_ = 0;
  std::vector<KeyRun> runs_;
};

}  // namespace headspan
