// SPDX-License-Identifier: BSD-3-Clause
// The tiles of a group of queries: the keys in its reach that its pattern allows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/parallel.h"
#include "base/tile.h"
#include "group_key_range.h"
#include "patterns/grid.h"
#include "patterns/intervals.h"
#include "patterns/lane_set.h"
#include "stage.h"

namespace headspan {

// Room for the tiles of one step.
struct TileBatch {
  Tile tiles[kBatchTiles];
  std::uint64_t lane_masks[kBatchTiles][kTileKeys];
  std::int64_t indices[kBatchTiles][kTileKeys];
};

// The conditions on the pairs of a group besides its reach.
struct PairRules {
  const PatternStage* stage = nullptr;                     // null: no pattern
  const std::vector<std::int64_t>* exempt_keys = nullptr;  // global tokens, whose pairs no span limits
  const bool* removed = nullptr;                           // keys with a bias of -infinity
  int tiles_at_once = kBatchTiles;                         // per step
  std::ptrdiff_t keys = 0;
  const Grid* grid = nullptr;                  // on which spans are measured; null: along the tokens
  const std::ptrdiff_t* grid_reach = nullptr;  // of each lane; null: unlimited
};

// The reach of the group with spans and without, the latter for pairs that no span limits, if there are any.
struct VisibleKeys {
  GroupKeyRange in_span;
  std::optional<GroupKeyRange> span_exempt;

  // The keys that some lane may see: first() .. last() - 1.
  std::ptrdiff_t first() const { return widest().first(); }
  std::ptrdiff_t last() const { return widest().last(); }
  std::ptrdiff_t count() const { return std::max<std::ptrdiff_t>(last() - first(), 0); }
  bool empty() const { return count() == 0; }

  // Restricts the keys to part `split` of `splits`, in whole tiles.
  void clip_to_split(std::ptrdiff_t split, std::ptrdiff_t splits) {
    std::ptrdiff_t const from = first(), keys = count();
    auto const cut = [&](std::ptrdiff_t at) { return from + keys * at / splits / kTileKeys * kTileKeys; };
    clip(cut(split), split + 1 < splits ? cut(split + 1) : from + keys);
  }
  // Restricts the keys to first .. last - 1.
  void clip(std::ptrdiff_t first, std::ptrdiff_t last) {
    in_span.clip(first, last);
    if (span_exempt) span_exempt->clip(first, last);
  }

 private:
  GroupKeyRange const& widest() const { return span_exempt ? *span_exempt : in_span; }
};

class TileList {
 public:
  TileList(const VisibleKeys& keys, const Lanes& lanes, const PairRules& rules);
  int next(TileBatch& batch);  // the number of tiles, `at_once` unless these are the last
  int at_once() const { return rules_.tiles_at_once; }

  // A tile of selected keys (in any order, possibly repeated), each seen by the lanes that may see it; no tile if no
  // lane sees any. Pairs that no span limits are in a separate tile. Call before `next`.
  std::optional<Tile> gathered(const std::int64_t* indices, int count, bool exempt, std::uint64_t* masks) const;

 private:
  Tile next_of_band();
  Tile next_of_pattern(std::int64_t* indices);
  bool overlaps(const Interval& keys, bool exempt) const;  // whether some lane may see one of them
  bool fill_masks(Tile& tile, bool exempt, std::uint64_t* masks) const;
  std::size_t exempt_count() const;
  void find_runs();

  const GroupKeyRange& in_span_;
  const GroupKeyRange& span_exempt_;
  const Lanes lanes_;
  const PairRules rules_;
  // of a band: where to continue; the tiles from full_first_ to full_last_ are whole and all lanes see them
  std::ptrdiff_t at_, full_first_, full_last_;
  // of a pattern
  std::optional<StageMask> stage_;
  std::optional<GridBoxes> in_grid_reach_;
  std::size_t exempt_at_ = 0, run_ = 0;
  std::vector<KeyRun> runs_;
};

// Runs step(tiles, count) over all tiles; false if it was stopped, or if a step returns false.
template <class Step>
bool for_each_batch(TileList tiles, TileBatch& batch, const StopCheck& stop, Step step) {
  for (int count; (count = tiles.next(batch)) > 0;) {
    if (stop() || !step(batch.tiles, count)) return false;
    if (count < tiles.at_once()) return true;
  }
  return true;
}

}  // namespace headspan
