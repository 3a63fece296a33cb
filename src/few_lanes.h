// SPDX-License-Identifier: BSD-3-Clause
// The products for groups of one to four queries, as when a text is continued token by token. With so few lanes in use
// the dimensions ride in vectors instead: what counts then is to read keys and values as fast as memory gives them. In
// and out are as for dot_products and accumulate.
#pragma once

#include "micro_kernels.h"
#include "transpose.h"

namespace headspan::HEADSPAN_ISA {

// Whether these products are meant for so many lanes. They write whole vectors of scores: one must hold all lanes.
template <class T>
HEADSPAN_INLINE bool few(int lanes) {
  return lanes <= (kWidth<T> < 4 ? 0 : 4);
}

// The dot products of one lane's query with kWidth keys, one in each element.
template <class T>
HEADSPAN_INLINE Vec<T> dots_of_lane(const T* const* rows, int dims, const T* query) {
  constexpr int width = kWidth<T>;
  Vec<T> sum[width];
  unroll<width>([&](auto k) HEADSPAN_ALWAYS_INLINE { sum[k.value] = Vec<T>{}; });
  for (int d = 0; d < dims; d += width) {
    Vec<T> const q = load_dims(query + d, dims - d);
    unroll<width>([&](auto k) HEADSPAN_ALWAYS_INLINE { sum[k.value] += q * load_dims(rows[k.value] + d, dims - d); });
  }
  butterflies<T, 1>(sum);
  Vec<T> total{};
  unroll<width>([&](auto k) HEADSPAN_ALWAYS_INLINE { total += sum[k.value]; });
  return total;
}

template <class T>
HEADSPAN_NOINLINE void few_dot_products(const T* const* rows, int dims, const T* q, T* s, const uint64_t* words,
                                        const Bias<T>& bias, T* best, int lanes, int first, int last) {
  constexpr int width = kWidth<T>, most_dims = 256;
  for (int r = first; r < last; r++) store(s + r * kLanes, Vec<T>{});
  for (int lane = 0; lane < lanes; lane++) {
    for (int from = 0; from < dims; from += most_dims) {
      int const n = dims - from < most_dims ? dims - from : most_dims;
      T query[most_dims];
      for (int d = 0; d < n; d++) query[d] = q[(from + d) * kLanes + lane];
      for (int r = first; r < last; r += width) {
        const T* row[width];
        for (int k = 0; k < width; k++) row[k] = rows[r + k < last ? r + k : last - 1] + from;
        T scores[width];
        store(scores, dots_of_lane<T>(row, n, query));
        for (int k = 0; k < width && r + k < last; k++) s[(r + k) * kLanes + lane] += scores[k];
      }
    }
    for (int r = first; r < last; r++) {
      T& score = s[r * kLanes + lane];
      if (bias.slope) score -= bias.slope[lane] * bias.distances.at(0, r)[lane];
      if (bias.added) score += bias.added[r];
      if (words && !(words[r] >> lane & 1)) score = T(-__builtin_inf());
      if (best && !(score <= best[lane])) best[lane] = score;  // or NaN
    }
  }
}

template <class T>
HEADSPAN_NOINLINE void few_accumulate(const T* const* rows, int dims, const T* p, T* o, const T* alpha, int lanes,
                                      int first, int last) {
  constexpr int width = kWidth<T>, vectors = 4, block = vectors * width;
  for (int lane = 0; lane < lanes; lane++)
    for (int from = 0; from < dims; from += block) {
      int const n = dims - from < block ? dims - from : block;
      T out[block];
      Vec<T> sum[vectors];
      unroll<vectors>([&](auto j) HEADSPAN_ALWAYS_INLINE { sum[j.value] = Vec<T>{}; });
      for (int r = first; r < last; r++) {
        Vec<T> const weight = broadcast(p[r * kLanes + lane]);
        unroll<vectors>([&](auto j) HEADSPAN_ALWAYS_INLINE {
          int const d = j.value * width;
          if (d < n) sum[j.value] += weight * load_dims(rows[r] + from + d, n - d);
        });
      }
      unroll<vectors>([&](auto j) HEADSPAN_ALWAYS_INLINE { store(out + j.value * width, sum[j.value]); });
      for (int d = 0; d < n; d++) {
        T& to = o[(from + d) * kLanes + lane];
        to = to * alpha[lane] + out[d];
      }
    }
}

}  // namespace headspan::HEADSPAN_ISA
