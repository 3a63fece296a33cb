// SPDX-License-Identifier: BSD-3-Clause
// Powers of 2 for instruction sets without an instruction for them, composed bit by bit.
#pragma once

#include "base/attributes.h"
#include "kernel/vectors/simd.h"

namespace headspan::HEADSPAN_ISA {

// Adding 1.5 * 2^23 (2^52) puts an integer of moderate size into the low bits, rounded to nearest.
template <class T>
constexpr T kRounder = sizeof(T) == 4 ? T(12582912.0) : T(6755399441055744.0);

// p * 2^exponent, where `exponent` is floor(x). The power consists of the low bits of a large number to which
// `exponent` is added.
template <class T>
HEADSPAN_INLINE Vec<T> scale_by_bits(Vec<T> p, Vec<T> x, Vec<T> exponent) {
  constexpr T rounder_and_bias = kRounder<T> + (sizeof(T) == 4 ? T(127) : T(1023));
  Vec<T> const power = (Vec<T>)((IntVec<T>)(exponent + rounder_and_bias) << (sizeof(T) == 4 ? 23 : 52));
  return x < broadcast(kSmallestExponent<T>) ? Vec<T>{} : p * power;  // false for NaN, which stays NaN
}

}  // namespace headspan::HEADSPAN_ISA
