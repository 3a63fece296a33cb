// SPDX-License-Identifier: BSD-3-Clause
// The products of attention on register tiles. Lanes hold queries: the workspace holds queries, scores and outputs as
// [row][64 lanes], and every element of a key or value row is broadcast from memory. Keys are therefore never packed, a
// gathered key costs as much as a neighbouring one, and a softmax over keys is plain vector arithmetic.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <type_traits>

#include "base/attributes.h"
#include "base/tile.h"
#include "kernel/isa/instruction_set.h"
#include "prefetch.h"
#include "scores/positions.h"

namespace headspan::HEADSPAN_ISA {

HEADSPAN_INLINE size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

constexpr int kRowsAfter = 8;  // a register tile prefetches as many rows after its own as it has
constexpr int kPaddedKeys = kTileKeys + kRowsAfter;

// Calls f(Index<height>{}, first) so that register tiles cover the rows first .. last - 1.
template <int height, class F>
HEADSPAN_INLINE void tile_rows(int first, int last, F&& f) {
  constexpr int not_cut = height == 6 ? 8 : 0;  // 4 and 4 instead of 6, 1 and 1
  for (; last - first >= height && last - first != not_cut; first += height) f(Index<height>{}, first);
  if constexpr (height > 4)
    for (; last - first >= 4; first += 4) f(Index<4>{}, first);
  for (; first < last; first++) f(Index<1>{}, first);
}

// Calls f(Index<vectors>{}, first) so that register tiles cover the vectors first .. last - 1.
template <class F>
HEADSPAN_INLINE void tile_lanes(int first, int last, F&& f) {
  for (; last - first >= kWidestTile; first += kWidestTile) f(Index<kWidestTile>{}, first);
  if constexpr (kWidestTile > 3) {
    if (last - first == 3) return f(Index<3>{}, first);
  }
  if (last - first == 2) return f(Index<2>{}, first);
  if (last - first == 1) f(Index<1>{}, first);
}

// ---- the products. Rows of keys are in the second-level cache, and each of their lines is read 16 floats at a time,
// row by row, so they are prefetched a few rows or a line ahead.

template <class T, int keys, int vectors>
HEADSPAN_INLINE void dot_block(const T* const* rows, const Fetch<T>& fetch, int dims, const T* q, T* s,
                               const uint64_t* lane_masks, int first_vector, Vec<T>* best) {
  constexpr int width = kWidth<T>;
  Vec<T> acc[keys][vectors];
  unroll<keys>([&](auto k) HEADSPAN_ALWAYS_INLINE {
    unroll<vectors>([&](auto j) HEADSPAN_ALWAYS_INLINE { acc[k.value][j.value] = Vec<T>{}; });
  });
  const T* row[keys];
  unroll<keys>([&](auto k) HEADSPAN_ALWAYS_INLINE { row[k.value] = rows[k.value]; });
  // Whole lines are separate from the rest of a row, so that their loop has all registers.
  auto const lines = [&](int from, int to, auto are_full) HEADSPAN_ALWAYS_INLINE {
    for (int d = from; d < to; d += kLine<T>) {
      const T* const* const next_of = in_register(rows) + keys;
      unroll<keys>([&](auto k) HEADSPAN_ALWAYS_INLINE { __builtin_prefetch(next_of[k.value] + d); });
      constexpr int pair = 2 * kLine<T>;  // of lines, which memory delivers faster together
      for (int list = 0; list < fetch.lists && d % pair == 0; list++)
        unroll<keys>([&](auto k) HEADSPAN_ALWAYS_INLINE {
          fetch_lines<pair / width>(fetch.rows[list * kTileKeys + k.value], d);
        });
      const T* lanes = q + d * kLanes;
      auto const add = [&](int i) HEADSPAN_ALWAYS_INLINE {
        Vec<T> b[vectors];
        unroll<vectors>([&](auto j)
                            HEADSPAN_ALWAYS_INLINE { b[j.value] = load(lanes + i * kLanes + j.value * width); });
        unroll<keys>([&](auto k) HEADSPAN_ALWAYS_INLINE {
          Vec<T> const x = broadcast(row[k.value][i]);
          unroll<vectors>([&](auto j) HEADSPAN_ALWAYS_INLINE { acc[k.value][j.value] += x * b[j.value]; });
        });
      };
      if constexpr (are_full.value) {
        unroll<kLine<T>>([&](auto i) HEADSPAN_ALWAYS_INLINE { add(i.value); });
      } else {
        int const count = to - d < kLine<T> ? to - d : kLine<T>;
        for (int i = 0; i < count; i++) add(i);
      }
      unroll<keys>([&](auto k) HEADSPAN_ALWAYS_INLINE { row[k.value] = in_register(row[k.value] + kLine<T>); });
    }
  };
  constexpr int last_steps = vectors > kLineVectors ? kLastSteps : 0;
  bool const plain = !lane_masks && dims > last_steps;
  int const end = plain ? dims - last_steps : dims, full_end = vectors <= kLineVectors ? end / kLine<T> * kLine<T> : 0;
  lines(0, full_end, std::true_type{});
  lines(full_end, end, std::false_type{});
  auto const finish = [&](auto steps, auto maxima) HEADSPAN_ALWAYS_INLINE {
    unroll<vectors>([&](auto j) HEADSPAN_ALWAYS_INLINE {
      const T* const lanes = q + end * kLanes + j.value * width;
      Vec<T> b[steps.value + 1], m{};
      unroll<steps.value>([&](auto i) HEADSPAN_ALWAYS_INLINE { b[i.value] = load(lanes + i.value * kLanes); });
      if constexpr (maxima.value) m = best[j.value];
      unroll<keys>([&](auto k) HEADSPAN_ALWAYS_INLINE {
        Vec<T> sum = acc[k.value][j.value];
        unroll<steps.value>(
            [&](auto i) HEADSPAN_ALWAYS_INLINE { sum += broadcast(rows[k.value][end + i.value]) * b[i.value]; });
        if constexpr (maxima.value) m = maximum(m, sum);
        store(s + k.value * kLanes + j.value * width, sum);
      });
      if constexpr (maxima.value) best[j.value] = m;
    });
  };
  if (plain && best) return finish(Index<last_steps>{}, std::true_type{});
  if (plain) return finish(Index<last_steps>{}, std::false_type{});
  if (lane_masks)
    unroll<keys>([&](auto k) HEADSPAN_ALWAYS_INLINE {
      unroll<vectors>([&](auto j) HEADSPAN_ALWAYS_INLINE {
        acc[k.value][j.value] = select(lane_masks[k.value] >> ((first_vector + j.value) * width), acc[k.value][j.value],
                                       broadcast(T(-__builtin_inf())));
      });
    });
  if (best)
    finish(Index<0>{}, std::true_type{});
  else
    finish(Index<0>{}, std::false_type{});
}

// s[key][lane] = rows[key] . q[.][lane] for the keys first .. last - 1; -infinity where the mask of a key lacks the
// lane. `best`, if not null, is raised to the maximum of each lane. Prefetches the lines of some rows after these,
// which must be valid pointers, and those of `fetch`.
template <class T, int vectors>
HEADSPAN_NOINLINE void dot_products(const T* const* rows, const Fetch<T>& fetch, int dims, const T* q, T* s,
                                    const uint64_t* lane_masks, int first_vector, Vec<T>* best, int first, int last) {
  tile_rows<TileShape<vectors>::keys>(first, last, [&](auto keys, int r) HEADSPAN_ALWAYS_INLINE {
    dot_block<T, keys.value, vectors>(rows + r, fetch.from(r), dims, q, s + r * kLanes,
                                      lane_masks ? lane_masks + r : nullptr, first_vector, best);
  });
}

template <class T, int dims, int vectors>
HEADSPAN_INLINE void accumulate_block(const T* const* rows, int d, const T* p, T* o, const Vec<T>* alpha, int first,
                                      int last) {
  int const ahead = dims - 1 + kLine<T>;
  bool const new_line = d == 0 || (d + dims - 1) / kLine<T> > (d - 1) / kLine<T>;
  constexpr int width = kWidth<T>;
  Vec<T> acc[dims][vectors];
  unroll<dims>([&](auto i) HEADSPAN_ALWAYS_INLINE {
    unroll<vectors>([&](auto j) HEADSPAN_ALWAYS_INLINE { acc[i.value][j.value] = Vec<T>{}; });
  });
  auto const add = [&](int r, const T* at) HEADSPAN_ALWAYS_INLINE {
    const T* const row = vectors == 1 ? in_register(at) : at;
    Vec<T> b[vectors];
    unroll<vectors>([&](auto j) HEADSPAN_ALWAYS_INLINE { b[j.value] = load(p + r * kLanes + j.value * width); });
    unroll<dims>([&](auto i) HEADSPAN_ALWAYS_INLINE {
      Vec<T> const x = broadcast(row[i.value]);
      unroll<vectors>([&](auto j) HEADSPAN_ALWAYS_INLINE { acc[i.value][j.value] += x * b[j.value]; });
    });
  };
  constexpr int last_steps = vectors > kLineVectors ? kLastSteps : 0;  // there is at least one key group
  static_assert(last_steps <= kKeyGroup);
  int const end = last - last_steps;
  if (new_line) {  // two loops, because the branch would cost time in every step
#pragma GCC unroll kKeysInStep
    for (int r = first; r < end; r++) {
      __builtin_prefetch(rows[r] + d + ahead);
      add(r, rows[r] + d);
    }
  } else {
#pragma GCC unroll kKeysInStep
    for (int r = first; r < end; r++) add(r, rows[r] + d);
  }
  unroll<vectors>([&](auto j) HEADSPAN_ALWAYS_INLINE {
    Vec<T> const factor = alpha[j.value];
    Vec<T> b[last_steps + 1];
    unroll<last_steps>(
        [&](auto r) HEADSPAN_ALWAYS_INLINE { b[r.value] = load(p + (end + r.value) * kLanes + j.value * width); });
    unroll<dims>([&](auto i) HEADSPAN_ALWAYS_INLINE {
      Vec<T> sum = acc[i.value][j.value];
      unroll<last_steps>(
          [&](auto r) HEADSPAN_ALWAYS_INLINE { sum += broadcast(rows[end + r.value][d + i.value]) * b[r.value]; });
      T* const to = o + (d + i.value) * kLanes + j.value * width;
      // Added only here: sums per tile lose less accuracy than one long sum.
      store(to, load(to) * factor + sum);
    });
  });
}

// o[d][lane] = o[d][lane] * alpha[lane] + sum of p[key][lane] * rows[key][d] over the keys first .. last - 1.
template <class T, int vectors>
HEADSPAN_NOINLINE void accumulate(const T* const* rows, int dims, const T* p, T* o, const Vec<T>* alpha, int first,
                                  int last) {
  tile_rows<TileShape<vectors>::dims>(0, dims, [&](auto block, int d) HEADSPAN_ALWAYS_INLINE {
    accumulate_block<T, block.value, vectors>(rows, d, p, o, alpha, first, last);
  });
}

// The same sums in the same order, but masked pairs are left out instead of multiplied by a weight of 0.
template <class T>
HEADSPAN_NOINLINE void accumulate_unmasked(const T* const* rows, int dims, const T* p, T* o, const Vec<T>* alpha,
                                           const uint64_t* lane_masks, int vector, int first, int last) {
  constexpr int width = kWidth<T>;
  for (int d = 0; d < dims; d++) {
    Vec<T> acc{};
    for (int r = first; r < last; r++)
      acc = select(lane_masks[r] >> (vector * width), acc + rows[r][d] * load(p + r * kLanes), acc);
    store(o + d * kLanes, load(o + d * kLanes) * alpha[0] + acc);
  }
}

template <class T, int keys, int vectors>
HEADSPAN_INLINE void outer_block(const T* w, const T* rows, ptrdiff_t row_stride, int d, T* const* out, int first,
                                 int last, int tail) {
  constexpr int width = kWidth<T>;
  Vec<T> acc[keys][vectors];
  unroll<keys>([&](auto k) HEADSPAN_ALWAYS_INLINE {
    unroll<vectors>([&](auto j) HEADSPAN_ALWAYS_INLINE {
      acc[k.value][j.value] = Vec<T>{};
      __builtin_prefetch(out[k.value] + d + j.value * width, 1);
    });
  });
#pragma GCC unroll kLanesInStep
  for (int lane = first; lane < last; lane++) {
    Vec<T> b[vectors];
    unroll<vectors>([&](auto j)
                        HEADSPAN_ALWAYS_INLINE { b[j.value] = load(rows + lane * row_stride + d + j.value * width); });
    unroll<keys>([&](auto k) HEADSPAN_ALWAYS_INLINE {
      Vec<T> const x = broadcast(w[k.value * kLanes + lane]);
      unroll<vectors>([&](auto j) HEADSPAN_ALWAYS_INLINE { acc[k.value][j.value] += x * b[j.value]; });
    });
  }
  // Added to the row only here: float32 sums over queries are carried per group.
  unroll<keys>([&](auto k) HEADSPAN_ALWAYS_INLINE {
    unroll<vectors>([&](auto j) HEADSPAN_ALWAYS_INLINE {
      T* to = out[k.value] + d + j.value * width;
      if (tail == 0)
        store(to, load(to) + acc[k.value][j.value]);
      else
        store_first(to, (Vec<T>)load_first(to, tail) + acc[k.value][j.value], tail);
    });
  });
}

// out[key][d] += sum of w[key][lane] * rows[lane][d] over the lanes first .. last - 1, for `keys` keys. `rows` is
// workspace, padded with zeros to whole vectors.
template <class T, int keys>
HEADSPAN_NOINLINE void outer_products(const T* w, const T* rows, ptrdiff_t row_stride, int dims, T* const* out,
                                      int first, int last) {
  constexpr int width = kWidth<T>;
  tile_lanes(0, dims / width, [&](auto vectors, int v) HEADSPAN_ALWAYS_INLINE {
    outer_block<T, keys, vectors.value>(w, rows, row_stride, v * width, out, first, last, 0);
  });
  int const tail = dims % width;
  if (tail) outer_block<T, keys, 1>(w, rows, row_stride, dims - tail, out, first, last, tail);
}

// The same sums in the same order for one key, leaving masked lanes out.
template <class T>
HEADSPAN_NOINLINE void outer_unmasked(const T* w, const T* rows, ptrdiff_t row_stride, int dims, T* out,
                                      uint64_t lanes) {
  for (int d = 0; d < dims; d++) {
    T sum = 0;
    for (uint64_t left = lanes; left; left &= left - 1) {
      int const lane = __builtin_ctzll(left);
      sum += w[lane] * rows[lane * row_stride + d];
    }
    out[d] += sum;
  }
}

}  // namespace headspan::HEADSPAN_ISA
