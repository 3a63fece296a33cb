// SPDX-License-Identifier: BSD-3-Clause
// A tile as the register tiles need it: a pointer to every row, and runs of keys that the same vectors of lanes see.
#pragma once

#include "micro_kernels.h"

namespace headspan::HEADSPAN_ISA {

HEADSPAN_INLINE size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

constexpr int kTileGroups = kTileKeys / kKeyGroup;

// Neighbouring keys whose words touch the same vectors of lanes.
struct Run {
  int first, last;                // keys, in whole key groups
  int first_vector, last_vector;  // vectors
};

template <class T>
struct TileKeys {
  const T *key[kPaddedKeys], *value[kPaddedKeys];
  T position[kPaddedKeys];
  T lowest[kTileGroups], highest[kTileGroups];  // positions in a key group
  uint64_t padded_words[kPaddedKeys];
  const uint64_t* words;  // null: every lane sees every key
  Run runs[kTileGroups + 1];
  int run_count, padded;
};

template <class T>
HEADSPAN_NOINLINE void prepare_runs(TileKeys<T>& keys) {
  constexpr int width = kWidth<T>;
  keys.run_count = 0;
  for (int r = 0; r < keys.padded; r += kKeyGroup) {
    uint64_t any = 0;
    for (int i = 0; i < kKeyGroup; i++) any |= keys.words[r + i];
    if (!any) continue;
    // Keys that no lane sees must not be read: they stand in for their neighbour, masked.
    int visible = r;
    while (!keys.words[visible]) visible++;
    for (int i = r; i < r + kKeyGroup; i++)
      if (!keys.words[i]) keys.key[i] = keys.key[visible], keys.value[i] = keys.value[visible];
    int const first = __builtin_ctzll(any) / width, last = (63 - __builtin_clzll(any)) / width + 1;
    Run* const before = keys.run_count ? &keys.runs[keys.run_count - 1] : nullptr;
    if (before && before->last == r && before->first_vector == first && before->last_vector == last)
      before->last = r + kKeyGroup;
    else
      keys.runs[keys.run_count++] = Run{r, r + kKeyGroup, first, last};
  }
}

// Where the keys of a tile stand, for masks and slopes.
template <class T>
HEADSPAN_NOINLINE void prepare_positions(const Group<T>& group, const Tile& tile, TileKeys<T>& keys) {
  for (int r = 0; r < keys.padded; r++) {
    T const p = T((double)key_index(tile, r < tile.count ? r : tile.count - 1) - group.origin);
    T &lowest = keys.lowest[r / kKeyGroup], &highest = keys.highest[r / kKeyGroup];
    keys.position[r] = p;
    lowest = r % kKeyGroup == 0 || p < lowest ? p : lowest;
    highest = r % kKeyGroup == 0 || p > highest ? p : highest;
  }
}

template <class T>
HEADSPAN_INLINE void prepare(const Group<T>& group, const Tile& tile, TileKeys<T>& keys) {
  keys.padded = (int)round_up((size_t)tile.count, kKeyGroup);
  for (int r = 0; r < tile.count; r++) {
    ptrdiff_t const index = key_index(tile, r);
    keys.key[r] = group.key.row(index);
    keys.value[r] = group.value.row(index);
  }
  // Padding, and rows that are fetched ahead: any row that may be read.
  for (int r = tile.count; r < keys.padded + kKeyGroup; r++) {
    keys.key[r] = keys.key[tile.count - 1];
    keys.value[r] = keys.value[tile.count - 1];
  }
  if (tile.soft || group.biased) prepare_positions(group, tile, keys);
  keys.words = tile.words;
  if (!tile.words && keys.padded == tile.count) {
    keys.runs[0] = Run{0, tile.count, 0, kVectors<T>};
    keys.run_count = 1;
    return;
  }
  for (int r = 0; r < keys.padded; r++)
    keys.padded_words[r] = r >= tile.count ? 0 : tile.words ? tile.words[r] : ~uint64_t(0);
  keys.words = keys.padded_words;
  prepare_runs(keys);
}

// Fetches what is ahead: the part of it that falls to one of `parts` equal parts of this group's work. Bursts would
// fill the buffers that the products' own loads need.
template <class T>
HEADSPAN_INLINE void fetch_ahead(const Group<T>& group, int part, int parts) {
  for (const Ahead<T>& ahead : group.ahead) {
    int const share = (ahead.rows + parts - 1) / parts;
    int const last = (part + 1) * share < ahead.rows ? (part + 1) * share : ahead.rows;
    for (int r = part * share; r < last; r++)
      for (int d = 0; d < ahead.dims; d += kLine<T>) __builtin_prefetch(ahead.first + r * ahead.stride + d, 0, 2);
  }
}

// All scores of a run of keys: register tiles of dot products.
template <class T>
HEADSPAN_INLINE void run_products(const Run& run, const T* const* rows, int dims, const T* q, T* s,
                                  const uint64_t* words, const Bias<T>& bias, Vec<T>* best, int r) {
  constexpr int width = kWidth<T>;
  cover(run.first_vector, run.last_vector, [&](auto vectors, int v) HEADSPAN_ALWAYS_INLINE {
    constexpr int keys = TileShape<vectors.value>::keys;
    for (int k = r; k < r + kKeyGroup; k += keys) {
      Bias<T> const here{bias.slope ? bias.slope + v * width : nullptr, bias.position + v * width, bias.key + k};
      dot_products<T, keys, vectors.value>(rows + k, dims, q + v * width, s + k * kLanes + v * width,
                                           words ? words + k : nullptr, v, here, best ? best + v : nullptr);
    }
  });
}

// o[d][lane] = o[d][lane] * alpha[lane] + sum of p[key][lane] * rows[key][d] over all keys of the tile.
template <class T>
HEADSPAN_INLINE void accumulate_tile(const TileKeys<T>& keys, const T* const* rows, int dims, const T* p, T* o,
                                     Vec<T>* alpha, bool careful) {
  constexpr int width = kWidth<T>;
  for (int i = 0; i < keys.run_count; i++) {
    Run const& run = keys.runs[i];
    if (careful)
      for (int j = run.first_vector; j < run.last_vector; j++)
        accumulate_careful(rows, dims, p + j * width, o + j * width, alpha + j, keys.words, j, run.first, run.last);
    else
      cover(run.first_vector, run.last_vector, [&](auto n, int v) HEADSPAN_ALWAYS_INLINE {
        accumulate<T, n.value>(rows, dims, p + v * width, o + v * width, alpha + v, run.first, run.last);
      });
    for (int j = run.first_vector; j < run.last_vector; j++) alpha[j] = broadcast(T(1));  // once a tile
  }
}

}  // namespace headspan::HEADSPAN_ISA
