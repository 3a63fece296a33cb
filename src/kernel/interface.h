// SPDX-License-Identifier: BSD-3-Clause
// The interface of the kernel: plain structs and function pointers. A kernel computes one group of at most 64 queries
// against a list of key tiles. It does not know patterns, batches, heads or threads.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/attributes.h"
#include "base/pair_hash.h"
#include "base/tile.h"
#include "rows/row_source.h"

namespace headspan {

constexpr double kLog2e = 1.44269504088896340736;  // exponentials are powers of 2

// Rows to which the kernel adds, or numbers of keys.
template <class T>
struct Rows {
  T* data;
  ptrdiff_t stride;  // elements from one row to the next; a row itself is contiguous
  HEADSPAN_ALWAYS_INLINE T* row(ptrdiff_t index) const { return data + index * stride; }
};

// Rows that the next group needs. They are prefetched during the current group, a few at a time.
template <class T>
struct PrefetchArray {
  const T* first;
  ptrdiff_t stride;
  const ptrdiff_t* index;  // of each row; null: consecutive rows
  int rows, dims;
};
constexpr int kPrefetchArrays = 8;  // maximum number of prefetched arrays

// Numbers added to the scores of pairs, provided by the caller.
template <class T>
struct PairBias {
  const void* self;  // null: none
  bool removes;      // whether a number may be -infinity, which excludes its pair
  // Sets rows[r] to the kLanes numbers for key r of a tile, times log2(e), for each of its keys. `room` has space for
  // all of them if they are not in memory yet.
  void (*rows)(const void* self, const Tile&, T* room, const T** rows);
};

// The receiver of the gradient of the scores of a tile: ds[key * kLanes + lane], 0 where masked.
template <class T>
struct PairGradient {
  void* self;  // null: none
  void (*add)(void* self, const Tile&, const T* ds);
};

// Dropout: the weights of pairs whose hash is below the threshold are dropped.
template <class T>
struct Dropout {
  uint32_t threshold;                      // 0: none
  T kept;                                  // factor of the weights that are kept
  uint32_t first_key;                      // number of key 0
  uint32_t first[kLanes], second[kLanes];  // words of the queries
};

// The queries of a group and the parameters of their pairs.
template <class T>
struct Group {
  int lanes;
  int head_dim, value_dim;
  bool biased;       // slopes are not all zero
  bool skip_masked;  // a masked pair may hold NaN or infinity: never multiply it, even by zero
  T ramp;            // 0: no span, or a hard window, which the lane masks of the tiles already express
  int axes;          // of a position; the distance of a pair is the largest along them
  double query_position[kAxes][kLanes];
  const double* key_position[kAxes];  // null: the position of a key is its index
  RowSource key, value;               // of one storage type
  Rows<const T> key_bias;             // a number for each key, added to its scores; data null: none
  PairBias<T> pair_bias;
  Dropout<T> dropout;
  PrefetchArray<T> prefetch[kPrefetchArrays];  // unused: no rows
  const T* query[kLanes];
  T scale[kLanes];  // scale / temperature
  T span[kLanes];   // infinity: unlimited
  T slope[kLanes];
  T softcap;       // of the products; 0: none
  T sink[kLanes];  // a score that takes weight and has no value; -infinity: none
};

template <class T>
HEADSPAN_INLINE double key_position(const Group<T>& group, int axis, ptrdiff_t key) {
  const double* const positions = group.key_position[axis];
  return positions ? positions[key] : (double)key;
}

// The set of all lanes that hold a query.
template <class T>
HEADSPAN_INLINE uint64_t all_lanes(const Group<T>& group) {
  return ~uint64_t(0) >> (kLanes - group.lanes);
}

// The results of the forward pass for each lane. The maximum is that of s * log2(e), -infinity for a row without keys;
// the sum is that of m * 2^(s * log2(e) - maximum). Weights are computed from these two instead of their log-sum-exp,
// which cannot represent the sum next to a large maximum.
template <class T>
struct ForwardRows {
  T* out[kLanes];
  T maximum[kLanes];
  double sum[kLanes];
  T inverse_sum[kLanes];  // 0 for a row without keys
  bool past_caches;       // `out` consists of whole lines, to be written by store_past_caches
};

// Gradient rows of the keys, to which the kernel adds. Rows with null data are not computed.
template <class T>
struct KeyGradients {
  Rows<T> key, value;
  Rows<double> bias;  // sums of the current head
};

template <class T>
struct BackwardRows {
  const T *out[kLanes], *grad_out[kLanes];
  T maximum[kLanes], inverse_sum[kLanes];  // as from the forward pass
  T grad_lse[kLanes];
  bool needs_query;  // whether grad_query is requested
  T* grad_query[kLanes];
  bool past_caches;          // as above, for `grad_query`
  double grad_span[kLanes];  // ramp * gradient
  double grad_slope[kLanes];
  PairGradient<T> pair_gradient;
};

// One variant. Call begin, then step for each batch of tiles, then end, all with the same workspace (64-byte aligned).
template <class T>
struct Kernel {
  bool stores_past_caches;  // whether `past_caches` of the rows makes a difference
  size_t (*workspace_bytes)(int head_dim, int value_dim);

  void (*forward_begin)(const Group<T>&, void* workspace);
  void (*forward_step)(const Group<T>&, const Tile*, int tiles, void* workspace);
  // False if a row is NaN or infinite. Unless `skip_masked` is set, a masked pair may be the reason, and the group is
  // computed again.
  bool (*forward_end)(const Group<T>&, ForwardRows<T>&, void* workspace);

  // Weights of a tile, from the rows of the forward pass: weights[key * kLanes + lane], 0 where masked.
  void (*weights_begin)(const Group<T>&, void* workspace);
  void (*weights_tile)(const Group<T>&, const Tile&, const ForwardRows<T>&, T* weights, void* workspace);

  // To be called after forward_begin: products of the queries with the keys of a tile, times scale and log2(e), without
  // other terms: products[key * lanes + lane].
  void (*products_tile)(const Group<T>&, const Tile&, T* products, void* workspace);

  void (*backward_begin)(const Group<T>&, BackwardRows<T>&, void* workspace);
  // The tiles may be divided into any number of steps: only their order matters.
  void (*backward_step)(const Group<T>&, BackwardRows<T>&, const KeyGradients<T>&, const Tile*, int tiles,
                        void* workspace);
  void (*backward_end)(const Group<T>&, BackwardRows<T>&, void* workspace);

  double (*multiply_adds)(long rounds, T* value);  // see peak.h
};

struct Variant {
  const char* name;
  bool (*available)();
  Kernel<float> (*float32)();
  Kernel<double> (*float64)();
  // Rows of narrower types, see rows/stored_row.h.
  void (*read_row)(Storage, const Byte* row, ptrdiff_t dims, float* to);
  void (*write_row)(Storage, const float* row, ptrdiff_t dims, Byte* to);
};

}  // namespace headspan
