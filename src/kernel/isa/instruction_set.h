// SPDX-License-Identifier: BSD-3-Clause
// The instruction set of this unit, whose file is included first: see unit.cpp.in. A header that is compiled alone, as
// by an editor or clang-tidy, uses the portable one.
#pragma once

#ifndef HEADSPAN_VECTOR_BYTES
#include "kernel/isa/portable.h"  // IWYU pragma: export
#endif
#include "kernel/vectors/simd.h"  // IWYU pragma: export
