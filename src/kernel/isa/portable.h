// SPDX-License-Identifier: BSD-3-Clause
// Vectors in plain operations, which GCC and Clang compile for any processor. Read this file first: it documents the
// functions that the file of every instruction set must have, and the constants.
#pragma once

#include <stdint.h>

#include <type_traits>

#include "base/attributes.h"

#define HEADSPAN_VECTOR_BYTES 16
#include "by_bits.h"              // IWYU pragma: export
#include "cached_stores.h"        // IWYU pragma: export
#include "kernel/vectors/simd.h"  // IWYU pragma: export

namespace headspan::HEADSPAN_ISA {

// The first n elements of a vector, never touching memory past them; the other elements are 0.
template <class T>
HEADSPAN_INLINE Vec<T> load_first(const T* from, int n) {
  Vec<T> v{};
  for (int i = 0; i < n; i++) v[i] = from[i];
  return v;
}
template <class T, class V>
HEADSPAN_INLINE void store_first(T* to, V v, int n) {
  for (int i = 0; i < n; i++) to[i] = v[i];
}

// From 16-bit floats. Their exponents differ by 112, which a product corrects, also for subnormal numbers.
HEADSPAN_INLINE VecF from_halves(HalfWords x) {
  IntVec<float> const word = __builtin_convertvector(x, IntVec<float>), magnitude = (word & 0x7fff) << 13;
  IntVec<float> const finite = (IntVec<float>)((VecF)magnitude * 0x1p112f);
  return (VecF)(((word & 0x7c00) == 0x7c00 ? magnitude | 0x7f800000 : finite) | (word & 0x8000) << 16);
}

HEADSPAN_INLINE VecF from_bytes(SignedBytes x) { return __builtin_convertvector(x, VecF); }

// The second operand if either is NaN.
template <class V>
HEADSPAN_INLINE V maximum(V a, V b) {
  return a > b ? a : b;
}

// For each lane, `a` if its bit is set and `b` otherwise. There may be more bits than lanes.
template <class T>
HEADSPAN_INLINE Vec<T> select_bits(uint64_t lanes, Vec<T> a, Vec<T> b) {
  IntVec<T> on;
  for (int i = 0; i < kWidth<T>; i++) on[i] = lanes >> i & 1;
  return on ? a : b;
}
HEADSPAN_INLINE VecF select(uint64_t lanes, VecF a, VecF b) { return select_bits<float>(lanes, a, b); }
HEADSPAN_INLINE VecD select(uint64_t lanes, VecD a, VecD b) { return select_bits<double>(lanes, a, b); }

template <class V>
HEADSPAN_INLINE V floor(V x) {  // exact for |x| below 2^22 (2^51); larger values are far beyond all exponents
  constexpr auto rounder = kRounder<std::remove_reference_t<decltype(x[0])> >;
  V const nearest = (x + rounder) - rounder;
  return nearest > x ? nearest - 1 : nearest;
}
// x - floor(x), within one rounding in either direction, and p * 2^floor(x), which is 0 below kSmallestExponent.
template <class V>
HEADSPAN_INLINE V fraction(V x) {
  return x - floor(x);
}
HEADSPAN_INLINE VecF scale_by_power(VecF p, VecF x) { return scale_by_bits<float>(p, x, floor(x)); }
HEADSPAN_INLINE VecD scale_by_power(VecD p, VecD x) { return scale_by_bits<double>(p, x, floor(x)); }

// ---- tuning

// Register tiles: accumulators for `keys` x `vectors` (and `dims` x `vectors`) must fit next to their operands, and
// must be numerous enough to cover two multiply-add units with a latency of four cycles. More accumulators need fewer
// loads per multiplication, which matters if another thread shares the core.
constexpr int kWidestTile = 3;   // vectors of the widest tile,
constexpr int kTallestTile = 4;  // and its keys or dims
template <int vectors>
struct TileShape {
  static constexpr int keys = vectors == 1 ? 8 : 4, dims = keys;
};

// There, other instructions than multiplications matter too, so loops process several keys or lanes per step, and tiles
// of at most this many vectors process a line of dimensions per step.
constexpr int kKeysInStep = 2;
constexpr int kLanesInStep = 1;
constexpr int kLineVectors = 1;

// The vectors per column of accumulate_columns; 0: tiles are added run by run.
constexpr int kColumn = 0;

// The last products of a sum are grouped by accumulator, so that each is stored as soon as it is complete.
constexpr int kLastSteps = 0;

// The steps of an exponential depend on each other, so several are interleaved if there are enough registers.
constexpr int kAtOnce = 1;

}  // namespace headspan::HEADSPAN_ISA
