// SPDX-License-Identifier: BSD-3-Clause
// Copies of the keys of one class, whose indices are equal modulo a stride. In an array, the rows of a class are far
// apart, share a few sets of the caches and evict each other, and hardware does not prefetch them. Several neighbouring
// classes are copied at a time, because their rows are adjacent in memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/array_view.h"
#include "base/tile.h"
#include "group_run.h"
#include "kernel/rows/row_source.h"
#include "patterns/lane_set.h"
#include "query_group.h"
#include "request.h"
#include "schedule/stage.h"
#include "schedule/visibility.h"

namespace headspan {

// Copying more classes at a time makes longer runs of memory, up to this limit.
constexpr std::ptrdiff_t kMostClasses = 8;

// The maximum number of keys in a class.
template <class T>
std::ptrdiff_t rows_of_class(const Request<T>& request, std::ptrdiff_t stride) {
  return (request.keys() + stride - 1) / stride;
}

// Whether the range of every query contains its own key, as for the documents of packed texts.
template <class T>
bool all_see_themselves(const Request<T>& request) {
  for (std::ptrdiff_t item = 0; item < request.batch() && request.range_first; item++) {
    Visibility const visibility = request.visibility(item);
    for (std::ptrdiff_t query = 0; query < request.queries(); query++) {
      std::ptrdiff_t const key = visibility.index(query);
      if (key >= 0 && (key < visibility.first_of(query) || key >= visibility.last_of(query))) return false;
    }
    if (request.range_first.stride[0] == 0) break;
  }
  return true;
}

// The number of classes of a stage that are copied at a time. 0 if copying does not help: if a class has one
// group or less, so that each row is read once, if not even one class fits into a cache, or if a class may contain a
// key that no query sees, which must not be read.
template <class T>
std::ptrdiff_t classes_at_a_time(const Request<T>& request, const PatternStage* stage) {
  constexpr std::ptrdiff_t cache = 1 << 20;
  if (request.cache || !stage || stage->along_tokens() || stage->order.global_groups > 0) return 0;
  if (!stage->self_pairs || !request.include_self || request.queries() < request.keys() || request.removed) return 0;
  if (request.span || request.query_positions) return 0;  // most keys may be out of reach
  if (request.queries() / stage->stride <= kLanes || !all_see_themselves(request)) return 0;
  std::ptrdiff_t const rows = rows_of_class(request, stage->stride),
                       row = (request.head_dim() + request.value_dim()) * static_cast<std::ptrdiff_t>(sizeof(T));
  return std::min(cache / (rows * row), kMostClasses);
}

// The first groups of the next `most` classes of a stage, and one more entry for the end. A group has whole classes or
// a part of one.
inline std::vector<std::ptrdiff_t> class_cuts(const PatternStage& stage, std::ptrdiff_t most) {
  std::vector<std::ptrdiff_t> cuts;
  for (std::ptrdiff_t group = 0, before = -1; group < stage.order.groups(); group++) {
    std::ptrdiff_t const together = stage.order.queries(group)[0] % stage.stride / most;
    if (together != before) cuts.push_back(group);
    before = together;
  }
  cuts.push_back(stage.order.groups());
  return cuts;
}

// Copies of the keys and values of a head, for some classes of a stage at a time.
template <class T>
class ClassRows {
 public:
  // If at_a_time is 0, nothing is copied, and groups read the rows in place. `memory` has room for `elements` numbers.
  ClassRows(const Request<T>& request, const PatternStage* stage, std::ptrdiff_t batch, std::ptrdiff_t key_head,
            std::ptrdiff_t at_a_time, T* memory)
      : request_(request),
        batch_(batch),
        key_head_(key_head),
        stride_(at_a_time ? stage->stride : 1),
        at_a_time_(at_a_time),
        rows_(rows_of_class(request, stride_)),
        key_(memory),
        value_(memory + at_a_time * rows_ * request.head_dim()) {}

  static std::size_t elements(const Request<T>& request, const PatternStage* stage, std::ptrdiff_t at_a_time) {
    std::ptrdiff_t const places = at_a_time ? at_a_time * rows_of_class(request, stage->stride) : 0;
    return static_cast<std::size_t>(places * (request.head_dim() + request.value_dim()));
  }

  // Lets a group of one class read from the copies. Copies the class, and some after it, unless they are there already.
  void redirect(QueryGroup<T>& queries) {
    if (at_a_time_ == 0) return;
    std::ptrdiff_t const class_of_group = queries.schedule.query(0) % stride_,
                         first = class_of_group / at_a_time_ * at_a_time_;
    if (first != first_) {
      first_ = first;
      gather();
    }
    std::ptrdiff_t const place = (class_of_group - first) * rows_;
    queries.group.key = array_rows(key_ + place * request_.head_dim(), request_.head_dim(), stride_);
    queries.group.value = array_rows(value_ + place * request_.value_dim(), request_.value_dim(), stride_);
  }

 private:
  // Copies keys and values together and prefetches the next row of the class for each, so that memory is always busy.
  void gather() const {
    std::ptrdiff_t const count = std::min(at_a_time_, stride_ - first_), before = request_.keys() - request_.queries(),
                         begin = request_.visibility(batch_).key_start,
                         end = std::min(request_.keys(), request_.visibility(batch_).key_stop);
    for (std::ptrdiff_t row = 0; row < rows_; row++)
      for (std::ptrdiff_t c = 0; c < count; c++) {
        std::ptrdiff_t const key = row * stride_ + floor_mod(first_ + c + before, stride_), place = c * rows_ + row;
        if (key < begin || key >= end) continue;
        copy(request_.key, key, key_ + place * request_.head_dim());
        copy(request_.value, key, value_ + place * request_.value_dim());
      }
  }
  void copy(const ArrayView<const T, 4>& from, std::ptrdiff_t key, T* to) const {
    constexpr std::ptrdiff_t line = 64 / sizeof(T);
    std::ptrdiff_t const dims = from.shape[3], next = std::min(key + stride_, request_.keys() - 1);
    for (std::ptrdiff_t d = 0; d < dims; d += line) __builtin_prefetch(from.at(batch_, key_head_, next) + d, 0, 2);
    std::copy_n(from.at(batch_, key_head_, key), dims, to);
  }

  const Request<T>& request_;
  std::ptrdiff_t const batch_, key_head_, stride_, at_a_time_, rows_;
  std::ptrdiff_t first_ = -1;  // class of queries; -1: none yet
  T *const key_, *const value_;
};

}  // namespace headspan
