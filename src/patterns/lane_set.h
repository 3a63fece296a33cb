// SPDX-License-Identifier: BSD-3-Clause
// The queries of a group, one in each lane, and sets of them: a lane mask has a bit for each.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/tile.h"

namespace headspan {

inline std::ptrdiff_t floor_div(std::ptrdiff_t a, std::ptrdiff_t b) { return a / b - (a % b < 0); }
inline std::ptrdiff_t floor_mod(std::ptrdiff_t a, std::ptrdiff_t b) { return a % b + (a % b < 0 ? b : 0); }

// The queries of a group, each by its index among the keys: query i of N has index i + keys - N, so that the last query
// meets the last key. An index may be negative. The caller owns the indices.
class Lanes {
 public:
  const std::ptrdiff_t* const index;
  int const count;

  Lanes(const std::ptrdiff_t* lane_index, int lane_count) : index(lane_index), count(lane_count) {
    for (int lane = 1; lane < count; lane++) in_line_ &= index[lane] == index[0] + lane;
  }

  // Whether the queries are consecutive.
  bool in_line() const { return in_line_; }
  // The mask of all lanes.
  std::uint64_t all() const { return ~std::uint64_t(0) >> (kLanes - count); }
  // The smallest index and the largest.
  struct Range {
    std::ptrdiff_t least, most;
  };
  Range range() const;

 private:
  bool in_line_ = true;
};

// The lanes of each class, for classes that many lanes share, in ascending order.
class LaneClasses {
 public:
  template <class ClassOf>
  LaneClasses(const Lanes& lanes, ClassOf class_of) {
    std::ptrdiff_t next = lanes.count > 0 ? class_of(lanes.index[0]) : 0;
    for (int lane = 0; lane < lanes.count;) {  // neighbours mostly share a class
      std::ptrdiff_t const lane_class = next;
      std::uint64_t mask = 0;
      do mask |= std::uint64_t(1) << lane++;
      while (lane < lanes.count && (next = class_of(lanes.index[lane])) == lane_class);
      add(lane_class, mask);
    }
  }
  int count() const { return count_; }
  std::ptrdiff_t at(int i) const { return class_[i]; }
  std::uint64_t mask(int i) const { return mask_[i]; }
  std::uint64_t mask_of(std::ptrdiff_t wanted) const;

 private:
  void add(std::ptrdiff_t lane_class, std::uint64_t mask);

  int count_ = 0;
  std::ptrdiff_t class_[kLanes];
  std::uint64_t mask_[kLanes];
};

// The lanes by index modulo a stride, and by block.
LaneClasses residues(const Lanes& lanes, std::ptrdiff_t stride);
LaneClasses block_rows(const Lanes& lanes, std::ptrdiff_t block_size);

}  // namespace headspan
