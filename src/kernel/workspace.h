// SPDX-License-Identifier: BSD-3-Clause
// Workspace of the kernels, allocated from one block in a fixed order.
#pragma once

#include <stddef.h>

#include "base/attributes.h"
#include "base/tile.h"
#include "kernel/key_tile.h"
#include "kernel/matmul.h"
#include "kernel/rows/tile_rows.h"
#include "kernel/scores/positions.h"
#include "scores/dropout.h"
#include "scores/lane_span_mask.h"
#include "scores/score_terms.h"

namespace headspan::HEADSPAN_ISA {

struct Carver {
  char* at;
  template <class T>
  HEADSPAN_ALWAYS_INLINE T* take(size_t count) {
    T* const here = (T*)at;
    at += round_up(count * sizeof(T), 64);
    return here;
  }
};

// [dims][lanes], with room to read whole vectors of dimensions.
template <class T>
HEADSPAN_INLINE size_t lanes_size(int dims) {
  return round_up((size_t)dims, kWidth<T>) * kLanes;
}

template <class T>
struct Forward {
  T *q, *out, *carried_out, *scores, *pair_bias, *dropout, *maximum, *slope;
  T* carried_maximum;
  LanePositions<T>* lanes;
  double* sum;
  int* batches;
  ConvertedRoom<T> converted;

  HEADSPAN_ALWAYS_INLINE static Forward carve(char* workspace, int head_dim, int value_dim, char** end = nullptr) {
    Carver c{workspace};
    Forward f;
    f.q = c.take<T>(lanes_size<T>(head_dim));
    f.out = c.take<T>(lanes_size<T>(value_dim));
    f.carried_out = c.take<T>(lanes_size<T>(value_dim));
    f.scores = c.take<T>(kPaddedKeys * kLanes);
    f.pair_bias = c.take<T>(kTileKeys * kLanes);
    f.dropout = c.take<T>(kPaddedKeys * kLanes);
    f.maximum = c.take<T>(kLanes);
    f.slope = c.take<T>(kLanes);
    f.carried_maximum = c.take<T>(kLanes);
    f.lanes = c.take<LanePositions<T>>(1);
    f.sum = c.take<double>(kLanes);
    f.batches = c.take<int>(1);
    f.converted.key_stride = (ptrdiff_t)round_up((size_t)head_dim, kWidth<T>);
    f.converted.value_stride = (ptrdiff_t)round_up((size_t)value_dim, kWidth<T>);
    f.converted.key = c.take<T>((size_t)f.converted.key_stride * kTileKeys);
    f.converted.value = c.take<T>((size_t)f.converted.value_stride * kTileKeys);
    if (end) *end = c.at;
    return f;
  }
};

template <class T>
struct Backward {
  T *q, *grad_out, *grad_q, *carried_grad_q, *q_rows, *grad_out_rows, *scores, *grad_scores, *cap_slopes, *pair_bias,
      *dropout, *maximum, *inverse_sum, *delta, *slope, *unseen;
  LanePositions<T>* lanes;
  bool *rows_finite, *has_carried;
  ptrdiff_t* tiles;  // number computed so far
  ptrdiff_t q_stride, grad_out_stride;

  HEADSPAN_ALWAYS_INLINE static Backward carve(char* workspace, int head_dim, int value_dim, char** end = nullptr) {
    Carver c{workspace};
    Backward b;
    b.q_stride = (ptrdiff_t)round_up((size_t)head_dim, kWidth<T>);
    b.grad_out_stride = (ptrdiff_t)round_up((size_t)value_dim, kWidth<T>);
    b.q = c.take<T>(lanes_size<T>(head_dim));
    b.grad_out = c.take<T>(lanes_size<T>(value_dim));
    b.grad_q = c.take<T>(lanes_size<T>(head_dim));
    b.carried_grad_q = c.take<T>(lanes_size<T>(head_dim));
    b.q_rows = c.take<T>((size_t)b.q_stride * kLanes);
    b.grad_out_rows = c.take<T>((size_t)b.grad_out_stride * kLanes);
    b.scores = c.take<T>(kPaddedKeys * kLanes);
    b.grad_scores = c.take<T>(kPaddedKeys * kLanes);
    b.cap_slopes = c.take<T>(kPaddedKeys * kLanes);
    b.pair_bias = c.take<T>(kTileKeys * kLanes);
    b.dropout = c.take<T>(kPaddedKeys * kLanes);
    b.maximum = c.take<T>(kLanes);
    b.inverse_sum = c.take<T>(kLanes);
    b.delta = c.take<T>(kLanes);
    b.slope = c.take<T>(kLanes);
    b.unseen =
        c.take<T>((size_t)(b.q_stride > b.grad_out_stride ? b.q_stride : b.grad_out_stride));  // gradients of padding
    b.lanes = c.take<LanePositions<T>>(1);
    b.rows_finite = c.take<bool>(1);
    b.has_carried = c.take<bool>(1);
    b.tiles = c.take<ptrdiff_t>(1);
    if (end) *end = c.at;
    return b;
  }
};

template <class T>
size_t workspace_bytes(int head_dim, int value_dim) {
  char *forward, *backward;
  char* const base = (char*)64;  // only differences matter
  Forward<T>::carve(base, head_dim, value_dim, &forward);
  Backward<T>::carve(base, head_dim, value_dim, &backward);
  return (size_t)((forward > backward ? forward : backward) - base);
}

}  // namespace headspan::HEADSPAN_ISA
