// SPDX-License-Identifier: BSD-3-Clause
// Keys of the same class, those equal modulo a stride, brought together. Where they lie, far apart, they share a few
// sets of the caches and push each other out, and no hardware foresees them. Several neighbouring classes are copied at
// a time, as their rows are neighbours in memory.
#pragma once

#include <algorithm>

#include "group.h"

namespace headspan {

// More classes at a time make longer runs of memory, up to here.
constexpr std::ptrdiff_t kMostClasses = 8;

// How many classes of a pass are to be brought together at a time, each with so many copies of its rows of keys and
// values; 0 where that would not serve: where a group holds several classes, where not one class fits into a cache, or
// where something else than the pattern decides which keys are read at all.
template <class T>
std::ptrdiff_t classes_at_a_time(const Problem<T>& problem, const Pass* pass, std::ptrdiff_t copies) {
  constexpr std::ptrdiff_t cache = 1 << 20;
  if (!pass || pass->plain() || pass->order.apart > 0) return 0;
  if (problem.span || problem.removed || problem.query_positions) return 0;
  if (problem.queries() / pass->stride <= kLanes / 2) return 0;
  std::ptrdiff_t const rows = (problem.keys() + pass->stride - 1) / pass->stride,
                       row = (problem.head_dim() + problem.value_dim()) * static_cast<std::ptrdiff_t>(sizeof(T));
  return std::min(cache / (copies * rows * row), kMostClasses);
}

// Copies of a head's keys and values, and of their gradients where these are wanted, for some classes at a time.
template <class T>
class ClassRows {
 public:
  // memory holds as many numbers as `elements` says. Gradients are those found so far, or zero if there are none yet.
  ClassRows(const Problem<T>& problem, const Pass& pass, std::ptrdiff_t batch, std::ptrdiff_t key_head,
            std::ptrdiff_t at_a_time, T* memory, const GradientViews<T>* gradients = nullptr, bool adds = false)
      : problem_(problem),
        gradients_(gradients),
        batch_(batch),
        key_head_(key_head),
        stride_(pass.stride),
        at_a_time_(at_a_time),
        rows_((problem.keys() + stride_ - 1) / stride_),
        adds_(adds) {
    std::ptrdiff_t const places = at_a_time * rows_;
    key_ = memory;
    value_ = key_ + places * problem.head_dim();
    grad_key_ = value_ + places * problem.value_dim();
    grad_value_ = grad_key_ + places * problem.head_dim();
  }
  static std::size_t elements(const Problem<T>& problem, const Pass& pass, std::ptrdiff_t at_a_time,
                              std::ptrdiff_t copies) {
    std::ptrdiff_t const rows = (problem.keys() + pass.stride - 1) / pass.stride;
    return static_cast<std::size_t>(copies * at_a_time * rows * (problem.head_dim() + problem.value_dim()));
  }

  // Lets a group, all of one class, read from here.
  void redirect(QueryGroup<T>& queries) {
    std::ptrdiff_t const place = bring(queries.query[0] % stride_) * rows_;
    queries.group.key = {key_ + place * problem_.head_dim(), problem_.head_dim(), stride_};
    queries.group.value = {value_ + place * problem_.value_dim(), problem_.value_dim(), stride_};
  }
  // And add its gradients here.
  void redirect(QueryGroup<T>& queries, KeyGradients<T>& gradients) {
    redirect(queries);
    std::ptrdiff_t const place = (queries.query[0] % stride_ - first_) * rows_;
    gradients.key = {grad_key_ + place * problem_.head_dim(), problem_.head_dim(), stride_};
    gradients.value = {grad_value_ + place * problem_.value_dim(), problem_.value_dim(), stride_};
  }

  // The gradients go where they belong. To be called when all groups are done.
  void put_back() {
    if (first_ == kNone || !gradients_) return;
    scatter(grad_key_, gradients_->key);
    scatter(grad_value_, gradients_->value);
  }

 private:
  static constexpr std::ptrdiff_t kNone = -1;

  // Brings a class of queries, and what will be needed next, here; returns its number among those that are here.
  std::ptrdiff_t bring(std::ptrdiff_t its_class) {
    std::ptrdiff_t const first = its_class / at_a_time_ * at_a_time_;
    if (first != first_) {
      put_back();
      first_ = first;
      gather(problem_.key, key_);
      gather(problem_.value, value_);
      if (gradients_ && adds_) {
        gather(gradients_->key, grad_key_);
        gather(gradients_->value, grad_value_);
      } else if (gradients_) {
        std::fill(grad_key_, grad_value_ + at_a_time_ * rows_ * problem_.value_dim(), T(0));
      }
    }
    return its_class - first_;
  }

  // Calls visit(key, place) for the keys of the classes that are here.
  template <class Visit>
  void for_each_key(Visit visit) const {
    std::ptrdiff_t const count = std::min(at_a_time_, stride_ - first_), before = problem_.keys() - problem_.queries();
    for (std::ptrdiff_t row = 0; row < rows_; row++)
      for (std::ptrdiff_t c = 0; c < count; c++) {
        std::ptrdiff_t const key = row * stride_ + floor_mod(first_ + c + before, stride_);
        if (key < problem_.keys()) visit(key, c * rows_ + row);
      }
  }
  template <class Number>
  void gather(const ArrayView<Number, 4>& from, T* to) const {
    std::ptrdiff_t const dims = from.shape[3];
    for_each_key([&](std::ptrdiff_t key, std::ptrdiff_t place) {
      std::copy_n(from.at(batch_, key_head_, key), dims, to + place * dims);
    });
  }
  void scatter(const T* from, const ArrayView<T, 4>& to) const {
    std::ptrdiff_t const dims = to.shape[3];
    for_each_key([&](std::ptrdiff_t key, std::ptrdiff_t place) {
      std::copy_n(from + place * dims, dims, to.at(batch_, key_head_, key));
    });
  }

  const Problem<T>& problem_;
  const GradientViews<T>* const gradients_;
  std::ptrdiff_t const batch_, key_head_, stride_, at_a_time_, rows_;
  bool const adds_;
  std::ptrdiff_t first_ = kNone;  // class of queries
  T *key_, *value_, *grad_key_, *grad_value_;
};

}  // namespace headspan
