// SPDX-License-Identifier: BSD-3-Clause
// The soft mask of a span, and the distances where it starts and ends. No other file of the core contains the formula
//
//     m(x) = clip((R + z - x) / R, 0, 1)        x: distance, z: span, R: ramp
//
// after Sukhbaatar et al., "Adaptive Attention Span in Transformers", ACL 2019, equation 3. R = 0 is a hard window: 1
// up to z.
#pragma once

#include <math.h>
#include <stddef.h>

#include "attributes.h"

namespace headspan {

// m of a pair in reach (m > 0 by `reach` below). z - x comes first, because R may be lost in R + z. The lower bound
// makes up for rounding, so that a row whose only key is at the very end of the ramp still has a weight.
template <class V>
HEADSPAN_INLINE V soft_mask(V distance, V span, V ramp, V inverse_ramp, V floor, V one) {
  V m = ((span - distance) + ramp) * inverse_ramp;
  m = m < one ? m : one;
  return m > floor ? m : floor;
}

// Whether m > 0.
HEADSPAN_INLINE bool in_reach(double distance, double span, double ramp) {
  return distance <= span || distance < span + ramp;
}

// The largest integer distance with m > 0, at most `limit`.
HEADSPAN_INLINE ptrdiff_t reach(double span, double ramp, ptrdiff_t limit) {
  double const last = floor(span), end = ceil(span + ramp) - 1, furthest = end > last ? end : last;
  return furthest < (double)limit ? (ptrdiff_t)furthest : limit;
}

// The smallest integer distance x >= z, at most `limit`: from here on the mask decreases, and the span has a gradient.
HEADSPAN_INLINE ptrdiff_t ramp_start(double span, ptrdiff_t limit) {
  double const start = ceil(span);
  return start < (double)limit ? (ptrdiff_t)start : limit;
}

}  // namespace headspan
