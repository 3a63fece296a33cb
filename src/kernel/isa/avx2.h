// SPDX-License-Identifier: BSD-3-Clause
// AVX2 with FMA: masks are vectors. portable.h documents the functions and constants.
#pragma once

#include <immintrin.h>
#include <stdint.h>

#include "base/attributes.h"

#define HEADSPAN_VECTOR_BYTES 32
#include "by_bits.h"              // IWYU pragma: export
#include "cached_stores.h"        // IWYU pragma: export
#include "kernel/vectors/simd.h"  // IWYU pragma: export

namespace headspan::HEADSPAN_ISA {

HEADSPAN_INLINE __m256i first_lanes(int32_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
HEADSPAN_INLINE __m256i first_lanes(int64_t n) {
  return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3));
}
HEADSPAN_INLINE VecF from_halves(HalfWords x) { return (VecF)_mm256_cvtph_ps((__m128i)x); }
HEADSPAN_INLINE VecF from_bytes(SignedBytes x) {
  return (VecF)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_cvtsi64_si128((int64_t)x)));
}
HEADSPAN_INLINE VecF load_first(const float* from, int n) {
  return (VecF)_mm256_maskload_ps(from, first_lanes((int32_t)n));
}
HEADSPAN_INLINE VecD load_first(const double* from, int n) {
  return (VecD)_mm256_maskload_pd(from, first_lanes((int64_t)n));
}
HEADSPAN_INLINE void store_first(float* to, VecF v, int n) {
  _mm256_maskstore_ps(to, first_lanes((int32_t)n), (__m256)v);
}
HEADSPAN_INLINE void store_first(double* to, VecD v, int n) {
  _mm256_maskstore_pd(to, first_lanes((int64_t)n), (__m256d)v);
}

HEADSPAN_INLINE VecF maximum(VecF a, VecF b) { return (VecF)_mm256_max_ps((__m256)a, (__m256)b); }
HEADSPAN_INLINE VecD maximum(VecD a, VecD b) { return (VecD)_mm256_max_pd((__m256d)a, (__m256d)b); }

HEADSPAN_INLINE VecF select(uint64_t lanes, VecF a, VecF b) {
  __m256i const bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  __m256i const on = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)lanes), bit), bit);
  return (VecF)_mm256_blendv_ps((__m256)b, (__m256)a, (__m256)on);
}
HEADSPAN_INLINE VecD select(uint64_t lanes, VecD a, VecD b) {
  __m256i const bit = _mm256_setr_epi64x(1, 2, 4, 8);
  __m256i const on = _mm256_cmpeq_epi64(_mm256_and_si256(_mm256_set1_epi64x((long long)lanes), bit), bit);
  return (VecD)_mm256_blendv_pd((__m256d)b, (__m256d)a, (__m256d)on);
}

HEADSPAN_INLINE VecF floor(VecF x) { return (VecF)_mm256_floor_ps((__m256)x); }
HEADSPAN_INLINE VecD floor(VecD x) { return (VecD)_mm256_floor_pd((__m256d)x); }
template <class V>
HEADSPAN_INLINE V fraction(V x) {
  return x - floor(x);
}
HEADSPAN_INLINE VecF scale_by_power(VecF p, VecF x) { return scale_by_bits<float>(p, x, floor(x)); }
HEADSPAN_INLINE VecD scale_by_power(VecD p, VecD x) { return scale_by_bits<double>(p, x, floor(x)); }

// ---- tuning

constexpr int kWidestTile = 3;  // 12 accumulators of 16 registers
constexpr int kTallestTile = 4;
template <int vectors>
struct TileShape {
  static constexpr int keys = vectors == 1 ? 8 : vectors == 2 ? 6 : 4, dims = keys;
};
constexpr int kKeysInStep = 4;
constexpr int kLanesInStep = 4;
constexpr int kLineVectors = 3;
constexpr int kColumn = 2;
constexpr int kLastSteps = 0;
constexpr int kAtOnce = 1;

}  // namespace headspan::HEADSPAN_ISA
