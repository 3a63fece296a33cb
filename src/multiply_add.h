// SPDX-License-Identifier: BSD-3-Clause
// What the multiply-add units of this machine can do: the yardstick of the benchmarks.
#pragma once

#include "compiler.h"

namespace headspan::HEADSPAN_ISA {

// `rounds` rounds of twelve independent multiply-adds of vectors V, enough to cover the latency of two units. Returns
// how many floating-point operations these were; `sink` takes the result, so that they are computed.
template <class T, class V>
double multiply_adds(long rounds, T* sink) {
  constexpr int chains = 12;
  V const factor = V{} + T(0.75);
  V x[chains];
  for (int i = 0; i < chains; i++) x[i] = V{} + T(i);
  for (long r = 0; r < rounds; r++)
    for (int i = 0; i < chains; i++) x[i] = x[i] * factor + factor;
  V sum{};
  for (int i = 0; i < chains; i++) sum += x[i];
  __builtin_memcpy(sink, &sum, sizeof(T));
  return 2.0 * chains * (double)rounds * (sizeof(V) / sizeof(T));
}

}  // namespace headspan::HEADSPAN_ISA
