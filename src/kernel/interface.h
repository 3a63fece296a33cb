// SPDX-License-Identifier: BSD-3-Clause
// The kernel's front door: plain structs and function pointers. A kernel computes one group of at most 64 queries
// against a list of key tiles; it knows no pattern, no batch, no head and no thread.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/attributes.h"
#include "base/pair_hash.h"
#include "base/row_places.h"
#include "base/stored_rows.h"
#include "base/tile.h"

namespace headspan {

constexpr double kLog2e = 1.44269504088896340736;  // exponentials are powers of 2

template <class T>
struct Rows {
  T* data;
  ptrdiff_t stride;    // elements from one row to the next; a row itself is contiguous
  ptrdiff_t step = 1;  // only every n-th index has a row
  // Of a cache, whose rows are at these places or in these pages; those that it does not have yet follow elsewhere.
  // Null: plain rows.
  const RowPlaces* places = nullptr;
  void* const* pages = nullptr;
  T* following = nullptr;
  ptrdiff_t following_stride = 0;
  // Asked for with > 1: of `step == 1 ? index : index / step` compilers make a division, which takes long.
  HEADSPAN_ALWAYS_INLINE T* row(ptrdiff_t index) const {
    if (places) return index < places->count ? row_of_cache(index) : following_row(index);
    return data + (step > 1 ? index / step : index) * stride;
  }
  HEADSPAN_ALWAYS_INLINE T* row_of_cache(ptrdiff_t index) const {
    return pages ? (T*)pages[index / kPageRows] + index % kPageRows * stride : data + places->of(index) * stride;
  }
  HEADSPAN_ALWAYS_INLINE T* following_row(ptrdiff_t index) const {
    return following + (index - places->count) * following_stride;
  }
};

// Rows that the next group will need. They are fetched while this one is computed, a few at a time.
template <class T>
struct PrefetchArray {
  const T* first;
  ptrdiff_t stride;
  const ptrdiff_t* index;  // of each row; null: one after another
  int rows, dims;
};
constexpr int kPrefetchArrays = 8;  // most arrays to fetch from

// Numbers added to the scores of pairs, which somebody else knows.
template <class T>
struct PairBias {
  const void* self;  // null: none
  bool removes;      // whether a number may be -infinity, which leaves its pair out
  // Lets rows[r] be the kLanes numbers of key r of a tile, times log2(e), for each of its keys; there is `room` for all
  // of them where they lie nowhere yet.
  void (*rows)(const void* self, const Tile&, T* room, const T** rows);
};

// Who is told the gradient of the scores of a tile: ds[key * kLanes + lane], 0 where masked.
template <class T>
struct PairGradient {
  void* self;  // null: nobody
  void (*add)(void* self, const Tile&, const T* ds);
};

// Which weights are dropped: those of pairs whose hash is below the threshold.
template <class T>
struct Dropout {
  uint32_t threshold;                      // 0: none
  T kept;                                  // what the others are multiplied by
  uint32_t first_key;                      // number of key 0
  uint32_t first[kLanes], second[kLanes];  // words of the queries
};

// The queries of a group and what they meet.
template <class T>
struct Group {
  int lanes;
  int head_dim, value_dim;
  bool biased;       // slopes are not all zero
  bool skip_masked;  // a masked pair may hold NaN or infinity: never multiply it, not even by zero
  T ramp;            // 0: no span, or a hard window, which the tiles' lane masks already express
  int axes;          // of a position; the distance of a pair is the largest of theirs
  double query_position[kAxes][kLanes];
  const double* key_position[kAxes];  // null: a key stands at its index
  Rows<const T> key, value;
  Storage storage;                                     // not `same`: keys and values are these rows instead
  Rows<const unsigned char> stored_key, stored_value;  // strides in bytes
  Rows<const T> key_bias;                              // a number for each key, added to its scores; data null: none
  PairBias<T> pair_bias;
  Dropout<T> dropout;
  PrefetchArray<T> prefetch[kPrefetchArrays];  // unused: no rows
  const T* query[kLanes];
  T scale[kLanes];  // scale / temperature
  T span[kLanes];   // infinity: unlimited
  T slope[kLanes];
  T softcap;       // of the products; 0: none
  T sink[kLanes];  // a score that takes its share of the sum and has no value; -infinity: none
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

// What the forward pass gives for each lane. The maximum is of s * log2(e), -infinity for a row that has no key; the
// sum is of m * 2^(s * log2(e) - maximum). A weight is taken from these two and not from their log-sum-exp, which
// cannot hold the sum beside a large maximum.
template <class T>
struct ForwardRows {
  T* out[kLanes];
  T maximum[kLanes];
  double sum[kLanes];
  T inverse_sum[kLanes];  // 0 for a row that has no key
  bool past_caches;       // `out` is whole lines, to be written by store_past_caches
};

// Gradient rows of the keys, which are added to. Those with data null are not wanted, and not computed.
template <class T>
struct KeyGradients {
  Rows<T> key, value;
  Rows<double> bias;  // sums of the head at work
};

template <class T>
struct BackwardRows {
  const T *out[kLanes], *grad_out[kLanes];
  T maximum[kLanes], inverse_sum[kLanes];  // as from the forward pass
  T grad_lse[kLanes];
  bool needs_query;  // whether grad_query is wanted
  T* grad_query[kLanes];
  bool past_caches;          // as above, for `grad_query`
  double grad_span[kLanes];  // ramp * gradient
  double grad_slope[kLanes];
  PairGradient<T> pair_gradient;
};

// One variant. begin, then step for each batch of tiles, then end, all on the same workspace (64-byte aligned).
template <class T>
struct Kernel {
  bool stores_past_caches;  // whether `past_caches` of the rows makes a difference
  size_t (*workspace_bytes)(int head_dim, int value_dim);

  void (*forward_begin)(const Group<T>&, void* workspace);
  void (*forward_step)(const Group<T>&, const Tile*, int tiles, void* workspace);
  // False if a row came out NaN or infinite: unless `skip_masked`, a masked pair may be to blame, and the group is done
  // again.
  bool (*forward_end)(const Group<T>&, ForwardRows<T>&, void* workspace);

  // Weights of a tile, from the rows of the forward pass: weights[key * kLanes + lane], 0 where masked.
  void (*weights_begin)(const Group<T>&, void* workspace);
  void (*weights_tile)(const Group<T>&, const Tile&, const ForwardRows<T>&, T* weights, void* workspace);

  // After forward_begin: products of the queries with a tile's keys, times scale and log2(e), and nothing else:
  // products[key * lanes + lane].
  void (*products_tile)(const Group<T>&, const Tile&, T* products, void* workspace);

  void (*backward_begin)(const Group<T>&, BackwardRows<T>&, void* workspace);
  // The tiles may come in any number of steps: only their order counts.
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
  // Rows of fewer bytes, see stored_rows.h.
  void (*read_row)(Storage, const unsigned char* row, ptrdiff_t dims, float* to);
  void (*write_row)(Storage, const float* row, ptrdiff_t dims, unsigned char* to);
};

}  // namespace headspan
