// SPDX-License-Identifier: BSD-3-Clause
// A tile in the form for register tiles: a pointer to every row, and runs of keys that the same vectors of lanes see.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/attributes.h"
#include "base/tile.h"
#include "decode.h"
#include "interface.h"
#include "kernel/isa/instruction_set.h"
#include "matmul.h"
#include "prefetch.h"
#include "rows/row_source.h"
#include "rows/tile_rows.h"
#include "scores/positions.h"

namespace headspan::HEADSPAN_ISA {

constexpr int kTileGroups = kTileKeys / kKeyGroup;
constexpr int kShortestRun = 2 * kKeyGroup;  // unless there are fewer keys

// Neighbouring keys whose masks touch the same vectors of lanes or, if that would be too few keys, some of these
// vectors.
struct Run {
  int first, last;                // keys, in whole key groups
  int first_vector, last_vector;  // vectors
  uint64_t all_seen;              // the lanes that see all of these keys
};

template <class T>
struct TileKeys {
  const T *key[kPaddedKeys], *value[kPaddedKeys];  // of narrower elements, depending on `storage`
  Storage storage;
  T key_scale[kPaddedKeys], value_scale[kPaddedKeys];  // if the storage has scales
  T position[kAxes][kTileKeys];
  Distances<T> distances;
  T bias[kPaddedKeys];                          // times log2(e)
  T lowest[kTileGroups], highest[kTileGroups];  // positions per key group
  uint64_t padded_masks[kPaddedKeys];
  const uint64_t* lane_masks;  // null: every lane sees every key
  Run runs[kTileGroups + 1];
  int run_count, padded;
};

template <class T>
HEADSPAN_NOINLINE void prepare_runs(TileKeys<T>& keys) {
  constexpr int width = kWidth<T>;
  keys.run_count = 0;
  for (int r = 0; r < keys.padded; r += kKeyGroup) {
    uint64_t any = 0, all = ~uint64_t(0);
    for (int i = 0; i < kKeyGroup; i++) any |= keys.lane_masks[r + i], all &= keys.lane_masks[r + i];
    if (!any) continue;
    // Keys that no lane sees must not be read; masked copies of their neighbours replace them.
    int visible = r;
    while (!keys.lane_masks[visible]) visible++;
    for (int i = r; i < r + kKeyGroup; i++)
      if (!keys.lane_masks[i]) keys.key[i] = keys.key[visible], keys.value[i] = keys.value[visible];
    Run const run{r, r + kKeyGroup, __builtin_ctzll(any) / width, (63 - __builtin_clzll(any)) / width + 1, all};
    Run* const before = keys.run_count ? &keys.runs[keys.run_count - 1] : nullptr;
    bool const same = before && before->first_vector == run.first_vector && before->last_vector == run.last_vector;
    if (before && before->last == r && (same || r - before->first < kShortestRun)) {
      before->last = run.last;
      before->all_seen &= all;
      if (run.first_vector < before->first_vector) before->first_vector = run.first_vector;
      if (run.last_vector > before->last_vector) before->last_vector = run.last_vector;
    } else {
      keys.runs[keys.run_count++] = run;
    }
  }
}

// The positions of the keys of a tile, for masks and slopes.
template <class T>
HEADSPAN_NOINLINE void prepare_positions(const Group<T>& group, const Tile& tile, LanePositions<T>& lanes,
                                         TileKeys<T>& keys) {
  bool exact = lanes.exact;
  for (int axis = 0; axis < group.axes; axis++) {
    T* const position = keys.position[axis];
    for (int r = 0; r < tile.count; r++)
      position[r] = relative<T>(key_position(group, axis, key_index(tile, r)), lanes.origin[axis], exact);
    for (int r = tile.count; r < keys.padded; r++) position[r] = position[tile.count - 1];
  }
  if (!exact) {
    wide_distances(group, tile, keys.padded, lanes.distance);
    keys.distances.wide = lanes.distance;
  }
  for (int g = 0; g < keys.padded / kKeyGroup; g++) {
    const T* const p = keys.position[0] + g * kKeyGroup;
    T lowest = p[0], highest = p[0];
    for (int i = 1; i < kKeyGroup; i++) {
      lowest = p[i] < lowest ? p[i] : lowest;
      highest = p[i] > highest ? p[i] : highest;
    }
    keys.lowest[g] = exact && group.axes == 1 ? lowest : -kInfinity<T>;  // positions do not tell distances
    keys.highest[g] = highest;
  }
}

template <class T>
HEADSPAN_INLINE void prepare(const Group<T>& group, const Tile& tile, LanePositions<T>& lanes, TileKeys<T>& keys,
                             const Tile* next = nullptr, const ConvertedRoom<T>& room = {}) {
  keys.padded = (int)round_up((size_t)tile.count, kKeyGroup);
  // Padding and prefetched rows: any row that may be read, or the rows of the next tile.
  int const end = keys.padded + kRowsAfter;
  bool const stored = group.key.storage != Storage::same;
  if (stored && (!is_decode<T>(group.lanes) || group.skip_masked)) {
    keys.storage = Storage::same;
    converted_numbers(tile, group.key, group.head_dim, room.key, room.key_stride, end, keys.key);
    converted_numbers(tile, group.value, group.value_dim, room.value, room.value_stride, end, keys.value);
  } else {  // also narrower types, if memory bandwidth is the limit: each number is read once
    keys.storage = group.key.storage;
    stored_numbers(tile, group.key, end, keys.key, keys.key_scale);
    stored_numbers(tile, group.value, end, keys.value, keys.value_scale);
  }
  for (int r = keys.padded, i = 0; next && !stored && r < end && i < next->count; r++, i++)
    keys.key[r] = (const T*)group.key.row(key_index(*next, i));
  keys.distances = {lanes.query[0], keys.position[0], group.axes, nullptr};
  if ((tile.soft && group.ramp > 0) || group.biased) prepare_positions(group, tile, lanes, keys);
  if (group.key_bias.data)
    for (int r = 0; r < keys.padded; r++)
      keys.bias[r] = T(*group.key_bias.row(key_index(tile, r < tile.count ? r : tile.count - 1)) * kLog2e);
  keys.lane_masks = tile.lane_masks;
  if (!tile.lane_masks && keys.padded == tile.count) {
    keys.runs[0] = Run{0, tile.count, 0, (group.lanes + kWidth<T> - 1) / kWidth<T>, ~uint64_t(0)};
    keys.run_count = 1;
    return;
  }
  for (int r = 0; r < keys.padded; r++)
    keys.padded_masks[r] = r >= tile.count ? 0 : tile.lane_masks ? tile.lane_masks[r] : all_lanes(group);
  keys.lane_masks = keys.padded_masks;
  prepare_runs(keys);
}

// The products of a run with lanes in vectors.
template <class T>
HEADSPAN_INLINE void run_products(const Run& run, const T* const* rows, const Fetch<T>& fetch, int dims, const T* q,
                                  T* s, const uint64_t* lane_masks, Vec<T>* best, int lanes,
                                  Storage storage = Storage::same, const T* scales = nullptr) {
  constexpr int width = kWidth<T>;
  if (is_decode<T>(lanes))
    return decode_dot_products<T>({rows, fetch.lists ? fetch.rows : nullptr, storage, scales}, dims, q, s, lane_masks,
                                  best, lanes, run.first, run.last);
  tile_lanes(run.first_vector, run.last_vector, [&](auto vectors, int v) HEADSPAN_ALWAYS_INLINE {
    uint64_t const lanes_of_v = ~uint64_t(0) >> (kLanes - vectors.value * width) << (v * width);
    bool const masked = lane_masks && (lanes_of_v & ~run.all_seen);
    dot_products<T, vectors.value>(rows, fetch, dims, q + v * width, s + v * width, masked ? lane_masks : nullptr, v,
                                   best ? best + v : nullptr, run.first, run.last);
  });
}

// o[d][lane] = o[d][lane] * alpha[lane] + sum of p[key][lane] * rows[key][d] over the keys first .. last - 1, for
// `vectors` vectors of lanes from v on.
template <class T, int vectors>
HEADSPAN_INLINE void accumulate_vectors(const TileKeys<T>& keys, const T* const* rows, int dims, const T* p, T* o,
                                        const Vec<T>* alpha, bool skip_masked, int v, int first, int last) {
  constexpr int width = kWidth<T>;
  if (!skip_masked) return accumulate<T, vectors>(rows, dims, p + v * width, o + v * width, alpha + v, first, last);
  for (int j = v; j < v + vectors; j++)
    accumulate_unmasked(rows, dims, p + j * width, o + j * width, alpha + j, keys.lane_masks, j, first, last);
}

// Calls f(v, first, last) for each maximal stretch of keys that some of the vectors v .. v + column - 1 of lanes see.
// At the edge of a band runs are short, but those of a vector are consecutive.
template <class T, int column, class F>
HEADSPAN_INLINE void for_each_key_range(const TileKeys<T>& keys, F&& f) {
  constexpr int columns = kVectors<T> / column;
  static_assert(kVectors<T> % column == 0);
  int first[columns] = {}, last[columns] = {};
  auto const end = [&](int n) {
    if (first[n] < last[n]) f(n * column, first[n], last[n]);
  };
  for (int i = 0; i < keys.run_count; i++) {
    Run const& run = keys.runs[i];
    for (int n = run.first_vector / column; n * column < run.last_vector; n++) {
      if (last[n] != run.first) {
        end(n);
        first[n] = run.first;
      }
      last[n] = run.last;
    }
  }
  for (int n = 0; n < columns; n++) end(n);
}

// Like accumulate_tile, but one column of vectors after another, so that the outputs of a stretch of runs are loaded
// and stored once. Weights of vectors of a column that are not in a run become 0.
template <class T, int column>
HEADSPAN_NOINLINE void accumulate_columns(const TileKeys<T>& keys, const T* const* rows, int dims, T* p, T* o,
                                          Vec<T>* alpha, bool skip_masked) {
  constexpr int width = kWidth<T>;
  for (int i = 0; i < keys.run_count; i++) {
    Run const& run = keys.runs[i];
    int const first = run.first_vector / column * column, last = (run.last_vector + column - 1) / column * column;
    for (int j = first; j < last; j++) {
      if (j >= run.first_vector && j < run.last_vector) continue;
      for (int r = run.first; r < run.last; r++) store(p + r * kLanes + j * width, Vec<T>{});
    }
  }
  for_each_key_range<T, column>(keys, [&](int v, int first, int last) {
    accumulate_vectors<T, column>(keys, rows, dims, p, o, alpha, skip_masked, v, first, last);
    for (int j = v; j < v + column; j++) alpha[j] = broadcast(T(1));  // once per tile
  });
}

// o[d][lane] = o[d][lane] * alpha[lane] + sum of p[key][lane] * rows[key][d] over all keys of the tile. `next`, if
// not null, are the rows that decode.h prefetches.
template <class T>
HEADSPAN_INLINE void accumulate_tile(const TileKeys<T>& keys, const T* const* rows, const T* const* next, int dims,
                                     T* p, T* o, Vec<T>* alpha, int lanes, bool skip_masked) {
  if constexpr (kColumn > 0) {
    if (keys.run_count > 1 && lanes > kLanes - kWidth<T>)
      return accumulate_columns<T, kColumn>(keys, rows, dims, p, o, alpha, skip_masked);
  }
  for (int i = 0; i < keys.run_count; i++) {
    Run const& run = keys.runs[i];
    if (is_decode<T>(lanes) && !skip_masked)
      decode_accumulate<T>({rows, next, keys.storage, keys.value_scale}, dims, p, o, *alpha, lanes, run.first,
                           run.last);
    else
      tile_lanes(run.first_vector, run.last_vector, [&](auto n, int v) HEADSPAN_ALWAYS_INLINE {
        accumulate_vectors<T, n.value>(keys, rows, dims, p, o, alpha, skip_masked, v, run.first, run.last);
      });
    for (int j = run.first_vector; j < run.last_vector; j++) alpha[j] = broadcast(T(1));  // once per tile
  }
}

}  // namespace headspan::HEADSPAN_ISA
