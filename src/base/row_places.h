// SPDX-License-Identifier: BSD-3-Clause
// The places of the rows of a growing sequence of which not all rows are kept.
//
//     row  0 1 2 3 ...  first .................... count ...............
//          only `kept`  in the ring, row i at      not in the cache yet:
//          ones         place i % capacity         in an array of their own
//
// If all rows are kept, they are in pages of kPageRows rows each, in any place.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "attributes.h"

namespace headspan {

constexpr ptrdiff_t kPageRows = 256;  // a power of two, and at least as long as any tile

struct RowPlaces {
  ptrdiff_t first, count;
  ptrdiff_t capacity;   // of the ring
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

}  // namespace headspan
