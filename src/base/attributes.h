// SPDX-License-Identifier: BSD-3-Clause
// The two attributes that the per-ISA units depend on.
#pragma once

// Internal linkage and always inlined: a unit compiled for one instruction set must never emit a function that the
// linker could merge with, or choose over, the same function compiled for another.
#define HEADSPAN_INLINE static inline __attribute__((always_inline))
// For member functions and lambdas, which cannot be static.
#define HEADSPAN_ALWAYS_INLINE __attribute__((always_inline))
// Register tiles are functions of their own so that each gets its own register allocation.
#define HEADSPAN_NOINLINE static __attribute__((noinline))
