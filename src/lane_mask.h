// SPDX-License-Identifier: BSD-3-Clause
// The soft mask of one vector of lanes, each with its own position and span.
#pragma once

#include "micro_kernels.h"
#include "soft_mask.h"

namespace headspan::HEADSPAN_ISA {

template <class T>
constexpr T kInfinity = T(__builtin_inf());
template <class T>
constexpr T kEpsilon = sizeof(T) == 4 ? T(__FLT_EPSILON__) : T(__DBL_EPSILON__);

// Where the mask of some lane of a vector falls: keys up to `before` and from `from` on.
template <class T>
struct SoftBounds {
  T before, from;
};
template <class T>
HEADSPAN_NOINLINE void soft_bounds(const Group<T>& group, SoftBounds<T>* bounds) {
  for (int j = 0; j < kVectors<T>; j++) {
    T before = -kInfinity<T>, from = kInfinity<T>;
    for (int i = j * kWidth<T>; i < (j + 1) * kWidth<T>; i++) {
      T const low = group.position[0][i] - group.span[i], high = group.position[0][i] + group.span[i];
      before = low > before ? low : before;
      from = high < from ? high : from;
    }
    bounds[j] = {before, from};
  }
}

template <class T>
struct LaneMask {
  Vec<T> span, ramp;
  Distances<T> distances;
  SoftBounds<T> bounds;

  // `key_positions` are a tile's, [kAxes][kPaddedKeys].
  HEADSPAN_ALWAYS_INLINE LaneMask(const Group<T>& group, int vector, const SoftBounds<T>* all, const T* key_positions)
      : distances{group.position[0] + vector * kWidth<T>, key_positions, group.axes} {
    span = load(group.span + vector * kWidth<T>);
    ramp = broadcast(group.ramp);
    if (all) bounds = all[vector];
  }
  // Whether the mask falls for some pair with keys at lowest .. highest. Asked for a key group at once: a branch for
  // every key would be mispredicted all along the edge of a band.
  HEADSPAN_ALWAYS_INLINE bool touches(T lowest, T highest) const {
    return lowest <= bounds.before || highest >= bounds.from;
  }
  HEADSPAN_ALWAYS_INLINE Vec<T> distance(int r) const { return distances.at(0, r); }
  HEADSPAN_ALWAYS_INLINE Vec<T> at(Vec<T> x, T inverse_ramp) const {
    return soft_mask(x, span, ramp, broadcast(inverse_ramp), broadcast(kEpsilon<T> / 2), broadcast(T(1)));
  }
};

// A row that has met no key has a maximum of -infinity, which must not be subtracted from itself.
template <class V>
HEADSPAN_INLINE V finite_maximum(V maximum) {
  return maximum == -__builtin_inff() ? V{} : maximum;
}

}  // namespace headspan::HEADSPAN_ISA
