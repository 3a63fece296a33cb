// SPDX-License-Identifier: BSD-3-Clause
// Transposition between rows in memory and lanes in the workspace, which is [dimension][64 lanes]. Memory is accessed
// row by row: in the other order every line of a row would be a separate cache miss.
#pragma once

#include <stddef.h>

#include <utility>

#include "base/attributes.h"
#include "base/tile.h"
#include "kernel/interface.h"
#include "kernel/isa/instruction_set.h"
#include "vector_math.h"

namespace headspan::HEADSPAN_ISA {

template <class T, int distance, int... I>
HEADSPAN_INLINE void exchange(Vec<T>& a, Vec<T>& b, std::integer_sequence<int, I...>) {
  constexpr int width = sizeof...(I);
  Vec<T> const low = __builtin_shufflevector(a, b, ((I & distance) ? width + I - distance : I)...);
  b = __builtin_shufflevector(a, b, ((I & distance) ? width + I : I + distance)...);
  a = low;
}
template <class T, int distance>
HEADSPAN_INLINE void butterflies(Vec<T>* v) {
  constexpr int width = kWidth<T>;
  unroll<width>([&](auto i) HEADSPAN_ALWAYS_INLINE {
    if constexpr (!(i.value & distance))
      exchange<T, distance>(v[i.value], v[i.value + distance], std::make_integer_sequence<int, width>{});
  });
  if constexpr (distance * 2 < width) butterflies<T, distance * 2>(v);
}

template <class T>
HEADSPAN_INLINE Vec<T> load_dims(const T* from, int n) {
  return n >= kWidth<T> ? load(from) : (Vec<T>)load_first(from, n);
}
template <class T>
HEADSPAN_INLINE void store_dims(T* to, Vec<T> v, int n) {
  if (n >= kWidth<T>)
    store(to, v);
  else
    store_first(to, v, n);
}

// Calls f(d, at) for the vectors of rows of `dims` dimensions; at(row) is the vector from d on, with zeros after the
// last dimension.
template <class T, class F>
HEADSPAN_INLINE void for_each_vector(int dims, F&& f) {
  int d = 0;
#pragma GCC unroll 4
  for (; d + kWidth<T> <= dims; d += kWidth<T>)
    f(d, [d](const T* row) HEADSPAN_ALWAYS_INLINE { return load(row + d); });
  if (d < dims) f(d, [d, dims](const T* row) HEADSPAN_ALWAYS_INLINE { return (Vec<T>)load_first(row + d, dims - d); });
}

// One square of width x width of the two functions below. `is_full`: the square is complete, which saves a branch per
// row.
template <class T, bool is_full>
HEADSPAN_INLINE void square_to_lanes(const T* const* rows, int count, const T* factor, int d, int dims, T* lanes) {
  constexpr int width = kWidth<T>;
  Vec<T> v[width];
  unroll<width>([&](auto i) HEADSPAN_ALWAYS_INLINE {
    if constexpr (is_full)
      v[i.value] = load(rows[i.value] + d) * factor[i.value];
    else
      v[i.value] = i.value < count ? load_dims(rows[i.value] + d, dims - d) * factor[i.value] : Vec<T>{};
  });
  butterflies<T, 1>(v);
  if constexpr (is_full)
    unroll<width>([&](auto i) HEADSPAN_ALWAYS_INLINE { store(lanes + (d + i.value) * kLanes, v[i.value]); });
  else
    for (int i = 0; i < width && i < dims - d; i++) store(lanes + (d + i) * kLanes, v[i]);
}
template <class T, bool is_full, bool past_caches>
HEADSPAN_INLINE void square_to_rows(const T* lanes, Vec<T> factor, int d, int dims, T* const* rows, int count,
                                    Vec<T>& finite) {
  constexpr int width = kWidth<T>;
  Vec<T> v[width];
  unroll<width>([&](auto i) HEADSPAN_ALWAYS_INLINE {
    v[i.value] = is_full || i.value < dims - d ? load(lanes + (d + i.value) * kLanes) * factor : Vec<T>{};
    finite += v[i.value] * T(0);
  });
  butterflies<T, 1>(v);
  unroll<width>([&](auto i) HEADSPAN_ALWAYS_INLINE {
    if constexpr (past_caches)
      store_past_caches(rows[i.value] + d, v[i.value]);
    else if constexpr (is_full)
      store(rows[i.value] + d, v[i.value]);
    else if (i.value < count)
      store_dims(rows[i.value] + d, v[i.value], dims - d);
  });
}

// to[r][d] = rows[r][d] * factor[r], padded with zeros to `padded` rows of `stride`, as many whole vectors as they
// need; false if a value is NaN or infinite.
template <class T>
HEADSPAN_NOINLINE bool copy_rows(const T* const* rows, int count, const T* factor, int dims, ptrdiff_t stride,
                                 int padded, T* to) {
  Vec<T> finite{};
  for (int r = 0; r < count; r++)
    for_each_vector<T>(dims, [&](int d, auto at) HEADSPAN_ALWAYS_INLINE {
      Vec<T> const x = at(rows[r]) * factor[r];
      finite += x * T(0);
      store(to + r * stride + d, x);
    });
  memset(to + count * stride, 0, (size_t)(padded - count) * (size_t)stride * sizeof(T));
  return all_zero<T>(finite);
}

// lanes[d][r] = rows[r][d] * factor[r]; lanes past `count` become 0, up to a whole vector.
template <class T>
HEADSPAN_NOINLINE void rows_to_lanes(const T* const* rows, int count, const T* factor, int dims, T* lanes) {
  constexpr int width = kWidth<T>;
  for (int first = 0; first < count; first += width) {
    const T* const* const next = first + 2 * width <= count ? rows + first + width : rows + first;
    int d = 0;
    for (; first + width <= count && d + width <= dims; d += width) {
      if (d % kLine<T> == 0)  // prefetch a line of each row: hardware does not prefetch so many streams
        unroll<width>([&](auto i) HEADSPAN_ALWAYS_INLINE { __builtin_prefetch(next[i.value] + d); });
      square_to_lanes<T, true>(rows + first, width, factor + first, d, dims, lanes + first);
    }
    for (; d < dims; d += width)
      square_to_lanes<T, false>(rows + first, count - first, factor + first, d, dims, lanes + first);
  }
}

// rows[r][d] = lanes[d][r] * factor[r]. Returns false if a value is NaN or infinite. `lanes` is readable up to a full
// vector of dimensions. `past_caches`: the rows are whole lines.
template <class T>
HEADSPAN_NOINLINE bool lanes_to_rows(const T* lanes, const T* factor, int dims, T* const* rows, int count,
                                     bool past_caches) {
  constexpr int width = kWidth<T>;
  Vec<T> finite{};  // x * 0 is NaN if x is not finite
  for (int first = 0; first < count; first += width) {
    Vec<T> const f = load(factor + first);
    int d = 0;
    for (; first + width <= count && d + width <= dims; d += width)
      if (past_caches)
        square_to_rows<T, true, true>(lanes + first, f, d, dims, rows + first, width, finite);
      else
        square_to_rows<T, true, false>(lanes + first, f, d, dims, rows + first, width, finite);
    for (; d < dims; d += width)
      square_to_rows<T, false, false>(lanes + first, f, d, dims, rows + first, count - first, finite);
  }
  if (past_caches) finish_stores();
  return all_zero<T>(finite);
}

}  // namespace headspan::HEADSPAN_ISA
