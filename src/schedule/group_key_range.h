// SPDX-License-Identifier: BSD-3-Clause
// The keys that a group of queries can reach, over all lanes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/tile.h"
#include "visibility.h"

namespace headspan {

// The keys that a group of queries can reach, without its pattern. Neighbouring queries with one span see a band, which
// is computed in closed form: this saves time if spans are short.
//
//        first()          full_first()     full_last()        last()
//          |                  |                |                 |
//   lane 0 xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
//   lane 1    xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
//    ...                     all lanes see these
//   last              xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
class GroupKeyRange {
 public:
  // query[lane] for lanes 0 .. lanes - 1; spans[lane] may be infinite.
  GroupKeyRange(const Visibility& visibility, const std::ptrdiff_t* query, int lanes, const double* spans);

  std::ptrdiff_t first() const { return first_; }  // of the keys that some lane sees
  std::ptrdiff_t last() const { return last_; }
  bool empty() const { return first_ >= last_; }

  // Restricts the keys to first .. last - 1.
  void clip(std::ptrdiff_t first, std::ptrdiff_t last);

  // For the keys first .. last - 1: whether every lane sees all of them, and whether some pair may have x >= z.
  bool full(std::ptrdiff_t first, std::ptrdiff_t last) const {
    return first >= full_first_ && last <= full_last_ && (last <= self_first_ || first >= self_last_);
  }
  bool soft(std::ptrdiff_t first, std::ptrdiff_t last) const { return first < soft_before_ || last > soft_from_; }
  // The keys that every lane sees except for its own key, empty if last <= first.
  std::ptrdiff_t full_first() const { return full_first_; }
  std::ptrdiff_t full_last() const { return full_last_; }

  // masks[r]: the lanes that see the tile's key r.
  void fill(const Tile& tile, std::uint64_t* masks) const;

 private:
  void add_all(const Visibility& visibility);
  void add_band(const Visibility& visibility, std::ptrdiff_t query, const SpanReach& reach);
  void add_lane(const Visibility& visibility, int lane, std::ptrdiff_t query, const SpanReach& reach);

  int lanes_;
  bool is_band_;
  std::ptrdiff_t index_, ahead_, reach_;                      // of a band: lane 0, and the reach of each lane
  KeyRange range_[kLanes];                                    // of other groups
  std::ptrdiff_t first_ = PTRDIFF_MAX, last_ = 0;             // union of the ranges
  std::ptrdiff_t full_first_ = 0, full_last_ = PTRDIFF_MAX;   // intersection
  std::ptrdiff_t self_first_ = PTRDIFF_MAX, self_last_ = 0;   // keys that are excluded from a range
  std::ptrdiff_t soft_before_ = 0, soft_from_ = PTRDIFF_MAX;  // keys below and from which x >= z for some lane
};

}  // namespace headspan
