// SPDX-License-Identifier: BSD-3-Clause
// The instruction set of this unit, whose file comes first in it: see unit.cpp.in. A header that is compiled alone, as
// an editor and clang-tidy do, gets the portable one.
#pragma once

#ifndef HEADSPAN_VECTOR_BYTES
#include "kernel/isa/portable.h"  // IWYU pragma: export
#endif
#include "kernel/vectors/simd.h"  // IWYU pragma: export
