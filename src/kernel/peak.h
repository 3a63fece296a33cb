// SPDX-License-Identifier: BSD-3-Clause
// What the multiply-add units of this machine can do: the yardstick of the benchmarks.
#pragma once

#include "base/attributes.h"

namespace headspan::HEADSPAN_ISA {

// `rounds` rounds of twelve independent multiply-adds of vectors V, enough to cover the latency of two units. Returns
// how many floating-point operations these were. `value` is where they start and what comes out, so that the compiler
// can neither know nor drop them.
template <class T, class V>
double multiply_adds(long rounds, T* value) {
  constexpr int chains = 12;
  V const factor = V{} + T(0.75);
  V x[chains];
  for (int i = 0; i < chains; i++) x[i] = V{} + *value * T(i);
  for (long r = 0; r < rounds; r++)
    for (int i = 0; i < chains; i++) x[i] = x[i] * factor + factor;
  V sum{};
  for (int i = 0; i < chains; i++) sum += x[i];
  __builtin_memcpy(value, &sum, sizeof(T));
  return 2.0 * chains * (double)rounds * (sizeof(V) / sizeof(T));
}

}  // namespace headspan::HEADSPAN_ISA
