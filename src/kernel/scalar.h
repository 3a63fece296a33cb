// SPDX-License-Identifier: BSD-3-Clause
// The kernel as plain scalar loops over visible pairs: the variant HEADSPAN_ISA=scalar. It defines the results of
// vector.h.
//
//     s = cap * tanh(scale * query . key / cap) - slope * x + bias of the key + bias of the pair
//     w = m * exp(s) / (exp(sink) + sum of m * exp(s)),   out = sum of f * w * value, f of dropout
#pragma once

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/attributes.h"
#include "base/span_mask.h"
#include "base/tile.h"
#include "interface.h"
#include "peak.h"
#include "rows/row_source.h"
#include "rows/stored_row.h"

namespace headspan::HEADSPAN_ISA {

template <class T>
HEADSPAN_INLINE double dot(const T* a, const T* b, int n) {
  double sum = 0;
  for (int d = 0; d < n; d++) sum += (double)a[d] * (double)b[d];
  return sum;
}

// The row of a key or a value, which is of type T.
template <class T>
HEADSPAN_INLINE const T* row_of(const RowSource& source, ptrdiff_t key) {
  return (const T*)source.row(key);
}

// An element of the row of a key or a value, of any type.
template <class T>
HEADSPAN_INLINE double number(const RowSource& source, ptrdiff_t key, int d) {
  if (source.storage == Storage::same) return (double)row_of<T>(source, key)[d];
  const Byte* const row = source.row(key);
  T x;
  if (source.storage != Storage::int8) {
    read_row(source.storage, row + 2 * d, 1, &x);
  } else {
    Byte alone[sizeof(float) + 1];  // the scale and one element
    memcpy(alone, row, sizeof(float));
    alone[sizeof(float)] = row[sizeof(float) + (size_t)d];
    read_row(source.storage, alone, 1, &x);
  }
  return (double)x;
}

// The numbers for the pairs of a tile that the caller provides.
template <class T>
struct PairNumbers {
  T room[kTileKeys * kLanes];
  const T* rows[kTileKeys];
  PairNumbers(const Group<T>& group, const Tile& tile) {
    if (group.pair_bias.self) group.pair_bias.rows(group.pair_bias.self, tile, room, rows);
  }
};

// Whether a lane sees a key. A key that is masked, or removed by a number of -infinity, is not read for it.
template <class T>
HEADSPAN_INLINE bool visible(const Group<T>& group, const Tile& tile, const PairNumbers<T>& numbers, int r, int lane) {
  if (tile.lane_masks && !(tile.lane_masks[r] >> lane & 1)) return false;
  return !group.pair_bias.removes || numbers.rows[r][lane] != -(T)__builtin_inf();
}

// A pair of the definition: its distance x, mask m and score s, times log2(e) and rounded to T, so that a maximum
// stored in T equals one of the scores exactly; and the derivative of the soft cap.
struct Pair {
  double x, m, s, cap_slope;
};
template <class T>
HEADSPAN_INLINE Pair pair(const Group<T>& group, const Tile& tile, const PairNumbers<T>& numbers, int r, int lane) {
  ptrdiff_t const key = key_index(tile, r);
  Pair p;
  p.x = 0;
  for (int axis = 0; axis < group.axes; axis++) {
    double const x = fabs(group.query_position[axis][lane] - key_position(group, axis, key));
    p.x = x > p.x ? x : p.x;
  }
  double const ramp = (double)group.ramp, floor = sizeof(T) == 4 ? __FLT_EPSILON__ / 2 : __DBL_EPSILON__ / 2;
  p.m = tile.soft && ramp > 0 ? soft_mask(p.x, (double)group.span[lane], ramp, 1 / ramp, floor, 1.0) : 1.0;
  double product = 0;
  for (int d = 0; d < group.head_dim; d++) product += (double)group.query[lane][d] * number<T>(group.key, key, d);
  product *= (double)group.scale[lane];
  double const cap = (double)group.softcap;
  p.cap_slope = 1;
  if (cap > 0) {
    double const t = tanh(product / cap);
    product = cap * t;
    p.cap_slope = 1 - t * t;
  }
  double const s =
      product - (double)group.slope[lane] * p.x + (group.key_bias.data ? (double)*group.key_bias.row(key) : 0);
  p.s = (double)(T)(s * kLog2e + (group.pair_bias.self ? (double)numbers.rows[r][lane] : 0));
  return p;
}

// The factor of dropout for a weight.
template <class T>
HEADSPAN_INLINE double dropout_factor(const Group<T>& group, const Tile& tile, int r, int lane) {
  const Dropout<T>& dropout = group.dropout;
  if (!dropout.threshold) return 1;
  uint32_t const key = dropout.first_key + (uint32_t)key_index(tile, r);
  return pair_hash(dropout.first[lane], dropout.second[lane], key) >= dropout.threshold ? (double)dropout.kept : 0;
}

// Scratch: for each lane the maximum of s, the sum of m * 2^(s - maximum) and value_dim (head_dim) sums.
struct Lane {
  double maximum, sum;
};
HEADSPAN_INLINE Lane* lanes(void* workspace) { return (Lane*)workspace; }
HEADSPAN_INLINE double* sums(void* workspace, int lane, int dims) {
  return (double*)(lanes(workspace) + kLanes) + (ptrdiff_t)lane * dims;
}

template <class T>
size_t workspace_bytes(int head_dim, int value_dim) {
  return sizeof(Lane) * kLanes + sizeof(double) * kLanes * (size_t)((head_dim > value_dim ? head_dim : value_dim) + 1);
}

template <class T>
void forward_begin(const Group<T>& group, void* workspace) {
  for (int lane = 0; lane < group.lanes; lane++) {
    double const sink = (double)(T)(group.sink[lane] * kLog2e);
    lanes(workspace)[lane] = {sink, sink > -__builtin_inf() ? 1.0 : 0.0};
    for (int d = 0; d < group.value_dim; d++) sums(workspace, lane, group.value_dim)[d] = 0;
  }
}

template <class T>
void forward_step(const Group<T>& group, const Tile* tiles, int count, void* workspace) {
  for (const Tile* tile = tiles; tile < tiles + count; tile++) {
    PairNumbers<T> const numbers(group, *tile);
    for (int lane = 0; lane < group.lanes; lane++)
      for (int r = 0; r < tile->count; r++) {
        if (!visible(group, *tile, numbers, r, lane)) continue;
        Pair const p = pair(group, *tile, numbers, r, lane);
        Lane& row = lanes(workspace)[lane];
        double* const out = sums(workspace, lane, group.value_dim);
        double const maximum = p.s > row.maximum || p.s != p.s ? p.s : row.maximum;
        double const past = row.maximum == maximum ? 1 : exp2(row.maximum - maximum);
        double const w = p.s == -__builtin_inf() ? 0 : p.m * exp2(p.s - maximum);
        double const f = dropout_factor(group, *tile, r, lane);
        row.sum = row.sum * past + w;
        for (int d = 0; d < group.value_dim; d++)
          out[d] = out[d] * past + w * f * number<T>(group.value, key_index(*tile, r), d);
        row.maximum = maximum;
      }
  }
}

template <class T>
bool forward_end(const Group<T>& group, ForwardRows<T>& rows, void* workspace) {
  for (int lane = 0; lane < group.lanes; lane++) {
    Lane const& row = lanes(workspace)[lane];
    rows.maximum[lane] = T(row.maximum);
    rows.sum[lane] = row.sum;
    rows.inverse_sum[lane] = rows.sum[lane] == 0 ? T(0) : T(1 / rows.sum[lane]);
    for (int d = 0; d < group.value_dim; d++)
      rows.out[lane][d] = row.sum == 0 ? T(0) : T(sums(workspace, lane, group.value_dim)[d] / row.sum);
  }
  return true;  // masked pairs are never read
}

template <class T>
void weights_begin(const Group<T>&, void*) {}

// 2^(s - maximum) / sum of a pair; times the mask m it is the weight.
HEADSPAN_INLINE double unmasked_weight(const Pair& p, double maximum, double inverse_sum) {
  return maximum == -__builtin_inf() ? 0 : exp2(p.s - maximum) * inverse_sum;
}

template <class T>
void weights_tile(const Group<T>& group, const Tile& tile, const ForwardRows<T>& rows, T* weights, void*) {
  PairNumbers<T> const numbers(group, tile);
  for (int r = 0; r < kTileKeys; r++)
    for (int lane = 0; lane < kLanes; lane++) {
      T& w = weights[r * kLanes + lane];
      w = 0;
      if (r >= tile.count || lane >= group.lanes || !visible(group, tile, numbers, r, lane)) continue;
      Pair const p = pair(group, tile, numbers, r, lane);
      w = T(dropout_factor(group, tile, r, lane) * p.m *
            unmasked_weight(p, (double)rows.maximum[lane], (double)rows.inverse_sum[lane]));
    }
}

template <class T>
void products_tile(const Group<T>& group, const Tile& tile, T* products, void*) {
  for (int r = 0; r < tile.count; r++)
    for (int lane = 0; lane < group.lanes; lane++)
      products[r * group.lanes + lane] =
          T(dot(group.query[lane], row_of<T>(group.key, key_index(tile, r)), group.head_dim) *
            (double)group.scale[lane] * kLog2e);
}

// Workspace of the backward pass, after the sums: sum(grad_out * out) - grad_lse of each lane.
template <class T>
HEADSPAN_INLINE double* deltas(const Group<T>& group, void* workspace) {
  return sums(workspace, kLanes, group.head_dim);
}

template <class T>
void backward_begin(const Group<T>& group, BackwardRows<T>& rows, void* workspace) {
  for (int lane = 0; lane < group.lanes; lane++) {
    rows.grad_span[lane] = rows.grad_slope[lane] = 0;
    for (int d = 0; d < group.head_dim; d++) sums(workspace, lane, group.head_dim)[d] = 0;
    deltas(group, workspace)[lane] =
        dot(rows.grad_out[lane], rows.out[lane], group.value_dim) - (double)rows.grad_lse[lane];
  }
}

template <class T>
void backward_step(const Group<T>& group, BackwardRows<T>& rows, const KeyGradients<T>& gradients, const Tile* tiles,
                   int count, void* workspace) {
  for (const Tile* tile = tiles; tile < tiles + count; tile++) {
    PairNumbers<T> const numbers(group, *tile);
    T pair_gradients[kTileKeys * kLanes] = {};
    for (int r = 0; r < tile->count; r++) {
      ptrdiff_t const key = key_index(*tile, r);
      for (int lane = 0; lane < group.lanes; lane++) {
        if (!visible(group, *tile, numbers, r, lane)) continue;
        Pair const p = pair(group, *tile, numbers, r, lane);
        double const e = unmasked_weight(p, (double)rows.maximum[lane], (double)rows.inverse_sum[lane]);
        double const f = dropout_factor(group, *tile, r, lane);
        // out = sum of f * m * e * value
        for (int d = 0; d < group.value_dim && gradients.value.data; d++)
          gradients.value.row(key)[d] += T(f * p.m * e * (double)rows.grad_out[lane][d]);
        double const t = e * (f * dot(rows.grad_out[lane], row_of<T>(group.value, key), group.value_dim) -
                              deltas(group, workspace)[lane]);
        // s = cap * tanh(scale * query . key / cap) - slope * x + bias
        double const ds = p.m * t, of_product = ds * p.cap_slope;
        double* const grad_query = sums(workspace, lane, group.head_dim);
        for (int d = 0; d < group.head_dim; d++) {
          if (gradients.key.data)
            gradients.key.row(key)[d] += T(of_product * (double)group.scale[lane] * (double)group.query[lane][d]);
          grad_query[d] += of_product * (double)group.scale[lane] * (double)row_of<T>(group.key, key)[d];
        }
        rows.grad_slope[lane] -= ds * p.x;
        if (gradients.bias.data) *gradients.bias.row(key) += ds;
        pair_gradients[r * kLanes + lane] = T(ds);
        // m = (R + z - x) / R
        if (tile->soft && group.ramp > 0 && p.x >= (double)group.span[lane]) rows.grad_span[lane] += t;
      }
    }
    if (rows.pair_gradient.self) rows.pair_gradient.add(rows.pair_gradient.self, *tile, pair_gradients);
  }
}

template <class T>
void backward_end(const Group<T>& group, BackwardRows<T>& rows, void* workspace) {
  for (int lane = 0; lane < group.lanes && rows.needs_query; lane++)
    for (int d = 0; d < group.head_dim; d++) rows.grad_query[lane][d] = T(sums(workspace, lane, group.head_dim)[d]);
}

template <class T>
Kernel<T> kernel() {
  return {
      false,           workspace_bytes<T>, forward_begin<T>,  forward_step<T>,  forward_end<T>,  weights_begin<T>,
      weights_tile<T>, products_tile<T>,   backward_begin<T>, backward_step<T>, backward_end<T>, multiply_adds<T, T>};
}

}  // namespace headspan::HEADSPAN_ISA
