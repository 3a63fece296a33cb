// SPDX-License-Identifier: BSD-3-Clause
// Functions of vectors that are the same for every instruction set, built from the operations in isa/.
#pragma once

#include "base/attributes.h"
#include "kernel/isa/instruction_set.h"

namespace headspan::HEADSPAN_ISA {

template <class T>
HEADSPAN_INLINE Vec<T> absolute(Vec<T> x) {
  return maximum(x, -x);
}
template <class T>
HEADSPAN_INLINE bool all_zero(Vec<T> v) {  // false if there is a NaN
  for (int i = 0; i < kWidth<T>; i++)
    if (!(v[i] == T(0))) return false;
  return true;
}

// Polynomials for 2^f on [0, 1], the highest power first, with the smallest relative error among those that are 1 at 0.
template <class T>
struct Exp2;
template <>
struct Exp2<float> {  // the error is 9e-8
  static constexpr int powers = 6;
  static constexpr float coefficients[powers] = {1.86713007e-3f, 9.01703032e-3f, 5.57999131e-2f,
                                                 2.40164450e-1f, 6.93151312e-1f, 1.0f};
};
template <>
struct Exp2<double> {  // the error is 4e-18, below rounding: each coefficient was fitted to those below it, as rounded
  static constexpr int powers = 12;
  static constexpr double coefficients[powers] = {6.266877790404942e-10, 6.558689194299673e-09,  1.0253152849695876e-07,
                                                  1.320841192612837e-06, 1.5253168118393545e-05, 0.00015403512862233922,
                                                  0.001333355860404085,  0.009618129100242684,   0.05550410866549766,
                                                  0.24022650695907102,   0.6931471805599457,     1.0};
};

// x = 2^x for some vectors, interleaved step by step, since each step of a vector depends on the previous one. x may be
// up to about 100; the result is 0 for x far below, as for -infinity, NaN for NaN, and exactly 1 for 0, so that sums
// under an unchanged maximum do not change.
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
