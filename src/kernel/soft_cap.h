// SPDX-License-Identifier: BSD-3-Clause
// A soft cap of the products, c * tanh(s / c), after Gemma 2: Gemma Team, "Gemma 2: Improving Open Language Models at a
// Practical Size", 2024, section 2.
#pragma once

#include "positions.h"

namespace headspan::HEADSPAN_ISA {

// tanh of |x| for each of some vectors, from y = 2 * log2(e) * |x|. With e = 2^y - 1 it is e / (e + 2), and e is put
// together so that nothing is lost for small x: 2^y = 2^n * (1 + f * q(f)), of which 2^n - 1 and f * q(f) are exact
// and not negative.
template <class T, int n>
HEADSPAN_INLINE void tanh_of_exponents(Vec<T> (&y)[n]) {
  Vec<T> f[n], q[n];
  unroll<n>([&](auto i) HEADSPAN_ALWAYS_INLINE { f[i.value] = fraction(y[i.value]); });
  unroll<n>([&](auto i) HEADSPAN_ALWAYS_INLINE { q[i.value] = broadcast(Exp2<T>::coefficients[0]); });
  unroll<Exp2<T>::powers - 2>([&](auto power) HEADSPAN_ALWAYS_INLINE {
    constexpr T next = Exp2<T>::coefficients[power.value + 1];
    unroll<n>([&](auto i) HEADSPAN_ALWAYS_INLINE { q[i.value] = q[i.value] * f[i.value] + next; });
  });
  unroll<n>([&](auto i) HEADSPAN_ALWAYS_INLINE {
    Vec<T> const whole = scale_by_power(broadcast(T(1)), y[i.value]);
    Vec<T> const e = (whole * f[i.value]) * q[i.value] + (whole - 1);
    y[i.value] = e / (e + 2);
  });
}

template <class T>
class SoftCap {
 public:
  HEADSPAN_ALWAYS_INLINE explicit SoftCap(T cap)
      : cap_(T(cap * kLog2e)), rate_(cap > 0 ? T(2 * kLog2e / cap_) : T(0)) {}
  HEADSPAN_ALWAYS_INLINE explicit operator bool() const { return cap_ > 0; }

  // Caps some products, times log2(e); `slopes`, when not null, gets the derivatives, a row of lanes apart.
  template <int n>
  HEADSPAN_ALWAYS_INLINE void apply(Vec<T> (&x)[n], T* slopes) const {
    constexpr T furthest = 64;  // from here on tanh is 1
    Vec<T> y[n];
    unroll<n>([&](auto i) HEADSPAN_ALWAYS_INLINE {
      Vec<T> const far = absolute<T>(x[i.value]) * rate_;
      y[i.value] = far > furthest ? broadcast(furthest) : far;  // NaN stays
    });
    tanh_of_exponents<T>(y);
    unroll<n>([&](auto i) HEADSPAN_ALWAYS_INLINE {
      if (slopes) store<T>(slopes + i.value * kLanes, T(1) - y[i.value] * y[i.value]);
      x[i.value] = x[i.value] < T(0) ? -y[i.value] * cap_ : y[i.value] * cap_;
    });
  }

 private:
  T cap_, rate_;
};

}  // namespace headspan::HEADSPAN_ISA
