// SPDX-License-Identifier: BSD-3-Clause
// A soft cap of the products, c * tanh(s / c), after Gemma 2: Gemma Team, "Gemma 2: Improving Open Language Models at a
// Practical Size", 2024, section 2.
#pragma once

#include "base/attributes.h"
#include "base/tile.h"
#include "kernel/interface.h"
#include "kernel/isa/instruction_set.h"
#include "kernel/vectors/vector_math.h"
#include "positions.h"

namespace headspan::HEADSPAN_ISA {

// x * P(x^2) / Q(x^2) with the smallest relative error up to 9, from where on tanh is 1 in float32: 2e-8, and 3e-7 with
// rounding. The highest power comes first.
struct Tanh {
  static constexpr int powers = 5;
  static constexpr float over[powers] = {1.33532048e-08f, 2.06080476e-05f, 3.49552697e-03f, 1.33809745e-01f, 1.0f};
  static constexpr float under[powers] = {7.77596540e-07f, 3.28553317e-04f, 2.58767512e-02f, 4.67142910e-01f, 1.0f};
};

// x = tanh(x) for some vectors; NaN for NaN.
template <int n>
HEADSPAN_INLINE void tanh_all(VecF* x) {
  VecF square[n], over[n], under[n];
  unroll<n>([&](auto i) HEADSPAN_ALWAYS_INLINE {
    VecF const most = broadcast(9.0f), bounded = maximum(-most, x[i.value]);  // returns the second operand for NaN
    x[i.value] = most < bounded ? most : bounded;
    square[i.value] = x[i.value] * x[i.value];
    over[i.value] = broadcast(Tanh::over[0]), under[i.value] = broadcast(Tanh::under[0]);
  });
  unroll<Tanh::powers - 1>([&](auto power) HEADSPAN_ALWAYS_INLINE {
    unroll<n>([&](auto i) HEADSPAN_ALWAYS_INLINE {
      over[i.value] = over[i.value] * square[i.value] + Tanh::over[power.value + 1];
      under[i.value] = under[i.value] * square[i.value] + Tanh::under[power.value + 1];
    });
  });
  unroll<n>([&](auto i) HEADSPAN_ALWAYS_INLINE { x[i.value] = x[i.value] * over[i.value] / under[i.value]; });
}
// With e = 2^y - 1 for y = 2 * log2(e) * |x|, tanh is e / (e + 2). Small x lose no accuracy: 2^y = 2^whole * (1 + f *
// q(f)), where 2^whole - 1 and f * q(f) are non-negative.
template <int n>
HEADSPAN_INLINE void tanh_all(VecD* x) {
  unroll<n>([&](auto i) HEADSPAN_ALWAYS_INLINE {
    VecD const y = -maximum(broadcast(-64.0), -2 * kLog2e * absolute<double>(x[i.value])), f = fraction(y);
    VecD q = broadcast(Exp2<double>::coefficients[0]);
    unroll<Exp2<double>::powers - 2>(
        [&](auto power) HEADSPAN_ALWAYS_INLINE { q = q * f + Exp2<double>::coefficients[power.value + 1]; });
    VecD const power = scale_by_power(broadcast(1.0), y), e = power * f * q + (power - 1), t = e / (e + 2);
    x[i.value] = x[i.value] < 0 ? -t : t;
  });
}

template <class T>
class SoftCap {
 public:
  HEADSPAN_ALWAYS_INLINE explicit SoftCap(T cap)
      : cap_(T(cap * kLog2e)), inverse_(cap > 0 ? T(1 / (cap * kLog2e)) : T(0)) {}
  HEADSPAN_ALWAYS_INLINE explicit operator bool() const { return cap_ > 0; }

  // Caps some products, times log2(e); `slopes`, if not null, receives the derivatives, with a stride of a row of
  // lanes.
  template <int n>
  HEADSPAN_ALWAYS_INLINE void apply(Vec<T>* x, T* slopes) const {
    unroll<n>([&](auto i) HEADSPAN_ALWAYS_INLINE { x[i.value] *= inverse_; });
    tanh_all<n>(x);
    unroll<n>([&](auto i) HEADSPAN_ALWAYS_INLINE {
      if (slopes) store<T>(slopes + i.value * kLanes, T(1) - x[i.value] * x[i.value]);
      x[i.value] *= cap_;
    });
  }

 private:
  T cap_, inverse_;
};

}  // namespace headspan::HEADSPAN_ISA
