// SPDX-License-Identifier: BSD-3-Clause
// Keys of the same class, those equal modulo a stride, brought together. Where they lie, far apart, they share a few
// sets of the caches and push each other out, and no hardware foresees them. Several neighbouring classes are copied at
// a time, as their rows are neighbours in memory.
#pragma once

#include <algorithm>

#include "query_group.h"

namespace headspan {

// More classes at a time make longer runs of memory, up to here.
constexpr std::ptrdiff_t kMostClasses = 8;

// The most keys of a class.
template <class T>
std::ptrdiff_t rows_of_class(const Problem<T>& problem, std::ptrdiff_t stride) {
  return (problem.keys() + stride - 1) / stride;
}

// How many classes of a pass are to be brought together at a time, for so many heads; 0 where that would not serve:
// where a group holds several classes, where not one class fits into a cache, or where some key of a class may be one
// that nobody sees, which must not be read.
template <class T>
std::ptrdiff_t classes_at_a_time(const Problem<T>& problem, const Pass* pass, std::ptrdiff_t heads) {
  constexpr std::ptrdiff_t cache = 1 << 20;
  if (!pass || pass->plain() || pass->order.apart > 0) return 0;
  if (!pass->self_pairs || !problem.include_self || problem.queries() < problem.keys() || problem.removed) return 0;
  if (problem.span || problem.query_positions) return 0;  // most keys may be out of reach
  if (problem.queries() / pass->stride <= kLanes / 2) return 0;
  std::ptrdiff_t const rows = rows_of_class(problem, pass->stride),
                       row = (problem.head_dim() + problem.value_dim()) * static_cast<std::ptrdiff_t>(sizeof(T));
  return std::min(cache / (heads * rows * row), kMostClasses);
}

// Copies of a head's keys and values, for some classes of a pass at a time.
template <class T>
class ClassRows {
 public:
  // at_a_time 0: none, and groups read where the rows lie. `memory` holds as many numbers as `elements` says.
  ClassRows(const Problem<T>& problem, const Pass* pass, std::ptrdiff_t batch, std::ptrdiff_t key_head,
            std::ptrdiff_t at_a_time, T* memory)
      : problem_(problem),
        batch_(batch),
        key_head_(key_head),
        stride_(at_a_time ? pass->stride : 1),
        at_a_time_(at_a_time),
        rows_(rows_of_class(problem, stride_)),
        key_(memory),
        value_(memory + at_a_time * rows_ * problem.head_dim()) {}

  static std::size_t elements(const Problem<T>& problem, const Pass* pass, std::ptrdiff_t at_a_time) {
    std::ptrdiff_t const places = at_a_time ? at_a_time * rows_of_class(problem, pass->stride) : 0;
    return static_cast<std::size_t>(places * (problem.head_dim() + problem.value_dim()));
  }

  // Lets a group, all of one class, read from here. Brings its class here, and those that will be needed next.
  void redirect(QueryGroup<T>& queries) {
    if (at_a_time_ == 0) return;
    std::ptrdiff_t const its_class = queries.query[0] % stride_, first = its_class / at_a_time_ * at_a_time_;
    if (first != first_) {
      first_ = first;
      gather();
    }
    std::ptrdiff_t const place = (its_class - first) * rows_;
    queries.group.key = {key_ + place * problem_.head_dim(), problem_.head_dim(), stride_};
    queries.group.value = {value_ + place * problem_.value_dim(), problem_.value_dim(), stride_};
  }

 private:
  // Keys and values beside each other, each row with the one that comes next of its class on the way: so memory always
  // has something to do.
  void gather() const {
    std::ptrdiff_t const count = std::min(at_a_time_, stride_ - first_), before = problem_.keys() - problem_.queries(),
                         keys = std::min(problem_.keys(), problem_.band(batch_).key_end);
    for (std::ptrdiff_t row = 0; row < rows_; row++)
      for (std::ptrdiff_t c = 0; c < count; c++) {
        std::ptrdiff_t const key = row * stride_ + floor_mod(first_ + c + before, stride_), place = c * rows_ + row;
        if (key >= keys) continue;
        copy(problem_.key, key, key_ + place * problem_.head_dim());
        copy(problem_.value, key, value_ + place * problem_.value_dim());
      }
  }
  void copy(const ArrayView<const T, 4>& from, std::ptrdiff_t key, T* to) const {
    constexpr std::ptrdiff_t line = 64 / sizeof(T);
    std::ptrdiff_t const dims = from.shape[3], next = std::min(key + stride_, problem_.keys() - 1);
    for (std::ptrdiff_t d = 0; d < dims; d += line) __builtin_prefetch(from.at(batch_, key_head_, next) + d, 0, 2);
    std::copy_n(from.at(batch_, key_head_, key), dims, to);
  }

  const Problem<T>& problem_;
  std::ptrdiff_t const batch_, key_head_, stride_, at_a_time_, rows_;
  std::ptrdiff_t first_ = -1;  // class of queries; none yet
  T *const key_, *const value_;
};

}  // namespace headspan
