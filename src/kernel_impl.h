// SPDX-License-Identifier: BSD-3-Clause
// Forward and backward of one group of queries, compiled once per instruction set. It knows no pattern and no thread.
// reference.h has the same in plain loops: read that first.
//
// Numerical stability: the maximum is taken over visible pairs only, masked pairs hold -infinity; row sums are of type T
// within a tile and double between tiles; outputs and query gradients are of type T within a batch of tiles and are
// carried batch by batch, key gradients group by group.
#pragma once

#include "micro_kernels.h"
#include "soft_mask.h"

namespace headspan::HEADSPAN_ISA {

constexpr double kLog2e = 1.44269504088896340736;

template <class T>
constexpr T kInfinity = T(__builtin_inf());
template <class T>
constexpr T kEpsilon = sizeof(T) == 4 ? T(__FLT_EPSILON__) : T(__DBL_EPSILON__);

// ---- the soft mask of one vector of lanes

// Where the mask of some lane of a vector falls: keys up to `before` and from `from` on.
template <class T>
struct SoftBounds {
  T before, from;
};
template <class T>
HEADSPAN_NOINLINE void soft_bounds(const Group<T>& group, SoftBounds<T>* bounds) {
  for (int j = 0; j < kVectors<T>; j++) {
    T before = -kInfinity<T>, from = kInfinity<T>;
    for (int i = j * kWidth<T>; i < (j + 1) * kWidth<T>; i++) {
      T const low = group.position[i] - group.span[i], high = group.position[i] + group.span[i];
      before = low > before ? low : before;
      from = high < from ? high : from;
    }
    bounds[j] = {before, from};
  }
}

template <class T>
struct LaneMask {
  Vec<T> position, span, edge;
  SoftBounds<T> bounds;

  HEADSPAN_ALWAYS_INLINE LaneMask(const Group<T>& group, int vector, const SoftBounds<T>* all) {
    position = load(group.position + vector * kWidth<T>);
    span = load(group.span + vector * kWidth<T>);
    edge = span + group.ramp;
    if (all) bounds = all[vector];
  }
  // Whether the mask falls for some pair with keys at lowest .. highest. Asked for a key group at once: a branch for every
  // key would be mispredicted all along the edge of a band.
  HEADSPAN_ALWAYS_INLINE bool touches(T lowest, T highest) const { return lowest <= bounds.before || highest >= bounds.from; }
  HEADSPAN_ALWAYS_INLINE Vec<T> distance(T key) const { return absolute<T>(position - key); }
  HEADSPAN_ALWAYS_INLINE Vec<T> at(Vec<T> x, T inverse_ramp) const {
    return soft_mask(x, edge, broadcast(inverse_ramp), broadcast(kEpsilon<T> / 2), broadcast(T(1)));
  }
};

// ---- scratch: carved from one block in a fixed order

HEADSPAN_INLINE size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

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
  T *q, *out, *carried_out, *scores, *maximum, *slope;
  T* carried_maximum;
  SoftBounds<T>* bounds;
  double* sum;
  int* batches;

  HEADSPAN_ALWAYS_INLINE static Forward carve(char* scratch, int head_dim, int value_dim, char** end = nullptr) {
    Carver c{scratch};
    Forward f;
    f.q = c.take<T>(lanes_size<T>(head_dim));
    f.out = c.take<T>(lanes_size<T>(value_dim));
    f.carried_out = c.take<T>(lanes_size<T>(value_dim));
    f.scores = c.take<T>(kPaddedKeys * kLanes);
    f.maximum = c.take<T>(kLanes);
    f.slope = c.take<T>(kLanes);
    f.carried_maximum = c.take<T>(kLanes);
    f.bounds = c.take<SoftBounds<T>>(kVectors<T>);
    f.sum = c.take<double>(kLanes);
    f.batches = c.take<int>(1);
    if (end) *end = c.at;
    return f;
  }
};

template <class T>
struct Backward {
  T *q, *grad_out, *grad_q, *carried_grad_q, *q_rows, *grad_out_rows, *scores, *grad_scores, *lse, *delta, *slope, *sink;
  SoftBounds<T>* bounds;
  bool *rows_finite, *has_carried;
  ptrdiff_t q_stride, grad_out_stride;

  HEADSPAN_ALWAYS_INLINE static Backward carve(char* scratch, int head_dim, int value_dim, char** end = nullptr) {
    Carver c{scratch};
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
    b.lse = c.take<T>(kLanes);
    b.delta = c.take<T>(kLanes);
    b.slope = c.take<T>(kLanes);
    b.sink = c.take<T>((size_t)(b.q_stride > b.grad_out_stride ? b.q_stride : b.grad_out_stride));  // gradients of padding
    b.bounds = c.take<SoftBounds<T>>(kVectors<T>);
    b.rows_finite = c.take<bool>(1);
    b.has_carried = c.take<bool>(1);
    if (end) *end = c.at;
    return b;
  }
};

template <class T>
size_t scratch_bytes(int head_dim, int value_dim) {
  char *forward, *backward;
  char* const base = (char*)64;  // only differences count
  Forward<T>::carve(base, head_dim, value_dim, &forward);
  Backward<T>::carve(base, head_dim, value_dim, &backward);
  return (size_t)((forward > backward ? forward : backward) - base);
}

// ---- what a tile means for the register tiles

// Neighbouring keys whose words touch the same vectors of lanes.
struct Run {
  int first, last;                // keys, in whole key groups
  int first_vector, last_vector;  // vectors
};

template <class T>
struct TileKeys {
  const T *key[kPaddedKeys], *value[kPaddedKeys];
  T position[kPaddedKeys];
  T lowest[kTileKeys / kKeyGroup], highest[kTileKeys / kKeyGroup];  // positions in a key group
  uint64_t padded_words[kPaddedKeys];
  const uint64_t* words;  // null: every lane sees every key
  Run runs[kTileKeys / kKeyGroup + 1];
  int run_count, padded;
};

HEADSPAN_INLINE ptrdiff_t key_index(const Tile& tile, int r) { return tile.indices ? (ptrdiff_t)tile.indices[r] : tile.first + r; }

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

template <class T>
HEADSPAN_INLINE void prepare(const Group<T>& group, const Tile& tile, TileKeys<T>& keys) {
  keys.padded = (int)round_up((size_t)tile.count, kKeyGroup);
  for (int r = 0; r < tile.count; r++) {
    ptrdiff_t const index = key_index(tile, r);
    keys.key[r] = group.key.row(index);
    keys.value[r] = group.value.row(index);
    keys.position[r] = T((double)index - group.origin);
  }
  for (int r = tile.count; r < keys.padded; r++) keys.position[r] = keys.position[tile.count - 1];
  if (tile.soft)
    for (int r = 0; r < keys.padded; r++) {
      T const p = keys.position[r];
      T &lowest = keys.lowest[r / kKeyGroup], &highest = keys.highest[r / kKeyGroup];
      lowest = r % kKeyGroup == 0 || p < lowest ? p : lowest;
      highest = r % kKeyGroup == 0 || p > highest ? p : highest;
    }
  keys.words = tile.words;
  if (!tile.words && keys.padded == tile.count) {
    keys.runs[0] = Run{0, tile.count, 0, kVectors<T>};
    keys.run_count = 1;
    return;
  }
  for (int r = 0; r < keys.padded; r++) keys.padded_words[r] = r >= tile.count ? 0 : tile.words ? tile.words[r] : ~uint64_t(0);
  keys.words = keys.padded_words;
  prepare_runs(keys);
}

// The next tile's rows, fetched while this one is computed.
template <class T>
HEADSPAN_INLINE void prefetch_rows(const Group<T>& group, const Tile& next, int first) {
  constexpr int line = 64 / (int)sizeof(T);
  for (int r = first; r < first + kKeyGroup && r < next.count; r++) {
    ptrdiff_t const index = key_index(next, r);
    for (int d = 0; d < group.head_dim; d += line) __builtin_prefetch(group.key.row(index) + d, 0, 3);
    for (int d = 0; d < group.value_dim; d += line) __builtin_prefetch(group.value.row(index) + d, 0, 3);
  }
}

// All scores of a run of keys: register tiles of dot products.
template <class T>
HEADSPAN_INLINE void run_products(const Run& run, const T* const* rows, int dims, const T* q, T* s, const uint64_t* words, const Bias<T>& bias, Vec<T>* best,
                                  int r) {
  constexpr int width = kWidth<T>;
  cover(run.first_vector, run.last_vector, [&](auto vectors, int v) HEADSPAN_ALWAYS_INLINE {
    constexpr int keys = TileShape<vectors.value>::keys;
    for (int k = r; k < r + kKeyGroup; k += keys) {
      Bias<T> const here{bias.slope ? bias.slope + v * width : nullptr, bias.position + v * width, bias.key + k};
      dot_products<T, keys, vectors.value>(rows + k, dims, q + v * width, s + k * kLanes + v * width, words ? words + k : nullptr, v, here,
                                           best ? best + v : nullptr);
    }
  });
}

// ---- forward

template <class T>
void forward_begin(const Group<T>& group, void* scratch) {
  Forward<T> const f = Forward<T>::carve((char*)scratch, group.head_dim, group.value_dim);
  T factor[kLanes];
  for (int i = 0; i < kLanes; i++) {
    factor[i] = T(group.scale[i] * kLog2e);
    f.slope[i] = T(group.slope[i] * kLog2e);
    f.maximum[i] = f.carried_maximum[i] = -kInfinity<T>;
    f.sum[i] = 0;
  }
  rows_to_lanes(group.query, group.lanes, factor, group.head_dim, f.q);
  memset(f.out, 0, lanes_size<T>(group.value_dim) * sizeof(T));
  soft_bounds(group, f.bounds);
  *f.batches = 0;
}

// scores -> weights, in place, for the keys first .. last - 1 of one vector of lanes; returns their sum.
template <class T>
HEADSPAN_NOINLINE Vec<T> exponentials(const Group<T>& group, const TileKeys<T>& keys, const SoftBounds<T>* soft, T* s, Vec<T> maximum, int vector, int first, int last) {
  Vec<T> sum{};
  T const inverse_ramp = soft ? T(1) / group.ramp : T(0);
  LaneMask<T> const mask(group, vector, soft);
  for (int r = first; r < last; r += kKeyGroup) {
    bool const masked = soft && mask.touches(keys.lowest[r / kKeyGroup], keys.highest[r / kKeyGroup]);
    unroll<kKeyGroup>([&](auto i) HEADSPAN_ALWAYS_INLINE {
      T* const at = s + (r + i.value) * kLanes;
      Vec<T> p = exp2(load(at) - maximum);
      if (masked) p *= mask.at(mask.distance(keys.position[r + i.value]), inverse_ramp);
      sum += p;
      store(at, p);
    });
  }
  return sum;
}

template <class T>
HEADSPAN_INLINE void forward_tile(const Group<T>& group, const Forward<T>& f, const Tile& tile, const Tile* next) {
  constexpr int width = kWidth<T>, vectors = kVectors<T>;
  TileKeys<T> keys;
  prepare(group, tile, keys);
  Bias<T> const bias{group.biased ? f.slope : nullptr, group.position, keys.position};

  // pass 1: scores and the new maximum
  Vec<T> best[vectors], alpha[vectors], sums[vectors];
  for (int j = 0; j < vectors; j++) best[j] = load(f.maximum + j * width);
  for (int i = 0; i < keys.run_count; i++)
    for (int r = keys.runs[i].first; r < keys.runs[i].last; r += kKeyGroup) {
      if (next) prefetch_rows(group, *next, r);
      run_products(keys.runs[i], keys.key, group.head_dim, f.q, f.scores, keys.words, bias, best, r);
    }
  // pass 2: weights, and the factor for what was summed under the old maximum. A row that has met no key keeps -infinity,
  // which must not be subtracted from itself.
  for (int j = 0; j < vectors; j++) {
    Vec<T> const old = load(f.maximum + j * width);
    store(f.maximum + j * width, best[j]);
    best[j] = best[j] == -kInfinity<T> ? Vec<T>{} : best[j];
    alpha[j] = exp2(old - best[j]);
    sums[j] = Vec<T>{};
  }
  const SoftBounds<T>* const soft = tile.soft && group.ramp > 0 ? f.bounds : nullptr;
  for (int i = 0; i < keys.run_count; i++) {
    Run const& run = keys.runs[i];
    for (int j = run.first_vector; j < run.last_vector; j++)
      sums[j] += exponentials(group, keys, soft, f.scores + j * width, best[j], j, run.first, run.last);
  }
  T alphas[kLanes], tile_sums[kLanes];
  for (int j = 0; j < vectors; j++) store(alphas + j * width, alpha[j]), store(tile_sums + j * width, sums[j]);
  for (int i = 0; i < kLanes; i++) f.sum[i] = f.sum[i] * alphas[i] + tile_sums[i];
  // pass 3: outputs
  for (int i = 0; i < keys.run_count; i++) {
    Run const& run = keys.runs[i];
    if (group.careful && keys.words) {
      for (int j = run.first_vector; j < run.last_vector; j++) {
        accumulate_careful(keys.value, group.value_dim, f.scores + j * width, f.out + j * width, alpha + j, keys.words, j, run.first, run.last);
        alpha[j] = broadcast(T(1));
      }
      continue;
    }
    cover(run.first_vector, run.last_vector, [&](auto n, int v) HEADSPAN_ALWAYS_INLINE {
      accumulate<T, n.value>(keys.value, group.value_dim, f.scores + v * width, f.out + v * width, alpha + v, run.first, run.last);
      for (int j = v; j < v + n.value; j++) alpha[j] = broadcast(T(1));
    });
  }
}

// carried = carried * 2^(carried maximum - maximum) + out; out = 0
template <class T>
HEADSPAN_NOINLINE void carry_output(const Group<T>& group, const Forward<T>& f) {
  constexpr int width = kWidth<T>;
  for (int j = 0; j < kVectors<T>; j++) {
    Vec<T> const now = load(f.maximum + j * width), old = load(f.carried_maximum + j * width);
    Vec<T> const alpha = exp2(old - (now == -kInfinity<T> ? Vec<T>{} : now));
    for (int d = 0; d < group.value_dim; d++) {
      T *out = f.out + d * kLanes + j * width, *carried = f.carried_out + d * kLanes + j * width;
      store(carried, load(carried) * alpha + load(out));
      store(out, Vec<T>{});
    }
    store(f.carried_maximum + j * width, now);
  }
}

template <class T>
void forward_step(const Group<T>& group, const Tile* tiles, int count, void* scratch) {
  Forward<T> const f = Forward<T>::carve((char*)scratch, group.head_dim, group.value_dim);
  if (*f.batches == 1) memset(f.carried_out, 0, lanes_size<T>(group.value_dim) * sizeof(T));
  if (*f.batches > 0) carry_output(group, f);
  ++*f.batches;
  for (int i = 0; i < count; i++) forward_tile(group, f, tiles[i], i + 1 < count ? tiles + i + 1 : nullptr);
}

template <class T>
bool forward_end(const Group<T>& group, ForwardRows<T>& rows, void* scratch) {
  Forward<T> const f = Forward<T>::carve((char*)scratch, group.head_dim, group.value_dim);
  bool const carried = *f.batches > 1;
  if (carried) carry_output(group, f);
  T inverse[kLanes];
  for (int i = 0; i < kLanes; i++) {
    rows.maximum[i] = f.maximum[i];
    rows.sum[i] = f.sum[i];
    inverse[i] = f.sum[i] == 0 ? T(0) : T(1 / f.sum[i]);
  }
  return lanes_to_rows(carried ? f.carried_out : f.out, inverse, group.value_dim, rows.out, group.lanes);
}

// ---- weights, for those who want to see them

template <class T>
void weights_begin(const Group<T>& group, void* scratch) {
  forward_begin(group, scratch);
}

template <class T>
void weights_tile(const Group<T>& group, const Tile& tile, const T* lse, T* weights, void* scratch) {
  constexpr int width = kWidth<T>;
  Forward<T> const f = Forward<T>::carve((char*)scratch, group.head_dim, group.value_dim);
  TileKeys<T> keys;
  prepare(group, tile, keys);
  Bias<T> const bias{group.biased ? f.slope : nullptr, group.position, keys.position};
  T lse2[kLanes];
  for (int i = 0; i < kLanes; i++) lse2[i] = lse[i] == -kInfinity<T> ? T(0) : T(lse[i] * kLog2e);
  for (int i = 0; i < kTileKeys * kLanes; i++) f.scores[i] = 0;
  const SoftBounds<T>* const soft = tile.soft && group.ramp > 0 ? f.bounds : nullptr;
  for (int i = 0; i < keys.run_count; i++) {
    Run const& run = keys.runs[i];
    for (int r = run.first; r < run.last; r += kKeyGroup) run_products(run, keys.key, group.head_dim, f.q, f.scores, keys.words, bias, (Vec<T>*)nullptr, r);
    for (int j = run.first_vector; j < run.last_vector; j++)
      exponentials(group, keys, soft, f.scores + j * width, load(lse2 + j * width), j, run.first, run.last);
  }
  memcpy(weights, f.scores, sizeof(T) * kTileKeys * kLanes);
}

}  // namespace headspan::HEADSPAN_ISA

#include "kernel_backward.h"

namespace headspan::HEADSPAN_ISA {

template <class T>
Kernel<T> kernel() {
  return {scratch_bytes<T>, forward_begin<T>, forward_step<T>, forward_end<T>, weights_begin<T>, weights_tile<T>, backward_begin<T>, backward_step<T>, backward_end<T>};
}

}  // namespace headspan::HEADSPAN_ISA
