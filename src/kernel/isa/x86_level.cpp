// SPDX-License-Identifier: BSD-3-Clause
#include "kernel/isa/x86_level.h"

#include <cpuid.h>

namespace headspan {

namespace {

struct Registers {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

// The result of CPUID for a leaf, zeros for an unknown leaf.
Registers cpuid(unsigned leaf) {
  Registers registers;
  __get_cpuid_count(leaf, 0, &registers.a, &registers.b, &registers.c, &registers.d);
  return registers;
}

constexpr unsigned bits() { return 0; }
template <class... More>
constexpr unsigned bits(int first, More... more) {
  return 1u << first | bits(more...);
}
bool all(unsigned word, unsigned wanted) { return (word & wanted) == wanted; }

// The registers that the operating system saves for each thread, as bits (XCR0).
unsigned kept_registers() {
  unsigned low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

}  // namespace

int x86_level() {
  unsigned const basic = cpuid(1).c, more = cpuid(7).b, extended = cpuid(0x80000001).c;
  constexpr int fma = 12, movbe = 22, osxsave = 27, avx = 28, f16c = 29;
  if (!all(basic, bits(fma, movbe, osxsave, avx, f16c))) return 1;
  constexpr int bmi1 = 3, avx2 = 5, bmi2 = 8, lzcnt = 5;
  if (!all(more, bits(bmi1, avx2, bmi2)) || !all(extended, bits(lzcnt))) return 1;
  unsigned const kept = kept_registers();
  constexpr int sse_state = 1, avx_state = 2, mask_state = 5, zmm_state = 6, zmm16_state = 7;
  if (!all(kept, bits(sse_state, avx_state))) return 1;
  constexpr int avx512f = 16, avx512dq = 17, avx512cd = 28, avx512bw = 30, avx512vl = 31;
  bool const wide = all(more, bits(avx512f, avx512dq, avx512cd, avx512bw, avx512vl));
  return wide && all(kept, bits(mask_state, zmm_state, zmm16_state)) ? 4 : 3;
}

}  // namespace headspan
