// SPDX-License-Identifier: BSD-3-Clause
// A pattern as a mask, for pictures and tests.
#pragma once

#include "base/array_view.h"
#include "base/parallel.h"
#include "expression.h"

namespace headspan {

// Which pairs a pattern allows: mask (queries, keys).
void pattern_mask(const Pattern& pattern, const ArrayView<bool, 2>& mask, const InterruptCheck& interrupted);

}  // namespace headspan
