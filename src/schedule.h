// SPDX-License-Identifier: BSD-3-Clause
// Who meets whom: which keys a group of queries may see, as key tiles with a set of lanes for every key.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel.h"

namespace headspan {

// A span in whole distances: m > 0 up to `reach`, and x >= z from `ramp_start` on.
struct Extent {
  std::ptrdiff_t reach, ramp_start;
};

// Which pairs exist at all. Query i stands at i + keys - queries, so that the last query sees the last key.
struct Band {
  std::ptrdiff_t queries, keys;
  bool causal, include_self;
  double ramp;

  std::ptrdiff_t position(std::ptrdiff_t query) const { return query + keys - queries; }
  // How far a query sees ahead of itself.
  std::ptrdiff_t ahead(const Extent& extent) const { return causal ? (include_self ? 0 : -1) : extent.reach; }
};

// The keys first .. last - 1 that one query may see; `self` is left out of them unless it is -1.
struct KeyRange {
  std::ptrdiff_t first, last, self;
  bool empty() const { return first >= last; }
  bool contains(std::ptrdiff_t key) const { return key >= first && key < last && key != self; }
  std::ptrdiff_t count() const { return empty() ? 0 : last - first - (self >= first && self < last); }
};

Extent extent(const Band& band, double span);
KeyRange key_range(const Band& band, std::ptrdiff_t query, const Extent& extent);

// What a group of queries sees. Neighbouring queries of one span see a band: that has a closed form, which counts where
// spans are short.
class GroupKeys {
 public:
  // query[lane] for lanes 0 .. lanes - 1; spans[lane] may be infinite.
  template <class T>
  GroupKeys(const Band& band, const std::ptrdiff_t* query, int lanes, const T* spans);

  std::ptrdiff_t first() const { return first_; }  // of the keys that some lane sees
  std::ptrdiff_t last() const { return last_; }
  bool empty() const { return first_ >= last_; }

  // Leaves the keys outside first .. last - 1 to others.
  void clip(std::ptrdiff_t first, std::ptrdiff_t last);

  // A tile over chosen keys (in any order, repeated or not), each seen by the lanes that may see it.
  Tile gathered(const std::int64_t* indices, int count, std::uint64_t* words) const;

 private:
  friend class TileList;
  void add_band(const Band& band, std::ptrdiff_t query, const Extent& extent);
  void add_lane(const Band& band, int lane, std::ptrdiff_t query, const Extent& extent);
  std::uint64_t band_word(std::ptrdiff_t key) const;
  std::uint64_t word(std::ptrdiff_t key) const;  // the lanes that see a key

  int lanes_;
  bool is_band_;
  bool without_self_;                                         // of a band
  std::ptrdiff_t position_, ahead_, reach_;                   // of a band: lane 0, and how far each lane sees
  KeyRange range_[kLanes];                                    // of other groups
  std::ptrdiff_t first_ = PTRDIFF_MAX, last_ = 0;             // union of the ranges
  std::ptrdiff_t full_first_ = 0, full_last_ = PTRDIFF_MAX;   // intersection
  std::ptrdiff_t self_first_ = PTRDIFF_MAX, self_last_ = -1;  // keys that are left out of a range
  std::ptrdiff_t soft_before_ = 0, soft_from_ = PTRDIFF_MAX;  // keys below and from which x >= z for some lane
};

// Room for the tiles of one step.
struct TileBatch {
  Tile tiles[kBatchTiles];
  std::uint64_t words[kBatchTiles][kTileKeys];
};

// The tiles of a group, a batch at a time.
class TileList {
 public:
  explicit TileList(const GroupKeys& keys);
  int next(TileBatch& batch);  // how many tiles; 0: that was all

 private:
  void add_words(Tile& tile, std::uint64_t* words) const;

  const GroupKeys& keys_;
  std::ptrdiff_t at_, full_first_,
      full_last_;  // the tiles from full_first_ to full_last_ are whole and seen by all lanes
};

}  // namespace headspan
