// SPDX-License-Identifier: BSD-3-Clause
// One vector type over the lanes of the instruction set that this file is compiled for. Included by the per-ISA units
// only.
#pragma once

#include <stdint.h>
#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include <utility>  // integer_sequence: types only, no function that could be merged between units

#include "base/attributes.h"

namespace headspan::HEADSPAN_ISA {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

template <class T>
struct VectorOf;
template <>
struct VectorOf<float> {
  typedef float Values __attribute__((vector_size(kVectorBytes)));
  typedef uint32_t Integers __attribute__((vector_size(kVectorBytes)));
};
template <>
struct VectorOf<double> {
  typedef double Values __attribute__((vector_size(kVectorBytes)));
  typedef uint64_t Integers __attribute__((vector_size(kVectorBytes)));
};
template <class T>
using Vec = typename VectorOf<T>::Values;
template <class T>
using IntVec = typename VectorOf<T>::Integers;
using VecF = Vec<float>;
using VecD = Vec<double>;

template <class T>
constexpr int kWidth = kVectorBytes / (int)sizeof(T);
template <class T>
constexpr int kLine = 64 / (int)sizeof(T);  // elements of a cache line

// ---- loops over registers: f(Index<0>{}), f(Index<1>{}), ... with the index known at compile time
template <int N>
struct Index {
  static constexpr int value = N;
};
template <class F, int... I>
HEADSPAN_INLINE void unroll_sequence(F&& f, std::integer_sequence<int, I...>) {
  (f(Index<I>{}), ...);
}
template <int N, class F>
HEADSPAN_INLINE void unroll(F&& f) {
  unroll_sequence(static_cast<F&&>(f), std::make_integer_sequence<int, N>{});
}

// ---- memory: no alignment is assumed anywhere
template <class T>
HEADSPAN_INLINE Vec<T> load(const T* from) {
  Vec<T> v;
  memcpy(&v, from, sizeof v);
  return v;
}
template <class T>
HEADSPAN_INLINE void store(T* to, Vec<T> v) {
  memcpy(to, &v, sizeof v);
}
template <class T>
HEADSPAN_INLINE Vec<T> broadcast(T x) {
  return x - Vec<T>{};  // minus zero keeps the sign of -0
}

// 2^floor(x) is 0 for smaller x: what is left are normal numbers.
template <class T>
constexpr T kSmallestExponent = sizeof(T) == 4 ? T(-125) : T(-1021);

// ---- what differs between instruction sets: partial loads and stores (never touching memory past the first n
// elements), stores of aligned vectors past the caches, where a vector is a whole line (finish_stores before another
// thread may read them), maximum (the second operand if either is NaN), selection by the low bits of a mask, x -
// floor(x), p * 2^floor(x)
#if defined(__AVX512F__)
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
// An underflow costs more than a hundred cycles: those lanes are left out.
HEADSPAN_INLINE VecF scale_by_power(VecF p, VecF x) {
  __mmask16 const normal = _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(kSmallestExponent<float>), _CMP_NLT_UQ);
  return (VecF)_mm512_maskz_scalef_ps(normal, (__m512)p, (__m512)x);
}
HEADSPAN_INLINE VecD scale_by_power(VecD p, VecD x) {
  __mmask8 const normal = _mm512_cmp_pd_mask((__m512d)x, _mm512_set1_pd(kSmallestExponent<double>), _CMP_NLT_UQ);
  return (VecD)_mm512_maskz_scalef_pd(normal, (__m512d)p, (__m512d)x);
}
#else
constexpr bool kStoresPastCaches = false;  // parts of lines would be slower than what the caches do
template <class T, class V>
HEADSPAN_INLINE void store_past_caches(T* to, V v) {
  store<T>(to, v);
}
HEADSPAN_INLINE void finish_stores() {}
// Adding 1.5 * 2^23 (2^52) puts an integer of moderate size into the low bits, rounded to nearest.
template <class T>
constexpr T kRounder = sizeof(T) == 4 ? T(12582912.0) : T(6755399441055744.0);
#if defined(__AVX2__)
HEADSPAN_INLINE __m256i first_lanes(int32_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
HEADSPAN_INLINE __m256i first_lanes(int64_t n) {
  return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3));
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
#else
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
template <class V>
HEADSPAN_INLINE V maximum(V a, V b) {
  return a > b ? a : b;
}
template <class T>
HEADSPAN_INLINE Vec<T> select_bits(uint64_t lanes, Vec<T> a, Vec<T> b) {
  IntVec<T> on;
  for (int i = 0; i < kWidth<T>; i++) on[i] = lanes >> i & 1;
  return on ? a : b;
}
HEADSPAN_INLINE VecF select(uint64_t lanes, VecF a, VecF b) { return select_bits<float>(lanes, a, b); }
HEADSPAN_INLINE VecD select(uint64_t lanes, VecD a, VecD b) { return select_bits<double>(lanes, a, b); }
template <class V>
HEADSPAN_INLINE V floor(V x) {  // exact for |x| below 2^22 (2^51); what lies further is far below any exponent
  constexpr auto rounder = kRounder<std::remove_reference_t<decltype(x[0])> >;
  V const nearest = (x + rounder) - rounder;
  return nearest > x ? nearest - 1 : nearest;
}
#endif
template <class V>
HEADSPAN_INLINE V fraction(V x) {
  return x - floor(x);
}
// p * 2^floor(x): the power is made of the bits at the lower end of a large number to which floor(x) is added.
template <class T>
HEADSPAN_INLINE Vec<T> scale_bits(Vec<T> p, Vec<T> x) {
  constexpr T rounder_and_bias = kRounder<T> + (sizeof(T) == 4 ? T(127) : T(1023));
  Vec<T> const power = (Vec<T>)((IntVec<T>)(floor(x) + rounder_and_bias) << (sizeof(T) == 4 ? 23 : 52));
  return x < broadcast(kSmallestExponent<T>) ? Vec<T>{} : p * power;  // not so for a NaN, which stays one
}
HEADSPAN_INLINE VecF scale_by_power(VecF p, VecF x) { return scale_bits<float>(p, x); }
HEADSPAN_INLINE VecD scale_by_power(VecD p, VecD x) { return scale_bits<double>(p, x); }
#endif

template <class T>
HEADSPAN_INLINE Vec<T> absolute(Vec<T> x) {
  return maximum(x, -x);
}
template <class T>
HEADSPAN_INLINE bool all_zero(Vec<T> v) {  // false where there is a NaN
  for (int i = 0; i < kWidth<T>; i++)
    if (!(v[i] == T(0))) return false;
  return true;
}

// Polynomials for 2^f on [0, 1], the highest power first, with the least relative error of those that are 1 at 0.
template <class T>
struct Exp2;
template <>
struct Exp2<float> {  // the error is 8e-8
  static constexpr int powers = 6;
  static constexpr float coefficients[powers] = {1.86713007e-3f, 9.01703032e-3f, 5.57999131e-2f,
                                                 2.40164450e-1f, 6.93151312e-1f, 1.0f};
};
template <>
struct Exp2<double> {  // the error is 3e-18, below rounding
  static constexpr int powers = 12;
  static constexpr double coefficients[powers] = {
      6.2634646143738215e-10, 6.559530238207647e-09,  1.0253212213066721e-07, 1.3208367320834617e-06,
      1.5253175052704487e-05, 0.00015403512309794886, 0.0013333558629560473,  0.009618129099550946,
      0.05550410866560223,    0.24022650695906331,    0.6931471805599453,     1.0};
};

// x = 2^x for some vectors, step by step, since each step of one waits for the step before. x may be up to about 100; 0
// for x far below, as for -infinity; NaN for NaN; exactly 1 for 0, so that sums under an unchanged maximum stay as they
// are.
template <class T, int n>
HEADSPAN_INLINE void exp2_all(Vec<T> (&x)[n]) {
  Vec<T> f[n], p[n];
  unroll<n>([&](auto i) HEADSPAN_ALWAYS_INLINE { f[i.value] = fraction(x[i.value]); });
  unroll<n>([&](auto i) HEADSPAN_ALWAYS_INLINE { p[i.value] = broadcast(Exp2<T>::coefficients[0]); });
  unroll<Exp2<T>::powers - 1>([&](auto power) HEADSPAN_ALWAYS_INLINE {
    constexpr T next = Exp2<T>::coefficients[power.value + 1];
    unroll<n>([&](auto i) HEADSPAN_ALWAYS_INLINE { p[i.value] = p[i.value] * f[i.value] + next; });
  });
  unroll<n>([&](auto i) HEADSPAN_ALWAYS_INLINE { x[i.value] = scale_by_power(p[i.value], x[i.value]); });
}
HEADSPAN_INLINE VecF exp2(VecF x) {
  VecF one[] = {x};
  exp2_all<float>(one);
  return one[0];
}
HEADSPAN_INLINE VecD exp2(VecD x) {
  VecD one[] = {x};
  exp2_all<double>(one);
  return one[0];
}

}  // namespace headspan::HEADSPAN_ISA
