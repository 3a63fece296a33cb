// SPDX-License-Identifier: BSD-3-Clause
// One vector type over the lanes of an instruction set, and the operations that compilers support everywhere. Each file
// in isa/ defines the length of its vectors, includes this file, and adds the operations that differ between
// instruction sets.
#pragma once

#include <stdint.h>
#include <string.h>

#include <utility>  // integer_sequence: types only, no function that could be merged between units

#include "base/attributes.h"

#ifndef HEADSPAN_VECTOR_BYTES
#define HEADSPAN_VECTOR_BYTES 16  // of a header of isa/ that is compiled alone
#endif

namespace headspan::HEADSPAN_ISA {

constexpr int kVectorBytes = HEADSPAN_VECTOR_BYTES;

template <class T>
struct VectorOf;
template <>
struct VectorOf<float> {
  typedef float Values __attribute__((vector_size(kVectorBytes)));
  typedef uint32_t Integers __attribute__((vector_size(kVectorBytes)));
  typedef uint32_t Words __attribute__((vector_size(kVectorBytes)));
};
template <>
struct VectorOf<double> {
  typedef double Values __attribute__((vector_size(kVectorBytes)));
  typedef uint64_t Integers __attribute__((vector_size(kVectorBytes)));
  typedef uint32_t Words __attribute__((vector_size(kVectorBytes / 2)));
};
template <class T>
using Vec = typename VectorOf<T>::Values;
template <class T>
using IntVec = typename VectorOf<T>::Integers;
template <class T>
using WordVec = typename VectorOf<T>::Words;  // 32 bits for each number
using VecF = Vec<float>;
using VecD = Vec<double>;
// As many elements as floats.
typedef uint16_t HalfWords __attribute__((vector_size(kVectorBytes / 2)));
typedef int8_t SignedBytes __attribute__((vector_size(kVectorBytes / 4)));

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

// 2^floor(x) is 0 for smaller x, so all results are normal numbers. (An underflow costs more than a hundred cycles.)
template <class T>
constexpr T kSmallestExponent = sizeof(T) == 4 ? T(-125) : T(-1021);

}  // namespace headspan::HEADSPAN_ISA
