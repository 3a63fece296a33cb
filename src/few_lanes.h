// SPDX-License-Identifier: BSD-3-Clause
// The products for groups of one to four queries, as when a text is continued token by token. With so few lanes in use
// the dimensions ride in vectors instead: what counts then is to read keys and values as fast as memory gives them. In
// and out are as for dot_products and accumulate.
#pragma once

#include "micro_kernels.h"
#include "transpose.h"

namespace headspan::HEADSPAN_ISA {

constexpr int kFewLanes = 4;

// Whether these products are meant for so many lanes. They write whole vectors of scores: one must hold all lanes.
template <class T>
HEADSPAN_INLINE bool few(int lanes) {
  return kWidth<T> >= kFewLanes && lanes <= kFewLanes;
}

// The totals of kWidth vectors, one in each element.
template <class T, int distance = 1>
HEADSPAN_INLINE Vec<T> totals(Vec<T>* v) {
  constexpr int width = kWidth<T>;
  if constexpr (distance < width) {
    unroll<width / distance / 2>([&](auto i) HEADSPAN_ALWAYS_INLINE {
      exchange<T, distance>(v[2 * i.value], v[2 * i.value + 1], std::make_integer_sequence<int, width>{});
      v[i.value] = v[2 * i.value] + v[2 * i.value + 1];
    });
    return totals<T, distance * 2>(v);
  }
  return v[0];
}

// The dot products of one query with kWidth keys, one in each element.
template <class T>
HEADSPAN_INLINE Vec<T> dots_of_query(const T* const* rows, int dims, const T* query) {
  constexpr int width = kWidth<T>;
  Vec<T> sum[width];
  unroll<width>([&](auto k) HEADSPAN_ALWAYS_INLINE { sum[k.value] = Vec<T>{}; });
  int d = 0;
  for (; d + width <= dims; d += width) {
    Vec<T> const q = load(query + d);
    unroll<width>([&](auto k) HEADSPAN_ALWAYS_INLINE { sum[k.value] += q * load(rows[k.value] + d); });
  }
  if (d < dims) {
    Vec<T> const q = load_first(query + d, dims - d);
    unroll<width>([&](auto k) HEADSPAN_ALWAYS_INLINE { sum[k.value] += q * load_first(rows[k.value] + d, dims - d); });
  }
  return totals<T>(sum);
}

template <class T>
HEADSPAN_NOINLINE void few_dot_products(const T* const* rows, const Fetch<T>& fetch, int dims, const T* q, T* s,
                                        const uint64_t* words, const Bias<T>& bias, Vec<T>* best, int lanes, int first,
                                        int last) {
  constexpr int width = kWidth<T>, most_dims = 256;
  for (int r = first; r < last; r++) store(s + r * kLanes, Vec<T>{});
  for (int from = 0; from < dims; from += most_dims) {
    int const n = dims - from < most_dims ? dims - from : most_dims;
    T query[kFewLanes][most_dims];
    for (int d = 0; d < n; d++)
      for (int lane = 0; lane < kFewLanes; lane++) query[lane][d] = q[(from + d) * kLanes + lane];
    for (int r = first; r < last; r += width) {
      int const count = last - r < width ? last - r : width;
      const T* row[width];
      for (int k = 0; k < width; k++) row[k] = rows[r + (k < count ? k : count - 1)] + from;
      for (int list = 0; list < fetch.lists; list++)
        for (int k = 0; k < count; k++)
          for (int d = 0; d < n; d += kLine<T>)
            __builtin_prefetch(fetch.rows[list * kTileKeys + r + k] + from + d, 0, 2);
      for (int lane = 0; lane < lanes; lane++) {
        T scores[width];
        store(scores, dots_of_query<T>(row, n, query[lane]));
        for (int k = 0; k < count; k++) s[(r + k) * kLanes + lane] += scores[k];
      }
    }
  }
  for (int r = first; r < last; r++) {
    Vec<T> score = load(s + r * kLanes);
    if (bias.slope) score -= load(bias.slope) * bias.distances.at(0, r);
    if (bias.added) score += bias.added[r];
    if (words) score = select(words[r], score, broadcast(T(-__builtin_inf())));
    if (best) *best = maximum(*best, score);
    store(s + r * kLanes, score);
  }
}

// Four vectors of dimensions from d on, of `lanes` lanes from `lane` on.
template <class T, int lanes, bool whole>
HEADSPAN_INLINE void few_accumulate_block(const T* const* rows, int d, int dims, const T* p, T* o, const T* alpha,
                                          int lane, int first, int last) {
  constexpr int width = kWidth<T>, vectors = 4;
  int const left = dims - d;
  Vec<T> sum[lanes][vectors];
  unroll<lanes>([&](auto i) HEADSPAN_ALWAYS_INLINE {
    unroll<vectors>([&](auto j) HEADSPAN_ALWAYS_INLINE { sum[i.value][j.value] = Vec<T>{}; });
  });
  for (int r = first; r < last; r++) {
    Vec<T> row[vectors];
    unroll<vectors>([&](auto j) HEADSPAN_ALWAYS_INLINE {
      constexpr int at = j.value * width;
      row[j.value] = whole ? load(rows[r] + d + at) : at < left ? load_dims(rows[r] + d + at, left - at) : Vec<T>{};
    });
    unroll<lanes>([&](auto i) HEADSPAN_ALWAYS_INLINE {
      Vec<T> const weight = broadcast(p[r * kLanes + lane + i.value]);
      unroll<vectors>([&](auto j) HEADSPAN_ALWAYS_INLINE { sum[i.value][j.value] += weight * row[j.value]; });
    });
  }
  unroll<lanes>([&](auto i) HEADSPAN_ALWAYS_INLINE {
    T out[vectors * width];
    unroll<vectors>([&](auto j) HEADSPAN_ALWAYS_INLINE { store(out + j.value * width, sum[i.value][j.value]); });
    T* to = o + d * kLanes + lane + i.value;
    for (int n = 0; n < vectors * width && n < left; n++, to += kLanes) *to = *to * alpha[lane + i.value] + out[n];
  });
}

template <class T>
HEADSPAN_NOINLINE void few_accumulate(const T* const* rows, int dims, const T* p, T* o, const T* alpha, int lanes,
                                      int first, int last) {
  constexpr int block = 4 * kWidth<T>;
  for (int d = 0; d < dims; d += block) {
    bool const whole = d + block <= dims;
    int lane = 0;
    for (; lane + 2 <= lanes; lane += 2)
      if (whole)
        few_accumulate_block<T, 2, true>(rows, d, dims, p, o, alpha, lane, first, last);
      else
        few_accumulate_block<T, 2, false>(rows, d, dims, p, o, alpha, lane, first, last);
    if (lane < lanes)
      if (whole)
        few_accumulate_block<T, 1, true>(rows, d, dims, p, o, alpha, lane, first, last);
      else
        few_accumulate_block<T, 1, false>(rows, d, dims, p, o, alpha, lane, first, last);
  }
}

}  // namespace headspan::HEADSPAN_ISA
