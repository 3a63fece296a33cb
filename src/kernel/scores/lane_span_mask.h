// SPDX-License-Identifier: BSD-3-Clause
// The soft mask of one vector of lanes, each with its own position and span.
#pragma once

#include "base/attributes.h"
#include "base/span_mask.h"
#include "kernel/interface.h"
#include "kernel/isa/instruction_set.h"
#include "kernel/matmul.h"
#include "kernel/scores/positions.h"

namespace headspan::HEADSPAN_ISA {

template <class T>
struct LaneSpanMask {
  Vec<T> span, ramp;
  Distances<T> distances;
  int lane;
  SoftBounds<T> bounds;

  HEADSPAN_ALWAYS_INLINE LaneSpanMask(const Group<T>& group, int vector, const SoftBounds<T>* all,
                                      const Distances<T>& of_tile)
      : distances(of_tile), lane(vector * kWidth<T>) {
    span = load(group.span + vector * kWidth<T>);
    ramp = broadcast(group.ramp);
    if (all) bounds = all[vector];
  }
  // Whether the mask is below 1 for some pair with keys at lowest .. highest. Tested per key group: a branch for every
  // key would be mispredicted along the edge of a band.
  HEADSPAN_ALWAYS_INLINE bool touches(T lowest, T highest) const {
    return lowest <= bounds.before || highest >= bounds.from;
  }
  HEADSPAN_ALWAYS_INLINE Vec<T> distance(int r) const { return distances.at(lane, r); }
  HEADSPAN_ALWAYS_INLINE Vec<T> at(Vec<T> x, T inverse_ramp) const {
    return soft_mask(x, span, ramp, broadcast(inverse_ramp), broadcast(kEpsilon<T> / 2), broadcast(T(1)));
  }
};

// A row without keys has a maximum of -infinity, which must not be subtracted from itself.
template <class V>
HEADSPAN_INLINE V finite_maximum(V maximum) {
  return maximum == -__builtin_inff() ? V{} : maximum;
}

}  // namespace headspan::HEADSPAN_ISA
