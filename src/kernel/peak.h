// SPDX-License-Identifier: BSD-3-Clause
// The peak performance of the multiply-add units of this machine, as the reference of the benchmarks.
#pragma once

#include "base/attributes.h"

namespace headspan::HEADSPAN_ISA {

// Runs `rounds` rounds of twelve independent multiply-adds of vectors V, enough to cover the latency of two units.
// Returns the number of floating-point operations. `value` is the input and the output, so that the compiler can
// neither predict nor drop the operations.
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
