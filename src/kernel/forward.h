// SPDX-License-Identifier: BSD-3-Clause
// The forward pass of one group of queries, and its weights.
//
// Numerical stability: the maximum is taken over visible pairs only, masked pairs hold -infinity; row sums are of type
// T within a tile and double between tiles; outputs and query gradients are of type T within a batch of tiles and are
// carried batch by batch, key gradients group by group.
#pragma once

#include <stddef.h>

#include "base/attributes.h"
#include "base/tile.h"
#include "kernel/interface.h"
#include "kernel/isa/instruction_set.h"
#include "kernel/key_tile.h"
#include "kernel/prefetch.h"
#include "kernel/rows/tile_rows.h"
#include "kernel/scores/positions.h"
#include "scores/lane_span_mask.h"
#include "scores/score_terms.h"
#include "workspace.h"

namespace headspan::HEADSPAN_ISA {

template <class T>
void forward_begin(const Group<T>& group, void* workspace) {
  Forward<T> const f = Forward<T>::carve((char*)workspace, group.head_dim, group.value_dim);
  T factor[kLanes];
  for (int i = 0; i < kLanes; i++) {
    factor[i] = T(group.scale[i] * kLog2e);
    f.slope[i] = T(group.slope[i] * kLog2e);
    T const sink = T(group.sink[i] * kLog2e);  // like a first key with this score and a value of 0
    f.maximum[i] = f.carried_maximum[i] = sink;
    f.sum[i] = sink > -kInfinity<T> ? 1 : 0;
  }
  lay_out_queries(group.query, group.lanes, factor, group.head_dim, f.q);
  memset(f.out, 0, lanes_size<T>(group.value_dim) * sizeof(T));
  if (group.ramp > 0 || group.biased) place_lanes(group, *f.lanes);
  *f.batches = 0;
}

// scores -> weights, in place, for the keys first .. last - 1 of one vector of lanes; returns their sum.
template <class T>
HEADSPAN_NOINLINE Vec<T> exponentials(const Group<T>& group, const TileKeys<T>& keys, const SoftBounds<T>* soft, T* s,
                                      Vec<T> maximum, int vector, int first, int last) {
  Vec<T> sum{};
  T const inverse_ramp = soft ? T(1) / group.ramp : T(0);
  LaneSpanMask<T> const mask(group, vector, soft, keys.distances);
  for (int of_group = first; of_group < last; of_group += kKeyGroup) {
    int const g = of_group / kKeyGroup;
    bool const masked = soft && mask.touches(keys.lowest[g], keys.highest[g]);
    unroll<kKeyGroup / kAtOnce>([&](auto part) HEADSPAN_ALWAYS_INLINE {
      int const r = of_group + part.value * kAtOnce;
      Vec<T> p[kAtOnce];
      unroll<kAtOnce>([&](auto i) HEADSPAN_ALWAYS_INLINE {
        __builtin_prefetch(keys.value[r + i.value] + vector * kLine<T>);  // read next; this loop has free load ports
        p[i.value] = load(s + (r + i.value) * kLanes) - maximum;
      });
      exp2_all<T>(p);
      if (masked)
        unroll<kAtOnce>(
            [&](auto i) HEADSPAN_ALWAYS_INLINE { p[i.value] *= mask.at(mask.distance(r + i.value), inverse_ramp); });
      unroll<kAtOnce>([&](auto i) HEADSPAN_ALWAYS_INLINE {
        sum += p[i.value];
        store(s + (r + i.value) * kLanes, p[i.value]);
      });
    });
  }
  return sum;
}

template <class T>
HEADSPAN_INLINE void forward_tile(const Group<T>& group, const Forward<T>& f, const Tile& tile, const Tile* next,
                                  RowsToPrefetch<T>& to_prefetch, bool far) {
  constexpr int width = kWidth<T>, vectors = kVectors<T>;
  TileKeys<T> keys;
  prepare(group, tile, *f.lanes, keys, next, f.converted);
  PairRows<T> pairs{f.pair_bias, {}};
  ScoreTerms<T> const terms = score_terms(group, tile, keys, f.slope, pairs);

  // step 1: scores and the new maximum
  Vec<T> best[vectors], alpha[vectors], sums[vectors];
  for (int j = 0; j < vectors; j++) best[j] = load(f.maximum + j * width);
  Fetch<T> fetch = to_prefetch.next(tile);
  if (far && fetch.lists == 0) fetch = {keys.value, 1};
  // If memory bandwidth is the limit, the next tile is prefetched, half of it during each of the two products.
  const T* next_rows[2 * kTileKeys];
  const T* const* next_values = nullptr;
  if (next && is_decode<T>(group.lanes) && keys.storage == group.key.storage) {
    stored_numbers<T>(*next, group.key, kTileKeys, next_rows, nullptr);
    stored_numbers<T>(*next, group.value, kTileKeys, next_rows + kTileKeys, nullptr);
    fetch = {next_rows, 1};
    next_values = next_rows + kTileKeys;
  }
  for (int i = 0; i < keys.run_count; i++)
    run_scores<T>(keys.runs[i], keys, terms, fetch, group, f.q, f.scores, nullptr, best);
  // step 2: weights, and the factor for the sums under the old maximum
  for (int j = 0; j < vectors; j++) {
    Vec<T> const old = load(f.maximum + j * width);
    store(f.maximum + j * width, best[j]);
    best[j] = finite_maximum(best[j]);
    alpha[j] = exp2(old - best[j]);
    sums[j] = Vec<T>{};
  }
  const SoftBounds<T>* const soft = tile.soft && group.ramp > 0 ? f.lanes->bounds : nullptr;
  for_each_key_range<T, 1>(keys, [&](int j, int first, int last) {
    sums[j] += exponentials(group, keys, soft, f.scores + j * width, best[j], j, first, last);
  });
  T alphas[kLanes], tile_sums[kLanes];
  for (int j = 0; j < vectors; j++) store(alphas + j * width, alpha[j]), store(tile_sums + j * width, sums[j]);
  for (int i = 0; i < kLanes; i++) f.sum[i] = f.sum[i] * alphas[i] + tile_sums[i];
  if (group.dropout.threshold) {
    dropout_factors(group, tile, keys, f.dropout);
    for (int i = 0; i < keys.run_count; i++) drop(keys.runs[i], f.dropout, f.scores);
  }
  // step 3: outputs
  accumulate_tile(keys, keys.value, next_values, group.value_dim, f.scores, f.out, alpha, group.lanes,
                  group.skip_masked && keys.lane_masks);
}

// carried = carried * 2^(carried maximum - maximum) + out; out = 0
template <class T>
HEADSPAN_NOINLINE void carry_output(const Group<T>& group, const Forward<T>& f) {
  constexpr int width = kWidth<T>;
  for (int j = 0; j < kVectors<T>; j++) {
    Vec<T> const now = load(f.maximum + j * width), old = load(f.carried_maximum + j * width);
    Vec<T> const alpha = exp2(old - finite_maximum(now));
    for (int d = 0; d < group.value_dim; d++) {
      T *out = f.out + d * kLanes + j * width, *carried = f.carried_out + d * kLanes + j * width;
      store(carried, load(carried) * alpha + load(out));
      store(out, Vec<T>{});
    }
    store(f.carried_maximum + j * width, now);
  }
}

template <class T>
void forward_step(const Group<T>& group, const Tile* tiles, int count, void* workspace) {
  Forward<T> const f = Forward<T>::carve((char*)workspace, group.head_dim, group.value_dim);
  if (*f.batches == 1) memset(f.carried_out, 0, lanes_size<T>(group.value_dim) * sizeof(T));
  if (*f.batches > 0) carry_output(group, f);
  ++*f.batches;
  RowsToPrefetch<T> to_prefetch(group.prefetch, tiles, *f.batches == 1 ? count : 0, 1);  // within the first step
  // Values are read column by column, which hardware does not prefetch. If a step has few keys, most values are still
  // in the cache from the previous group.
  size_t const row_bytes = (size_t)(group.head_dim + group.value_dim) * sizeof(T);
  bool const far = (size_t)count * kTileKeys * row_bytes >= size_t(1) << 20;  // half of the second-level cache
  for (int i = 0; i < count; i++)
    forward_tile(group, f, tiles[i], i + 1 < count ? &tiles[i + 1] : nullptr, to_prefetch, far);
}

template <class T>
bool forward_end(const Group<T>& group, ForwardRows<T>& rows, void* workspace) {
  Forward<T> const f = Forward<T>::carve((char*)workspace, group.head_dim, group.value_dim);
  bool const carried = *f.batches > 1;
  if (carried) carry_output(group, f);
  for (int i = 0; i < kLanes; i++) {
    rows.maximum[i] = f.maximum[i];
    rows.sum[i] = f.sum[i];
    rows.inverse_sum[i] = f.sum[i] == 0 ? T(0) : T(1 / f.sum[i]);
  }
  return lanes_to_rows(carried ? f.carried_out : f.out, rows.inverse_sum, group.value_dim, rows.out, group.lanes,
                       rows.past_caches);
}

// ---- weights, for attention maps

template <class T>
void weights_begin(const Group<T>& group, void* workspace) {
  forward_begin(group, workspace);
}

template <class T>
void weights_tile(const Group<T>& group, const Tile& tile, const ForwardRows<T>& rows, T* weights, void* workspace) {
  constexpr int width = kWidth<T>;
  Forward<T> const f = Forward<T>::carve((char*)workspace, group.head_dim, group.value_dim);
  TileKeys<T> keys;
  prepare(group, tile, *f.lanes, keys, nullptr, f.converted);
  PairRows<T> pairs{f.pair_bias, {}};
  ScoreTerms<T> const terms = score_terms(group, tile, keys, f.slope, pairs);
  memset(weights, 0, sizeof(T) * kTileKeys * kLanes);
  const SoftBounds<T>* const soft = tile.soft && group.ramp > 0 ? f.lanes->bounds : nullptr;
  if (group.dropout.threshold) dropout_factors(group, tile, keys, f.dropout);
  for (int i = 0; i < keys.run_count; i++) {
    Run const& run = keys.runs[i];
    run_scores<T>(run, keys, terms, {}, group, f.q, f.scores, nullptr, nullptr);
    for (int j = run.first_vector; j < run.last_vector; j++) {
      Vec<T> const maximum = finite_maximum(load(rows.maximum + j * width));
      exponentials(group, keys, soft, f.scores + j * width, maximum, j, run.first, run.last);
    }
    if (group.dropout.threshold) drop(run, f.dropout, f.scores);
    for (int j = run.first_vector; j < run.last_vector; j++)
      for (int r = run.first; r < run.last && r < tile.count; r++) {
        int const at = r * kLanes + j * width;
        Vec<T> const weight = load(f.scores + at) * load(rows.inverse_sum + j * width);
        // 0 where masked, even in a row whose sum is NaN
        store(weights + at, keys.lane_masks ? select(keys.lane_masks[r] >> (j * width), weight, Vec<T>{}) : weight);
      }
  }
}

// ---- products, for block selection

template <class T>
void products_tile(const Group<T>& group, const Tile& tile, T* products, void* workspace) {
  Forward<T> const f = Forward<T>::carve((char*)workspace, group.head_dim, group.value_dim);
  TileKeys<T> keys;
  prepare(group, tile, *f.lanes, keys, nullptr, f.converted);
  for (int i = 0; i < keys.run_count; i++)
    run_products<T>(keys.runs[i], keys.key, {}, group.head_dim, f.q, f.scores, nullptr, nullptr, group.lanes);
  for (int r = 0; r < tile.count; r++)
    memcpy(products + r * group.lanes, f.scores + r * kLanes, sizeof(T) * (size_t)group.lanes);
}

}  // namespace headspan::HEADSPAN_ISA
