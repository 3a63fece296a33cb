// SPDX-License-Identifier: BSD-3-Clause
// Terms of the scores that are a number for each pair. A term says which numbers the pairs of a tile have, and takes
// their gradient; the kernel adds them and knows nothing of where they come from.
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

// A group of queries as terms see it.
template <class T>
struct GroupPlace {
  std::ptrdiff_t batch, head;
  const std::ptrdiff_t* query;  // of each lane
  const Group<T>* group;        // where its lanes and keys stand
};

template <class T>
class ScoreTerm {
 public:
  virtual ~ScoreTerm() = default;

  // The numbers of the pairs of a tile, times log2(e): rows[r] has kLanes of them for key r, and there is `room` for
  // all where they lie nowhere yet.
  virtual void rows(const GroupPlace<T>& place, const Tile& tile, T* room, const T** rows) const = 0;

  // Whether a number may be -infinity, which leaves its pair out.
  virtual bool removes() const = 0;

  // How many numbers its gradient has for a batch item and a head, before it is summed over those who share them.
  virtual std::ptrdiff_t gradient_size() const = 0;
  // Whether groups of a head add to the same numbers.
  virtual bool groups_share() const = 0;
  // Adds ds[r * kLanes + lane] of a tile to the gradient of its batch item and head.
  virtual void add_gradient(const GroupPlace<T>& place, const Tile& tile, const T* ds, double* gradient) const = 0;
};

// What a term is made of: its arrays in the order in which Python gives them, numbers on four axes and integers on one.
template <class T>
struct TermArrays {
  std::vector<ArrayView<const T, 4>> numbers;
  std::vector<ArrayView<const std::int64_t, 1>> integers;
};

template <class T>
std::unique_ptr<ScoreTerm<T>> make_score_term(const std::string& name, const TermArrays<T>& arrays);

}  // namespace headspan
