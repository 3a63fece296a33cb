// SPDX-License-Identifier: BSD-3-Clause
// Pairs, counted and drawn instead of computed.
#pragma once

#include <vector>

#include "base/array_view.h"
#include "base/parallel.h"
#include "patterns/expression.h"
#include "visibility.h"

namespace headspan {

// Pairs with m > 0: pairs (batch, heads) from spans (batch, heads, tokens), and one pattern, or one for each head, or
// none.
void count_pairs(const Visibility& visibility, const ArrayView<const double, 3>& span,
                 const std::vector<const Pattern*>& patterns, const ArrayView<std::int64_t, 2>& pairs,
                 const InterruptCheck& interrupted);

// Which pairs a pattern allows: mask (queries, keys).
void pattern_mask(const Pattern& pattern, const ArrayView<bool, 2>& mask, const InterruptCheck& interrupted);

}  // namespace headspan
