// SPDX-License-Identifier: BSD-3-Clause
// Who can be reached: the keys that causality, spans, positions, padding and documents leave to a query. Patterns come
// on top of it, see pattern.h; tile_list.h makes both into tiles for the kernel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/tile.h"

namespace headspan {

// Which pairs exist at all, for one item of the batch. Query i has index i + keys - queries among the keys, so that the
// last query meets the last key, and that is where it stands unless positions are given.
struct Band {
  std::ptrdiff_t queries, keys;
  bool causal, include_self;
  double ramp;
  const double *query_position = nullptr, *key_position = nullptr;       // ascending; both or none
  std::ptrdiff_t key_end = PTRDIFF_MAX;                                  // keys from here on are padding
  const std::int64_t *segment_first = nullptr, *segment_last = nullptr;  // of the document that each key lies in

  std::ptrdiff_t index(std::ptrdiff_t query) const { return query + keys - queries; }
  double position(std::ptrdiff_t query) const {
    return query_position ? query_position[query] : static_cast<double>(index(query));
  }
};

// A span in whole distances: m > 0 up to `reach`, and x >= z from `ramp_start` on.
struct Extent {
  std::ptrdiff_t reach, ramp_start;
  double span;
};
Extent extent(const Band& band, double span);

// The keys first .. last - 1 that one query may see, less those from self_first to self_last - 1.
struct KeyRange {
  std::ptrdiff_t first, last, self_first, self_last;
  bool empty() const { return first >= last; }
  std::ptrdiff_t count() const;
};
KeyRange key_range(const Band& band, std::ptrdiff_t query, const Extent& extent);

// What a group of queries can reach. Neighbouring queries of one span see a band: that has a closed form, which counts
// where spans are short.
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

  // Of the keys first .. last - 1: whether every lane sees all of them, and whether some pair may lie at x >= z.
  bool full(std::ptrdiff_t first, std::ptrdiff_t last) const {
    return first >= full_first_ && last <= full_last_ && (last <= self_first_ || first >= self_last_);
  }
  bool soft(std::ptrdiff_t first, std::ptrdiff_t last) const { return first < soft_before_ || last > soft_from_; }
  // The keys that every lane sees but for their own, empty if last <= first.
  std::ptrdiff_t full_first() const { return full_first_; }
  std::ptrdiff_t full_last() const { return full_last_; }

  // words[r]: the lanes that see the tile's key r.
  void words(const Tile& tile, std::uint64_t* words) const;

 private:
  void add_all(const Band& band);
  void add_band(const Band& band, std::ptrdiff_t query, const Extent& extent);
  void add_lane(const Band& band, int lane, std::ptrdiff_t query, const Extent& extent);

  int lanes_;
  bool is_band_;
  std::ptrdiff_t index_, ahead_, reach_;                      // of a band: lane 0, and how far each lane sees
  KeyRange range_[kLanes];                                    // of other groups
  std::ptrdiff_t first_ = PTRDIFF_MAX, last_ = 0;             // union of the ranges
  std::ptrdiff_t full_first_ = 0, full_last_ = PTRDIFF_MAX;   // intersection
  std::ptrdiff_t self_first_ = PTRDIFF_MAX, self_last_ = 0;   // keys that are left out of a range
  std::ptrdiff_t soft_before_ = 0, soft_from_ = PTRDIFF_MAX;  // keys below and from which x >= z for some lane
};

}  // namespace headspan
