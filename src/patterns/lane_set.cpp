// SPDX-License-Identifier: BSD-3-Clause
#include "lane_set.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace headspan {

Lanes::Range Lanes::range() const {
  auto const ends = std::minmax_element(index, index + count);
  return {*ends.first, *ends.second};
}

// Both save the division if the lane is one stride after the previous lane, or in the same block.

LaneClasses residues(const Lanes& lanes, std::ptrdiff_t stride) {
  std::ptrdiff_t before = 0, residue = 0;
  return LaneClasses(lanes, [=](std::ptrdiff_t p) mutable {
    if (p - before != stride) residue = floor_mod(p, stride);
    before = p;
    return residue;
  });
}

LaneClasses block_rows(const Lanes& lanes, std::ptrdiff_t block_size) {
  std::ptrdiff_t block = 0, first = 0;
  return LaneClasses(lanes, [=](std::ptrdiff_t p) mutable {
    if (p < first || p - first >= block_size) block = floor_div(p, block_size), first = block * block_size;
    return block;
  });
}

void LaneClasses::add(std::ptrdiff_t lane_class, std::uint64_t mask) {
  int i = count_;
  while (i > 0 && class_[i - 1] > lane_class) i--;
  if (i == 0 || class_[i - 1] != lane_class) {
    for (int j = count_; j > i; j--) class_[j] = class_[j - 1], mask_[j] = mask_[j - 1];
    class_[i] = lane_class;
    mask_[i] = 0;
    count_++;
    i++;
  }
  mask_[i - 1] |= mask;
}

std::uint64_t LaneClasses::mask_of(std::ptrdiff_t wanted) const {
  const std::ptrdiff_t* const end = class_ + count_;
  const std::ptrdiff_t* const place = std::lower_bound(class_, end, wanted);
  return place != end && *place == wanted ? mask_[place - class_] : 0;
}

}  // namespace headspan
