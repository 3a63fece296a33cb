// SPDX-License-Identifier: BSD-3-Clause
// Where the rows of a growing sequence lie of which not all are kept.
//
//     row  0 1 2 3 ...  first .................... count ...............
//          only `kept`  in the ring, row i at      not in the cache yet:
//          ones         place i % capacity         in an array of their own
//
// Or, where all are kept, in pages of kPageRows rows each, which lie anywhere.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "attributes.h"

namespace headspan {

constexpr ptrdiff_t kPageRows = 256;  // a power of two, and no tile is longer

struct RowPlaces {
  ptrdiff_t first, count;
  ptrdiff_t capacity;   // of the ring
  const int64_t* kept;  // ascending; these rows have another place behind the ring, one after another
  ptrdiff_t kept_count;

  // In the ring, of a row below `count`. What is not there has the place of another row: nobody may see it.
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

}  // namespace headspan
