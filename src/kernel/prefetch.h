// SPDX-License-Identifier: BSD-3-Clause
// Prefetching during products: rows of keys and values that hardware does not prefetch.
#pragma once

#include "base/attributes.h"
#include "base/tile.h"
#include "interface.h"
#include "kernel/isa/instruction_set.h"

namespace headspan::HEADSPAN_ISA {

// An address that is one register plus constants. A multiplication with such a memory operand is one micro-operation,
// and two with a second register. If every number is used for one vector only, these multiplications dominate.
template <class Pointer>
HEADSPAN_INLINE Pointer in_register(Pointer address) {
  asm("" : "+r"(address));
  return address;
}

// Rows to bring into the second-level cache during a product, one row for each key and two lines at a time: a burst
// would fill the buffers that the loads of the product need. A list has a row for each key of a tile.
template <class T>
struct Fetch {
  const T* const* rows;
  int lists;
  HEADSPAN_ALWAYS_INLINE Fetch from(int r) const { return {rows + r, lists}; }
};

// Prefetches the lines that start in the given number of vectors of a row, from d on.
template <int vectors, int width, class Element>
HEADSPAN_INLINE void fetch_lines_of(const Element* row, int d) {
  const Element* const from = in_register(row + d);
  unroll<vectors>([&](auto j) HEADSPAN_ALWAYS_INLINE {
    if ((d + j.value * width) % kLine<Element> == 0) __builtin_prefetch(from + j.value * width, 0, 2);
  });
}
template <int vectors, class T>
HEADSPAN_INLINE void fetch_lines(const T* row, int d) {
  fetch_lines_of<vectors, kWidth<T>>(row, d);
}

// The rows that the next group needs, to be prefetched evenly during the products of some tiles, `products` per tile.
// The products of a tile of a few keys are too short for that.
template <class T>
class RowsToPrefetch {
 public:
  HEADSPAN_ALWAYS_INLINE RowsToPrefetch(const PrefetchArray<T>* arrays, const Tile* tiles, int tile_count,
                                        int products) {
    int turns = 0, count = 0;
    for (int i = 0; i < tile_count; i++) turns += tall(tiles[i]) ? products : 0;
    for (const PrefetchArray<T>* array = arrays; array < arrays + kPrefetchArrays && turns > 0; array++)
      for (int r = 0; r < array->rows; r++)
        rows_[count++] = array->first + (array->index ? array->index[r] : r) * array->stride;
    if (count == 0) return;
    lists_ = (count + kTileKeys - 1) / kTileKeys;
    a_turn_ = (lists_ + turns - 1) / turns;
    for (; count < lists_ * kTileKeys; count++) rows_[count] = rows_[count - 1];
  }
  // The rows to prefetch during the next product of this tile.
  HEADSPAN_ALWAYS_INLINE Fetch<T> next(const Tile& tile) {
    int const first = at_, left = lists_ - at_, count = !tall(tile) ? 0 : left < a_turn_ ? left : a_turn_;
    at_ += count;
    return {rows_ + first * kTileKeys, count};
  }

 private:
  HEADSPAN_ALWAYS_INLINE static bool tall(const Tile& tile) { return tile.count >= kTileKeys / 2; }

  const T* rows_[kPrefetchArrays * kTileKeys];
  int lists_ = 0, a_turn_ = 0, at_ = 0;
};

}  // namespace headspan::HEADSPAN_ISA
