// SPDX-License-Identifier: BSD-3-Clause
// The gradient of forward.h. With E = exp(s - maximum) / sum, the forward pass was
//     p = m * E,    out = sum of p * value
// and so, with dp = grad_out . value and delta = grad_out . out - grad_lse,
//     grad_value += p * grad_out          t = E * (dp - delta)          ds = m * t
//     grad_key   += ds * scale * query    grad_query += ds * scale * key
//     ramp * grad_span += t over 0 < m, x >= z         grad_slope -= ds * x         grad_bias += ds
// With dropout p is f * m * E where it meets values, and dp is f * (grad_out . value). ds, before it reaches query and
// key, is multiplied by the derivative of a soft cap.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/attributes.h"
#include "base/tile.h"
#include "kernel/interface.h"
#include "kernel/isa/instruction_set.h"
#include "kernel/key_tile.h"
#include "kernel/matmul.h"
#include "kernel/prefetch.h"
#include "kernel/rows/tile_rows.h"
#include "kernel/scores/positions.h"
#include "scores/lane_span_mask.h"
#include "scores/score_terms.h"
#include "workspace.h"

namespace headspan::HEADSPAN_ISA {

// Sum of a * b over a row.
template <class T>
HEADSPAN_INLINE T row_dot(const T* a, const T* b, int dims) {
  Vec<T> sum{};
  for_each_vector<T>(dims, [&](int, auto at) HEADSPAN_ALWAYS_INLINE { sum += at(a) * at(b); });
  T total = 0;
  for (int i = 0; i < kWidth<T>; i++) total += sum[i];
  return total;
}

template <class T>
HEADSPAN_NOINLINE bool rows_finite(const T* const* rows, int count, int dims) {
  Vec<T> finite{};
  for (int r = 0; r < count; r++)
    for_each_vector<T>(dims, [&](int, auto at) HEADSPAN_ALWAYS_INLINE { finite += at(rows[r]) * T(0); });
  return all_zero<T>(finite);
}

template <class T>
void backward_begin(const Group<T>& group, BackwardRows<T>& rows, void* workspace) {
  Backward<T> const b = Backward<T>::carve((char*)workspace, group.head_dim, group.value_dim);
  T factor[kLanes], one[kLanes];
  for (int i = 0; i < kLanes; i++) one[i] = 1;
  bool const grad_finite =
      copy_rows(rows.grad_out, group.lanes, one, group.value_dim, b.grad_out_stride, kLanes, b.grad_out_rows);
  const T* grad_out[kLanes];  // prefetched: rows may be far apart and leave the cache soon
  for (int i = 0; i < kLanes; i++) {
    grad_out[i] = b.grad_out_rows + i * b.grad_out_stride;
    factor[i] = T(group.scale[i] * kLog2e);
    b.slope[i] = T(group.slope[i] * kLog2e);
    b.maximum[i] = i >= group.lanes || rows.maximum[i] == -kInfinity<T> ? T(0) : rows.maximum[i];
    b.inverse_sum[i] = i >= group.lanes ? T(0) : rows.inverse_sum[i];
    b.delta[i] = i >= group.lanes ? T(0) : row_dot(grad_out[i], rows.out[i], group.value_dim) - rows.grad_lse[i];
    rows.grad_span[i] = rows.grad_slope[i] = 0;
  }
  lay_out_queries(grad_out, group.lanes, one, group.value_dim, b.grad_out);
  lay_out_queries(group.query, group.lanes, factor, group.head_dim, b.q);
  bool const q_finite = copy_rows(group.query, group.lanes, group.scale, group.head_dim, b.q_stride, kLanes, b.q_rows);
  // delta is NaN if out is, even if every input of the row is finite
  T deltas = 0;
  for (int i = 0; i < group.lanes; i++) deltas += b.delta[i] * 0;
  *b.rows_finite = q_finite && grad_finite && deltas == 0;
  if (group.ramp > 0 || group.biased) place_lanes(group, *b.lanes);
  *b.has_carried = false;
  *b.tiles = 0;
  memset(b.grad_q, 0, lanes_size<T>(group.head_dim) * sizeof(T));
  memset(b.unseen, 0, (size_t)(b.q_stride > b.grad_out_stride ? b.q_stride : b.grad_out_stride) * sizeof(T));
}

// scores -> weights p, dp -> ds, in place, for the keys first .. last - 1 of one vector of lanes; adds to the lane's
// sums of ramp * grad_span and grad_slope.
template <class T>
struct LaneSums {
  Vec<T> span, slope;
};
template <class T, bool soft, bool biased>
HEADSPAN_NOINLINE LaneSums<T> softmax_gradient(const Group<T>& group, const TileKeys<T>& keys,
                                               const SoftBounds<T>* bounds, T* s, T* dp, Vec<T> maximum,
                                               Vec<T> inverse_sum, Vec<T> delta, int vector, int first, int last) {
  constexpr int width = kWidth<T>;
  LaneSpanMask<T> const mask(group, vector, bounds, keys.distances);
  T const inverse_ramp = soft ? T(1) / group.ramp : T(0);
  Vec<T> span_sum{}, slope_sum{};
  for (int r = first; r < last; r++) {
    Vec<T> p = exp2(load(s + r * kLanes) - maximum) * inverse_sum;  // p = m * exp(s - maximum) / sum
    Vec<T> t = p * (load(dp + r * kLanes) - delta);                 // ds = m * t
    // exp2(-infinity) is 0, but 0 * NaN is not
    if (keys.lane_masks) t = select(keys.lane_masks[r] >> (vector * width), t, Vec<T>{});
    if (soft && mask.touches(keys.lowest[r / kKeyGroup], keys.highest[r / kKeyGroup])) {
      Vec<T> const x = mask.distance(r);
      Vec<T> const m = mask.at(x, inverse_ramp);
      span_sum += x >= mask.span ? t : Vec<T>{};
      p *= m;
      t *= m;
    }
    if (biased) slope_sum -= t * mask.distance(r);
    store(s + r * kLanes, p);
    store(dp + r * kLanes, t);
  }
  return {span_sum, slope_sum};
}

template <class T>
HEADSPAN_INLINE void softmax_gradient_tile(const Group<T>& group, BackwardRows<T>& rows, const Backward<T>& b,
                                           const TileKeys<T>& keys, bool soft) {
  constexpr int width = kWidth<T>;
  auto const choose = soft ? (group.biased ? softmax_gradient<T, true, true> : softmax_gradient<T, true, false>)
                           : (group.biased ? softmax_gradient<T, false, true> : softmax_gradient<T, false, false>);
  for_each_key_range<T, 1>(keys, [&](int j, int first, int last) {
    LaneSums<T> const sums =
        choose(group, keys, b.lanes->bounds, b.scores + j * width, b.grad_scores + j * width,
               load(b.maximum + j * width), load(b.inverse_sum + j * width), load(b.delta + j * width), j, first, last);
    if (soft)
      for (int i = 0; i < width; i++) rows.grad_span[j * width + i] += sums.span[i];
    if (group.biased)
      for (int i = 0; i < width; i++) rows.grad_slope[j * width + i] += sums.slope[i];
  });
}

// grad_bias += ds, for the keys of a run.
template <class T>
HEADSPAN_NOINLINE void bias_gradients_run(const Group<T>& group, const KeyGradients<T>& gradients,
                                          const TileKeys<T>& keys, const T* ds, const Tile& tile, const Run& run) {
  constexpr int width = kWidth<T>;
  for (int r = run.first; r < run.last && r < tile.count; r++) {
    if (keys.lane_masks && !keys.lane_masks[r]) continue;
    Vec<T> sum{};
    for (int j = run.first_vector; j < run.last_vector; j++)
      sum += select(all_lanes(group) >> (j * width), load(ds + r * kLanes + j * width), Vec<T>{});
    double total = 0;
    for (int i = 0; i < width; i++) total += (double)sum[i];
    *gradients.bias.row(key_index(tile, r)) += total;
  }
}

// Sets ds to 0 for the lanes that are in no run.
template <class T>
HEADSPAN_NOINLINE void zero_unseen(const TileKeys<T>& keys, int count, T* ds) {
  int r = 0;
  for (int i = 0; i <= keys.run_count; i++) {
    Run const none{count, count, 0, 0, 0};
    Run const& run = i < keys.run_count ? keys.runs[i] : none;
    for (; r < run.first; r++) memset(ds + r * kLanes, 0, kLanes * sizeof(T));
    for (; r < run.last; r++)
      for (int j = 0; j < kVectors<T>; j++)
        if (j < run.first_vector || j >= run.last_vector) store<T>(ds + r * kLanes + j * kWidth<T>, Vec<T>{});
  }
}

// ds of the capped product -> ds of the product itself.
template <class T>
HEADSPAN_NOINLINE void through_cap(const TileKeys<T>& keys, const Backward<T>& b, const Run& run) {
  for (int j = run.first_vector; j < run.last_vector; j++)
    for (int r = run.first; r < run.last; r++) {
      int const lane = j * kWidth<T>, at = r * kLanes + lane;
      Vec<T> const ds = load(b.grad_scores + at) * load(b.cap_slopes + at);
      // 0 where masked, even if the product is NaN
      store<T>(b.grad_scores + at, keys.lane_masks ? select(keys.lane_masks[r] >> lane, ds, Vec<T>{}) : ds);
    }
}

// grad_value += p * grad_out and grad_key += ds * scale * query, for the keys of a run.
template <class T>
HEADSPAN_INLINE void key_gradients_run(const Group<T>& group, const Backward<T>& b, const TileKeys<T>& keys,
                                       const KeyGradients<T>& gradients, T* const* grad_key, T* const* grad_value,
                                       bool skip_masked, const Run& run) {
  bool const wants_key = gradients.key.data, wants_value = gradients.value.data;
  if (!wants_key && !wants_value) return;
  tile_rows<kTallestTile>(run.first, run.last, [&](auto count, int r) HEADSPAN_ALWAYS_INLINE {
    uint64_t any = keys.lane_masks ? 0 : ~uint64_t(0);
    for (int i = r; i < r + count.value && keys.lane_masks; i++) any |= keys.lane_masks[i];
    any &= all_lanes(group);
    if (!any) return;
    if (skip_masked) {
      for (int i = r; i < r + count.value; i++) {
        uint64_t const lanes = keys.lane_masks[i] & all_lanes(group);
        if (wants_value)
          outer_unmasked(b.scores + i * kLanes, b.grad_out_rows, b.grad_out_stride, group.value_dim, grad_value[i],
                         lanes);
        if (wants_key)
          outer_unmasked(b.grad_scores + i * kLanes, b.q_rows, b.q_stride, group.head_dim, grad_key[i], lanes);
      }
      return;
    }
    int const first = __builtin_ctzll(any), last = 64 - __builtin_clzll(any);
    if (wants_value)
      outer_products<T, count.value>(b.scores + r * kLanes, b.grad_out_rows, b.grad_out_stride, group.value_dim,
                                     grad_value + r, first, last);
    if (wants_key)
      outer_products<T, count.value>(b.grad_scores + r * kLanes, b.q_rows, b.q_stride, group.head_dim, grad_key + r,
                                     first, last);
  });
}

// The gradient rows of the keys of a tile; `unseen` for keys that no lane sees.
template <class T>
HEADSPAN_INLINE void gradient_rows(const Tile& tile, const TileKeys<T>& keys, const KeyGradients<T>& gradients,
                                   T* unseen, T** grad_key, T** grad_value) {
  auto const seen = [&](int r) { return r < tile.count && (!keys.lane_masks || keys.lane_masks[r]); };
  bool const wants_key = gradients.key.data, wants_value = gradients.value.data;
  if (wants_key) rows_of(tile, gradients.key, grad_key);
  if (wants_value) rows_of(tile, gradients.value, grad_value);
  for (int r = 0; r < keys.padded; r++)
    if (!seen(r)) grad_key[r] = grad_value[r] = unseen;
}

template <class T>
HEADSPAN_INLINE void backward_tile(const Group<T>& group, BackwardRows<T>& rows, const KeyGradients<T>& gradients,
                                   const Backward<T>& b, const Tile& tile, RowsToPrefetch<T>& to_prefetch) {
  TileKeys<T> keys;
  prepare(group, tile, *b.lanes, keys);
  PairRows<T> pairs{b.pair_bias, {}};
  ScoreTerms<T> const terms = score_terms(group, tile, keys, b.slope, pairs);
  T *grad_key[kPaddedKeys], *grad_value[kPaddedKeys];
  gradient_rows(tile, keys, gradients, b.unseen, grad_key, grad_value);

  // step 1: scores as in the forward pass, and dp = grad_out . value
  Fetch<T> const key_fetch = to_prefetch.next(tile), value_fetch = to_prefetch.next(tile);
  for (int i = 0; i < keys.run_count; i++) {
    run_scores<T>(keys.runs[i], keys, terms, key_fetch, group, b.q, b.scores, b.cap_slopes, nullptr);
    run_products<T>(keys.runs[i], keys.value, value_fetch, group.value_dim, b.grad_out, b.grad_scores, nullptr, nullptr,
                    group.lanes);
  }
  // step 2: weights and ds
  bool const drops = group.dropout.threshold != 0;
  if (drops) dropout_factors(group, tile, keys, b.dropout);
  for (int i = 0; i < keys.run_count && drops; i++) drop(keys.runs[i], b.dropout, b.grad_scores);
  softmax_gradient_tile(group, rows, b, keys, tile.soft && group.ramp > 0);
  for (int i = 0; i < keys.run_count && drops; i++) drop(keys.runs[i], b.dropout, b.scores);
  if (gradients.bias.data)
    for (int i = 0; i < keys.run_count; i++)
      bias_gradients_run(group, gradients, keys, b.grad_scores, tile, keys.runs[i]);
  if (rows.pair_gradient.self) {
    zero_unseen(keys, tile.count, b.grad_scores);
    rows.pair_gradient.add(rows.pair_gradient.self, tile, b.grad_scores);
  }
  if (terms.cap)
    for (int i = 0; i < keys.run_count; i++) through_cap(keys, b, keys.runs[i]);
  // step 3: gradients of keys, values and queries
  bool const skip_masked_rows = keys.lane_masks && !*b.rows_finite;
  for (int i = 0; i < keys.run_count; i++)
    key_gradients_run(group, b, keys, gradients, grad_key, grad_value, skip_masked_rows, keys.runs[i]);
  if (!rows.needs_query) return;
  bool skip_masked_keys = false;
  if (keys.lane_masks)
    for (int i = 0; i < keys.run_count; i++)
      skip_masked_keys |=
          !rows_finite(keys.key + keys.runs[i].first, keys.runs[i].last - keys.runs[i].first, group.head_dim);
  Vec<T> one[kVectors<T>];
  for (int j = 0; j < kVectors<T>; j++) one[j] = broadcast(T(1));
  accumulate_tile<T>(keys, keys.key, nullptr, group.head_dim, b.grad_scores, b.grad_q, one, group.lanes,
                     skip_masked_keys);
}

// Query gradients are summed in type T over a batch of tiles, then added to the carried sums.
template <class T>
HEADSPAN_NOINLINE void carry_grad_query(const Group<T>& group, const Backward<T>& b) {
  size_t const n = (size_t)group.head_dim * kLanes;
  if (!*b.has_carried) memset(b.carried_grad_q, 0, lanes_size<T>(group.head_dim) * sizeof(T));
  *b.has_carried = true;
  for (size_t i = 0; i < n; i++) {
    b.carried_grad_q[i] += b.grad_q[i];
    b.grad_q[i] = 0;
  }
}

template <class T>
void backward_step(const Group<T>& group, BackwardRows<T>& rows, const KeyGradients<T>& gradients, const Tile* tiles,
                   int count, void* workspace) {
  Backward<T> const b = Backward<T>::carve((char*)workspace, group.head_dim, group.value_dim);
  RowsToPrefetch<T> to_prefetch(group.prefetch, tiles, *b.tiles == 0 ? count : 0, 2);  // within the first step
  for (int i = 0; i < count; i++, ++*b.tiles) {
    if (*b.tiles > 0 && *b.tiles % kBatchTiles == 0) carry_grad_query(group, b);
    backward_tile(group, rows, gradients, b, tiles[i], to_prefetch);
  }
}

template <class T>
void backward_end(const Group<T>& group, BackwardRows<T>& rows, void* workspace) {
  Backward<T> const b = Backward<T>::carve((char*)workspace, group.head_dim, group.value_dim);
  if (!rows.needs_query) return;
  if (*b.has_carried) carry_grad_query(group, b);
  lanes_to_rows(*b.has_carried ? b.carried_grad_q : b.grad_q, group.scale, group.head_dim, rows.grad_query, group.lanes,
                rows.past_caches);
}

}  // namespace headspan::HEADSPAN_ISA
