// SPDX-License-Identifier: BSD-3-Clause
// Positions of queries and keys, and their distances. Distances are correct to one rounding of T wherever possible:
// positions are subtracted in T if T represents them exactly, as for consecutive tokens, and otherwise in double.
#pragma once

#include <stddef.h>

#include "base/attributes.h"
#include "base/tile.h"
#include "kernel/interface.h"
#include "kernel/isa/instruction_set.h"
#include "kernel/vectors/vector_math.h"

namespace headspan::HEADSPAN_ISA {

template <class T>
constexpr int kVectors = kLanes / kWidth<T>;  // vectors of a row of lanes

template <class T>
constexpr T kInfinity = T(__builtin_inf());
template <class T>
constexpr T kEpsilon = sizeof(T) == 4 ? T(__FLT_EPSILON__) : T(__DBL_EPSILON__);

// Where the mask is below 1 for some lane of a vector: keys up to `before` and from `from` on.
template <class T>
struct SoftBounds {
  T before, from;
};

template <class T>
struct LanePositions {
  double origin[kAxes];
  bool exact;              // whether T represents them exactly
  T query[kAxes][kLanes];  // minus origin
  SoftBounds<T> bounds[kVectors<T>];
  T distance[kTileKeys * kLanes];  // of each key of a tile to each lane, if positions in T are not exact
};

// position - origin; sets `exact` to false if that is rounded.
template <class T>
HEADSPAN_INLINE T relative(double position, double origin, bool& exact) {
  T const difference = T(position - origin);
  exact &= (double)difference + origin == position;
  return difference;
}

template <class T>
HEADSPAN_NOINLINE void place_lanes(const Group<T>& group, LanePositions<T>& lanes) {
  lanes.exact = true;
  for (int axis = 0; axis < group.axes; axis++) {
    const double* const position = group.query_position[axis];
    double const origin = lanes.origin[axis] = sizeof(T) == sizeof(double) ? 0 : position[0];
    for (int i = 0; i < kLanes; i++) lanes.query[axis][i] = relative<T>(position[i], origin, lanes.exact);
  }
  // The bounds are slightly too wide: the mask of a pair that is treated as on the ramp is computed exactly.
  auto const up = [](T x) { return x > 0 ? x * (1 + kEpsilon<T>) : x * (1 - kEpsilon<T>); };
  for (int j = 0; j < kVectors<T>; j++) {
    T before = -kInfinity<T>, from = kInfinity<T>;
    for (int i = j * kWidth<T>; i < (j + 1) * kWidth<T>; i++) {
      T const low = up(lanes.query[0][i] - group.span[i]), high = -up(-(lanes.query[0][i] + group.span[i]));
      before = low > before ? low : before;
      from = high < from ? high : from;
    }
    lanes.bounds[j] = {before, from};
  }
}

// The distances of a tile, in double.
template <class T>
HEADSPAN_NOINLINE void wide_distances(const Group<T>& group, const Tile& tile, int padded, T* distance) {
  for (int r = 0; r < padded; r++) {
    ptrdiff_t const key = key_index(tile, r < tile.count ? r : tile.count - 1);
    double furthest[kLanes] = {};
    for (int axis = 0; axis < group.axes; axis++) {
      double const position = key_position(group, axis, key);
      for (int i = 0; i < kLanes; i++) {
        double const x = __builtin_fabs(group.query_position[axis][i] - position);
        furthest[i] = x > furthest[i] ? x : furthest[i];
      }
    }
    for (int i = 0; i < kLanes; i++) distance[r * kLanes + i] = T(furthest[i]);
  }
}

// Distances of vectors of lanes to keys. The axes are kLanes apart in the positions of queries and kTileKeys in those
// of keys.
template <class T>
struct Distances {
  const T *query, *key;
  int axes;
  const T* wide;  // the distances themselves, [key][lane]; null: from the positions
  HEADSPAN_ALWAYS_INLINE Vec<T> at(int lane, int r) const {
    if (wide) return load(wide + r * kLanes + lane);
    Vec<T> x = absolute<T>(load(query + lane) - key[r]);
    for (int axis = 1; axis < axes; axis++)
      x = maximum(x, absolute<T>(load(query + axis * kLanes + lane) - key[axis * kTileKeys + r]));
    return x;
  }
};

}  // namespace headspan::HEADSPAN_ISA
