// SPDX-License-Identifier: BSD-3-Clause
// Pointers to the rows of the keys of a tile.
#pragma once

#include <stddef.h>
#include <string.h>

#include "base/attributes.h"
#include "base/tile.h"
#include "kernel/interface.h"
#include "kernel/rows/row_source.h"
#include "kernel/rows/stored_row.h"

namespace headspan::HEADSPAN_ISA {

// to[r] = the row of key r of the tile.
template <class T>
HEADSPAN_INLINE void rows_of(const Tile& tile, const Rows<T>& rows, T** to) {
  if (tile.indices) {
    for (int r = 0; r < tile.count; r++) to[r] = rows.row(tile.indices[r]);
  } else {
    T* row = rows.row(tile.first);
    for (int r = 0; r < tile.count; r++, row += tile.step * rows.stride) to[r] = row;
  }
}

// Whether the keys of a tile are adjacent in a cache, as most are: no end of the ring or of a page is among them.
HEADSPAN_INLINE bool adjacent_in_cache(const Tile& tile, const RowSource& source) {
  RowPlaces const& places = source.places;
  ptrdiff_t const end = tile.first + tile.count;
  if (tile.step != 1 || end > places.count) return false;
  if (source.pages) return tile.first / kPageRows == (end - 1) / kPageRows;
  return tile.first >= places.first && places.of(tile.first) + tile.count <= places.capacity;
}

// to[r] = the row of key r of the tile, in a cache. Neighbours follow around the ring without a division.
template <class T>
HEADSPAN_NOINLINE void rows_of_cache(const Tile& tile, const RowSource& source, const T** to) {
  RowPlaces const& places = source.places;
  if (adjacent_in_cache(tile, source)) {
    const Byte* row = source.row_of_cache(tile.first);
    for (int r = 0; r < tile.count; r++, row += source.stride) to[r] = (const T*)row;
    return;
  }
  if (source.pages) {
    for (int r = 0; r < tile.count; r++) to[r] = (const T*)source.row(key_index(tile, r));
    return;
  }
  ptrdiff_t place = -1;  // in the ring; -1: not known yet
  for (int r = 0; r < tile.count; r++) {
    ptrdiff_t const index = key_index(tile, r);
    if (index < places.first || index >= places.count) {
      to[r] = (const T*)source.row(index);
      continue;
    }
    place = place < 0 ? places.of(index) : place + tile.step;
    if (place >= places.capacity) place %= places.capacity;
    to[r] = (const T*)(source.data + place * source.stride);
  }
}

// to[r] = the row of key r of the tile, repeating the last row up to `until`.
template <class T>
HEADSPAN_INLINE void rows_of(const Tile& tile, const RowSource& source, int until, const T** to) {
  if (tile.indices) {
    for (int r = 0; r < tile.count; r++) to[r] = (const T*)source.row(tile.indices[r]);
  } else if (source.in_cache()) {
    rows_of_cache(tile, source, to);
  } else {
    ptrdiff_t const step = (source.step > 1 ? tile.step / source.step : tile.step) * source.stride;
    const Byte* row = source.row(tile.first);
    for (int r = 0; r < tile.count; r++, row += step) to[r] = (const T*)row;
  }
  for (int r = tile.count; r < until; r++) to[r] = to[tile.count - 1];
}

// Moves pointers to rows of int8 past the scales, which go to `scales` unless it is null.
template <class T>
HEADSPAN_NOINLINE void skip_scales(int count, const T** rows, T* scales) {
  for (int r = 0; r < count; r++) {
    float scale;
    memcpy(&scale, rows[r], sizeof scale);
    if (scales) scales[r] = T(scale);
    rows[r] = (const T*)((const Byte*)rows[r] + sizeof scale);
  }
}

// to[r] = the numbers of key r of the tile as they are stored, repeating the last row up to `until`.
template <class T>
HEADSPAN_INLINE void stored_numbers(const Tile& tile, const RowSource& source, int until, const T** to, T* scales) {
  rows_of(tile, source, until, to);
  if (source.storage == Storage::int8) skip_scales(until, to, scales);
}

// Room for the keys and values of a tile, converted to T.
template <class T>
struct ConvertedRoom {
  T *key = nullptr, *value = nullptr;  // [kTileKeys][stride]
  ptrdiff_t key_stride = 0, value_stride = 0;
};

// to[r] = the numbers of key r of the tile, converted to T in `room`, repeating the last row up to `until`.
template <class T>
HEADSPAN_NOINLINE void converted_numbers(const Tile& tile, const RowSource& source, int dims, T* room, ptrdiff_t stride,
                                         int until, const T** to) {
  const Byte* stored[kTileKeys];
  rows_of(tile, source, tile.count, stored);
  for (int r = 0; r < until; r++) {
    to[r] = room + (r < tile.count ? r : tile.count - 1) * stride;
    if (r < tile.count) read_row(source.storage, stored[r], dims, room + r * stride);
  }
}

}  // namespace headspan::HEADSPAN_ISA
