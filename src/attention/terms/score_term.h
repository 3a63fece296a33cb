// SPDX-License-Identifier: BSD-3-Clause
// Score terms that are a number for each pair. A term provides the numbers for the pairs of a tile and receives their
// gradient. The kernel adds the numbers and does not know where they come from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/array_view.h"
#include "base/tile.h"
#include "kernel/interface.h"

namespace headspan {

// A group of queries, as the terms need it.
template <class T>
struct GroupPlace {
  std::ptrdiff_t batch, head;
  const std::ptrdiff_t* query;  // of each lane
  const Group<T>* group;        // positions of lanes and keys
};

template <class T>
class ScoreTerm {
 public:
  virtual ~ScoreTerm() = default;

  // Provides the numbers of the pairs of a tile, times log2(e): rows[r] points to kLanes numbers for key r. `room` has
  // space for all of them if they are not in memory yet.
  virtual void rows(const GroupPlace<T>& place, const Tile& tile, T* room, const T** rows) const = 0;

  // Whether a number may be -infinity, which excludes its pair.
  virtual bool removes() const = 0;

  // The size of the gradient for a batch item and a head, before the sum over those that share it.
  virtual std::ptrdiff_t gradient_size() const = 0;
  // Whether groups of a head add to the same elements.
  virtual bool groups_share() const = 0;
  // Adds ds[r * kLanes + lane] of a tile to the gradient of its batch item and head.
  virtual void add_gradient(const GroupPlace<T>& place, const Tile& tile, const T* ds, double* gradient) const = 0;
};

// The inputs of a term: its arrays in the order of Python, numbers on four axes and integers on one.
template <class T>
struct TermArrays {
  std::vector<ArrayView<const T, 4>> numbers;
  std::vector<ArrayView<const std::int64_t, 1>> integers;
};

template <class T>
std::unique_ptr<ScoreTerm<T>> make_score_term(const std::string& name, const TermArrays<T>& arrays);

}  // namespace headspan
