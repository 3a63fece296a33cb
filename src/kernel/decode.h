// SPDX-License-Identifier: BSD-3-Clause
// The products for groups of a few queries, as in token-by-token generation: at most eight, and at most as many as a
// vector has numbers. With so few lanes in use, vectors hold dimensions instead of lanes, and the speed of memory, from
// which keys and values are read, is the limit. Inputs and outputs are as for dot_products and accumulate, except for
// the layout of the queries. Both products prefetch the rows `next`, if there are any, into the second-level cache.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <utility>

#include "base/attributes.h"
#include "base/tile.h"
#include "kernel/isa/instruction_set.h"
#include "matmul.h"
#include "rows/readers.h"
#include "vectors/transpose.h"

namespace headspan::HEADSPAN_ISA {

// A vector must hold all lanes, because whole vectors of scores are written.
template <class T>
constexpr int kDecodeLanes = kWidth<T> < 8 ? kWidth<T> : 8;

// Whether the products of this file are used for a number of lanes.
template <class T>
HEADSPAN_INLINE bool is_decode(int lanes) {
  return lanes <= kDecodeLanes<T>;
}

// The queries are rows of this many elements instead of lanes, with zeros after the last dimension and the last query.
template <class T>
HEADSPAN_INLINE int decode_stride(int dims) {
  return (int)round_up((size_t)dims, kWidth<T>);
}

// The queries in the layout that the products of their group need.
template <class T>
HEADSPAN_INLINE void lay_out_queries(const T* const* rows, int lanes, const T* factor, int dims, T* to) {
  if (is_decode<T>(lanes))
    copy_rows(rows, lanes, factor, dims, decode_stride<T>(dims), kDecodeLanes<T>, to);
  else
    rows_to_lanes(rows, lanes, factor, dims, to);
}

// The sums of the elements of kWidth vectors, one in each element of the result.
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

// The dot products of `lanes` queries with kWidth / lanes keys, key by key. Prefetches a line of every row of `next`
// for each line of the keys, because hardware prefetching alone does not keep memory busy.
template <class T, int lanes, class Reader>
HEADSPAN_INLINE Vec<T> dots(const typename Reader::Element* const* rows, const typename Reader::Element* const* next,
                            int dims, const T* q) {
  using Element = typename Reader::Element;
  constexpr int width = kWidth<T>, keys = width / lanes;
  int const stride = decode_stride<T>(dims);
  Vec<T> sum[width];
  unroll<width>([&](auto i) HEADSPAN_ALWAYS_INLINE { sum[i.value] = Vec<T>{}; });
  // Vectors per step, and how many of them stay in registers next to the sums.
  constexpr int a_line = kLine<T> / width, block = lanes * a_line < 4 ? 4 / lanes : a_line;
  constexpr int at_once = lanes < 4 ? block : 1;
  auto const add = [&](auto vectors, int d, auto part_of) HEADSPAN_ALWAYS_INLINE {
    constexpr int together = vectors.value < at_once ? vectors.value : at_once;
    unroll<vectors.value / together>([&](auto b) HEADSPAN_ALWAYS_INLINE {
      constexpr int first = b.value * together;
      Vec<T> query[lanes][together];
      unroll<lanes>([&](auto i) HEADSPAN_ALWAYS_INLINE {
        unroll<together>([&](auto j) HEADSPAN_ALWAYS_INLINE {
          query[i.value][j.value] = load(q + i.value * stride + d + (first + j.value) * width);
        });
      });
      unroll<keys>([&](auto k) HEADSPAN_ALWAYS_INLINE {
        if (first == 0) fetch_lines_of<vectors.value, width>(next[k.value], d);
        const Element* const row = in_register(rows[k.value] + d);
        unroll<together>([&](auto j) HEADSPAN_ALWAYS_INLINE {
          Vec<T> const part = part_of(row + (first + j.value) * width);
          unroll<lanes>(
              [&](auto i) HEADSPAN_ALWAYS_INLINE { sum[k.value * lanes + i.value] += query[i.value][j.value] * part; });
        });
      });
    });
  };
  auto const load_full = [](const Element* from) HEADSPAN_ALWAYS_INLINE { return Reader::load(from); };
  int d = 0;
  for (; d + block * width <= dims; d += block * width) add(Index<block>{}, d, load_full);
  for (; d + width <= dims; d += width) add(Index<1>{}, d, load_full);
  if (d < dims)
    add(Index<1>{}, d, [&](const Element* from) HEADSPAN_ALWAYS_INLINE { return Reader::load_first(from, dims - d); });
  return totals<T>(sum);
}

// The elements first, first + 1, ... of a vector, each repeated in turn for `lanes` elements.
template <class T, int first, int lanes, int... I>
HEADSPAN_INLINE Vec<T> some_of(Vec<T> v, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(v, v, (first + I % lanes)...);
}

// The scores of the keys first .. last - 1 for `lanes` queries, some of which may be zeros.
template <class T, int lanes, class Reader>
HEADSPAN_INLINE void decode_scores(Reader, const typename Reader::Element* const* rows,
                                   const typename Reader::Element* const* next, const T* scales, int dims, const T* q,
                                   T* s, const uint64_t* lane_masks, Vec<T>* best, int first, int last) {
  constexpr int width = kWidth<T>, keys = width / lanes;
  Vec<T> highest = best ? *best : Vec<T>{};
  for (int r = first; r < last; r += keys) {
    int const count = last - r < keys ? last - r : keys;
    bool const is_full = count == keys;
    const typename Reader::Element* some[keys];
    for (int k = 0; k < keys && !is_full; k++) some[k] = rows[r + (k < count ? k : 0)];
    Vec<T> const scores = dots<T, lanes, Reader>(is_full ? rows + r : some, is_full ? next + r : some, dims, q);
    auto const keep = [&](int k, Vec<T> score) HEADSPAN_ALWAYS_INLINE {
      highest = maximum(highest, score);
      store(s + (r + k) * kLanes, score);
    };
    auto const for_each = [&](auto work) HEADSPAN_ALWAYS_INLINE {
      unroll<keys>([&](auto k) HEADSPAN_ALWAYS_INLINE {
        Vec<T> score = some_of<T, k.value * lanes, lanes>(scores, std::make_integer_sequence<int, width>{});
        if constexpr (Reader::scaled) score *= broadcast(scales[r + (k.value < count ? k.value : 0)]);
        work(k.value, score);
      });
    };
    if (!lane_masks && is_full)
      for_each(keep);
    else
      for_each([&](int k, Vec<T> score) HEADSPAN_ALWAYS_INLINE {
        if (k >= count) return;
        if (lane_masks) score = select(lane_masks[r + k], score, broadcast(T(-__builtin_inf())));
        keep(k, score);
      });
  }
  if (best) *best = highest;
}

// Calls work(Index<n>{}) for the smallest power of 2 that is at least `lanes`.
template <class T, int n = 1, class Work>
HEADSPAN_INLINE void for_lanes(int lanes, Work work) {
  if constexpr (n < kDecodeLanes<T>) {
    if (lanes > n) return for_lanes<T, 2 * n>(lanes, work);
  }
  work(Index<n>{});
}

// The scores of the keys first .. last - 1, as of dot_products.
template <class T>
HEADSPAN_NOINLINE void decode_dot_products(const DecodeRows<T>& input, int dims, const T* q, T* s,
                                           const uint64_t* lane_masks, Vec<T>* best, int lanes, int first, int last) {
  const T* const* const next =
      input.next ? input.next : input.rows;  // without `next`: rows in the cache, which saves a branch
  for_reader<T>(input.storage, [&](auto reader) HEADSPAN_ALWAYS_INLINE {
    using Rows = const typename decltype(reader)::Element* const*;
    for_lanes<T>(lanes, [&](auto n) HEADSPAN_ALWAYS_INLINE {
      decode_scores<T, n.value>(reader, (Rows)input.rows, (Rows)next, input.scales, dims, q, s, lane_masks, best, first,
                                last);
    });
  });
}

// o[d][lane] = o[d][lane] * alpha[lane] + sums[lane][d] for `count` dimensions and those up to a whole vector, where
// sums are 0; a row of `sums` is `stride` long.
template <class T, int lanes>
HEADSPAN_NOINLINE void add_sums(const T* sums, int stride, int count, Vec<T> alpha, T* o) {
  constexpr int width = kWidth<T>;
  for (int d = 0; d < count; d += width) {
    Vec<T> v[width];  // of lanes; those after the used ones are zeros
    unroll<width>([&](auto i) HEADSPAN_ALWAYS_INLINE {
      if constexpr (i.value < lanes)
        v[i.value] = load(sums + i.value * stride + d);
      else
        v[i.value] = Vec<T>{};
    });
    butterflies<T, 1>(v);
    unroll<width>([&](auto n) HEADSPAN_ALWAYS_INLINE {
      T* const to = o + (d + n.value) * kLanes;
      store(to, load(to) * alpha + v[n.value]);
    });
  }
}

// The sums over the keys first .. last - 1 of some dimensions: `vectors` vectors from d on. Prefetches the same lines
// of the rows `next`.
template <class T, int lanes, int vectors, bool is_full, class Reader>
HEADSPAN_INLINE void decode_accumulate_block(Reader, const typename Reader::Element* const* rows,
                                             const typename Reader::Element* const* next, const T* scales, int d,
                                             int dims, const T* p, T* o, Vec<T> alpha, int first, int last) {
  constexpr int width = kWidth<T>;
  int const left = dims - d;
  Vec<T> sum[lanes][vectors];
  unroll<lanes>([&](auto i) HEADSPAN_ALWAYS_INLINE {
    unroll<vectors>([&](auto j) HEADSPAN_ALWAYS_INLINE { sum[i.value][j.value] = Vec<T>{}; });
  });
#pragma GCC unroll kKeysInStep
  for (int r = first; r < last; r++) {
    fetch_lines_of<vectors, width>(next[r], d);
    const typename Reader::Element* const from = rows[r] + d;
    Vec<T> row[vectors];
    unroll<vectors>([&](auto j) HEADSPAN_ALWAYS_INLINE {
      constexpr int at = j.value * width;
      row[j.value] = is_full     ? Reader::load(from + at)
                     : at < left ? Reader::load_first(from + at, left - at < width ? left - at : width)
                                 : Vec<T>{};
    });
    unroll<lanes>([&](auto i) HEADSPAN_ALWAYS_INLINE {
      T of_pair = p[r * kLanes + i.value];
      if constexpr (Reader::scaled) of_pair *= scales[r];
      Vec<T> const weight = broadcast(of_pair);
      unroll<vectors>([&](auto j) HEADSPAN_ALWAYS_INLINE { sum[i.value][j.value] += weight * row[j.value]; });
    });
  }
  T sums[lanes * vectors * width];
  unroll<lanes>([&](auto i) HEADSPAN_ALWAYS_INLINE {
    unroll<vectors>([&](auto j) HEADSPAN_ALWAYS_INLINE {
      store(sums + (i.value * vectors + j.value) * width, sum[i.value][j.value]);
    });
  });
  add_sums<T, lanes>(sums, vectors * width, is_full ? vectors * width : left, alpha, o + d * kLanes);
}

template <class T, int lanes, class Reader>
HEADSPAN_INLINE void decode_accumulate_lanes(Reader reader, const typename Reader::Element* const* rows,
                                             const typename Reader::Element* const* next, const T* scales, int dims,
                                             const T* p, T* o, Vec<T> alpha, int first, int last) {
  constexpr int registers = kWidestTile * kTallestTile,
                vectors = 4 * lanes <= registers   ? 4
                          : 2 * lanes <= registers ? 2
                                                   : 1,
                block = vectors * kWidth<T>;
  int d = 0;
  for (; d + block <= dims; d += block)
    decode_accumulate_block<T, lanes, vectors, true>(reader, rows, next, scales, d, dims, p, o, alpha, first, last);
  if (d < dims)
    decode_accumulate_block<T, lanes, vectors, false>(reader, rows, next, scales, d, dims, p, o, alpha, first, last);
}

// The sums over the keys first .. last - 1, as of accumulate.
template <class T>
HEADSPAN_NOINLINE void decode_accumulate(const DecodeRows<T>& input, int dims, const T* p, T* o, Vec<T> alpha,
                                         int lanes, int first, int last) {
  const T* const* const next = input.next ? input.next : input.rows;
  for_reader<T>(input.storage, [&](auto reader) HEADSPAN_ALWAYS_INLINE {
    using Rows = const typename decltype(reader)::Element* const*;
    for_lanes<T>(lanes, [&](auto n) HEADSPAN_ALWAYS_INLINE {
      decode_accumulate_lanes<T, n.value>(reader, (Rows)input.rows, (Rows)next, input.scales, dims, p, o, alpha, first,
                                          last);
    });
  });
}

}  // namespace headspan::HEADSPAN_ISA
