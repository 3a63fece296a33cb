// SPDX-License-Identifier: BSD-3-Clause
// Where the rows of keys or of values are, and in which type. The kernel reads keys and values from nothing else.
//
//     array    row i is at i / step * stride
//     ring     only the last rows of a growing sequence are kept, and a few older ones:
//
//                  row  0 1 2 3 ...  first .................... count ...............
//                       only `kept`  in the ring, row i at      not in the cache yet:
//                       ones         place i % capacity         `following`, an array of their own
//
//     pages    all rows of the sequence are kept, in pages of kPageRows rows each, in any place
//
// A row of a narrower type than that of the computation is
//
//     float16, bfloat16    2 bytes a number
//     int8                 a float, the scale of the row, and a byte a number
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/attributes.h"

namespace headspan {

using Byte = unsigned char;

enum class Storage { same, float16, bfloat16, int8 };

struct StorageName {
  const char* name;
  Storage storage;
};
constexpr StorageName kStorages[] = {
    {"same", Storage::same}, {"float16", Storage::float16}, {"bfloat16", Storage::bfloat16}, {"int8", Storage::int8}};

HEADSPAN_INLINE size_t stored_row_bytes(Storage storage, size_t dims, size_t element_bytes) {
  if (storage == Storage::same) return dims * element_bytes;
  return storage == Storage::int8 ? sizeof(float) + (dims + 3) / 4 * 4 : dims * 2;
}

constexpr ptrdiff_t kPageRows = 256;  // a power of two, and at least as long as any tile

// The places of the rows of a growing sequence in a cache.
struct RowPlaces {
  ptrdiff_t first, count;
  ptrdiff_t capacity;   // of the ring, or of the pages
  const int64_t* kept;  // ascending; these rows have another place after the ring, one after another
  ptrdiff_t kept_count;

  // The place in the ring of a row below `count`. A row that was dropped gets the place of another row: no query may
  // see it.
  HEADSPAN_ALWAYS_INLINE ptrdiff_t of(ptrdiff_t row) const {
    if (row >= first) return row % capacity;
    ptrdiff_t low = 0, high = kept_count;
    while (low < high) {
      ptrdiff_t const middle = low + (high - low) / 2;
      if (kept[middle] < row)
        low = middle + 1;
      else
        high = middle;
    }
    return low < kept_count ? capacity + low : 0;
  }
};

struct RowSource {
  Storage storage;
  const Byte* data;  // the array or the ring
  ptrdiff_t stride;  // bytes from one row to the next, also in pages; a row itself is contiguous
  ptrdiff_t step;    // only every step-th index has a row in the array

  RowPlaces places;       // in a cache; a capacity of 0 stands for an array
  void* const* pages;     // null: a ring
  const Byte* following;  // the rows from places.count on
  ptrdiff_t following_stride;

  HEADSPAN_ALWAYS_INLINE bool in_cache() const { return places.capacity > 0; }
  // Divides only if step > 1: compilers turn `step == 1 ? index : index / step` into a division, which is slow.
  HEADSPAN_ALWAYS_INLINE const Byte* row(ptrdiff_t index) const {
    if (!in_cache()) return data + (step > 1 ? index / step : index) * stride;
    if (index >= places.count) return following + (index - places.count) * following_stride;
    return row_of_cache(index);
  }
  HEADSPAN_ALWAYS_INLINE const Byte* row_of_cache(ptrdiff_t index) const {
    return pages ? (const Byte*)pages[index / kPageRows] + index % kPageRows * stride
                 : data + places.of(index) * stride;
  }
};

// The rows of an array of the type of the computation. The stride counts elements.
template <class T>
HEADSPAN_INLINE RowSource array_rows(const T* data, ptrdiff_t stride, ptrdiff_t step = 1) {
  return {Storage::same, (const Byte*)data, stride * (ptrdiff_t)sizeof(T), step, {}, nullptr, nullptr, 0};
}

}  // namespace headspan
