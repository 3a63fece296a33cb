// SPDX-License-Identifier: BSD-3-Clause
// AVX-512 F, BW, DQ and VL: a vector is a cache line, and partial operations take a mask register. portable.h documents
// the functions and constants.
#pragma once

#include <immintrin.h>
#include <stdint.h>

#include "base/attributes.h"

#define HEADSPAN_VECTOR_BYTES 64
#include "kernel/vectors/simd.h"  // IWYU pragma: export

namespace headspan::HEADSPAN_ISA {

HEADSPAN_INLINE VecF from_halves(HalfWords x) { return (VecF)_mm512_cvtph_ps((__m256i)x); }
HEADSPAN_INLINE VecF from_bytes(SignedBytes x) { return (VecF)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32((__m128i)x)); }
HEADSPAN_INLINE VecF load_first(const float* from, int n) {
  return (VecF)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), from);
}
HEADSPAN_INLINE VecD load_first(const double* from, int n) {
  return (VecD)_mm512_maskz_loadu_pd((__mmask8)((1u << n) - 1), from);
}
HEADSPAN_INLINE void store_first(float* to, VecF v, int n) {
  _mm512_mask_storeu_ps(to, (__mmask16)((1u << n) - 1), (__m512)v);
}
HEADSPAN_INLINE void store_first(double* to, VecD v, int n) {
  _mm512_mask_storeu_pd(to, (__mmask8)((1u << n) - 1), (__m512d)v);
}

// Writes a whole line to memory without reading it first. Must be finished before another thread may read it.
constexpr bool kStoresPastCaches = true;
HEADSPAN_INLINE void store_past_caches(float* to, VecF v) { _mm512_stream_ps(to, (__m512)v); }
HEADSPAN_INLINE void store_past_caches(double* to, VecD v) { _mm512_stream_pd(to, (__m512d)v); }
HEADSPAN_INLINE void finish_stores() { _mm_sfence(); }

HEADSPAN_INLINE VecF maximum(VecF a, VecF b) { return (VecF)_mm512_max_ps((__m512)a, (__m512)b); }
HEADSPAN_INLINE VecD maximum(VecD a, VecD b) { return (VecD)_mm512_max_pd((__m512d)a, (__m512d)b); }
HEADSPAN_INLINE VecF select(uint64_t lanes, VecF a, VecF b) {
  return (VecF)_mm512_mask_blend_ps((__mmask16)lanes, (__m512)b, (__m512)a);
}
HEADSPAN_INLINE VecD select(uint64_t lanes, VecD a, VecD b) {
  return (VecD)_mm512_mask_blend_pd((__mmask8)lanes, (__m512d)b, (__m512d)a);
}

HEADSPAN_INLINE VecF fraction(VecF x) {
  return (VecF)_mm512_reduce_ps((__m512)x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}
HEADSPAN_INLINE VecD fraction(VecD x) {
  return (VecD)_mm512_reduce_pd((__m512d)x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}
// Lanes that would underflow are masked out.
HEADSPAN_INLINE VecF scale_by_power(VecF p, VecF x) {
  __mmask16 const normal = _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(kSmallestExponent<float>), _CMP_NLT_UQ);
  return (VecF)_mm512_maskz_scalef_ps(normal, (__m512)p, (__m512)x);
}
HEADSPAN_INLINE VecD scale_by_power(VecD p, VecD x) {
  __mmask8 const normal = _mm512_cmp_pd_mask((__m512d)x, _mm512_set1_pd(kSmallestExponent<double>), _CMP_NLT_UQ);
  return (VecD)_mm512_maskz_scalef_pd(normal, (__m512d)p, (__m512d)x);
}

// ---- tuning

constexpr int kWidestTile = 4;  // 24 accumulators of 32 registers
constexpr int kTallestTile = 6;
template <int vectors>
struct TileShape {
  static constexpr int keys = vectors == 4 ? kTallestTile : 8;
  static constexpr int dims = vectors == 4 ? kTallestTile : vectors == 1 ? 16 : 8;
};
constexpr int kKeysInStep = 2;
constexpr int kLanesInStep = 1;
constexpr int kLineVectors = 1;
constexpr int kColumn = 0;
constexpr int kLastSteps = 3;  // a 64-byte store that must read a register displaces a multiplication (Zen 4)
constexpr int kAtOnce = 4;

}  // namespace headspan::HEADSPAN_ISA
