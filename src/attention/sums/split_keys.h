// SPDX-License-Identifier: BSD-3-Clause
// A softmax over parts of the keys: rows that are computed per part, and their merging.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "base/buffer_pool.h"

namespace headspan {

// The result of a row over a part of its keys.
template <class T>
struct PartialSoftmax {
  T* out;
  T maximum;
  double sum;
};

// Merges the parts of a row into `out`: the sum of part.out * share, where share = part.sum / sum of the sums, all
// relative to one maximum.
template <class T>
PartialSoftmax<T> merge(const std::vector<PartialSoftmax<T>>& parts, std::ptrdiff_t dims, T* out) {
  PartialSoftmax<T> total{out, -std::numeric_limits<T>::infinity(), 0};
  for (const PartialSoftmax<T>& part : parts)
    if (part.maximum > total.maximum || std::isnan(part.maximum)) total.maximum = part.maximum;  // a NaN is kept
  auto const sum_of = [&](const PartialSoftmax<T>& part) {
    return part.sum == 0 ? 0 : part.sum * std::exp2(static_cast<double>(part.maximum - total.maximum));
  };
  for (const PartialSoftmax<T>& part : parts) total.sum += sum_of(part);
  std::fill_n(out, dims, T(0));
  for (const PartialSoftmax<T>& part : parts) {
    if (part.sum == 0) continue;
    T const share = static_cast<T>(sum_of(part) / total.sum);
    for (std::ptrdiff_t d = 0; d < dims; d++) out[d] += part.out[d] * share;
  }
  return total;
}

// Room for the first groups of every head, each over several parts of its keys. The number of parts depends on shapes
// only, so the sums are the same for every number of threads.
template <class T>
class SplitKeys {
 public:
  struct Part {
    std::ptrdiff_t head, group, split;
  };

  // `groups` per head of the batch items that differ, repeated for `rounds`; a group has `lanes` lanes.
  SplitKeys(std::ptrdiff_t rounds, std::vector<std::ptrdiff_t> groups, std::ptrdiff_t splits, std::ptrdiff_t lanes,
            std::ptrdiff_t dims)
      : of_head_(std::move(groups)), splits_(splits), lanes_(lanes), first_{0} {
    for (std::ptrdiff_t round = 0; round < rounds; round++)
      for (std::ptrdiff_t const of_head : of_head_) first_.push_back(first_.back() + of_head);
    std::size_t const rows = static_cast<std::size_t>(count() * lanes), row = static_cast<std::size_t>(dims);
    outs_ = Buffer<T>(checked_product(rows, row));
    rows_.resize(rows);
    for (std::size_t i = 0; i < rows; i++) rows_[i].out = outs_.data() + i * row;
  }

  std::ptrdiff_t count() const { return first_.back() * splits_; }  // of parts
  std::ptrdiff_t splits() const { return splits_; }                 // per group
  // The number of split groups of a head, and the maximum over heads.
  std::ptrdiff_t groups(std::ptrdiff_t head) const {
    return of_head_[static_cast<std::size_t>(head) % of_head_.size()];
  }
  std::ptrdiff_t groups() const { return of_head_.empty() ? 0 : *std::max_element(of_head_.begin(), of_head_.end()); }

  // The parts of a group are adjacent.
  Part at(std::ptrdiff_t number) const {
    std::ptrdiff_t const group = number / splits_;
    std::ptrdiff_t const head = std::upper_bound(first_.begin(), first_.end(), group) - first_.begin() - 1;
    return {head, group - first_[static_cast<std::size_t>(head)], number % splits_};
  }
  // The lanes' rows of a part.
  PartialSoftmax<T>* rows(const Part& part) {
    std::ptrdiff_t const group = first_[static_cast<std::size_t>(part.head)] + part.group;
    return &rows_[static_cast<std::size_t>((group * splits_ + part.split) * lanes_)];
  }

 private:
  std::vector<std::ptrdiff_t> of_head_;
  std::ptrdiff_t splits_, lanes_;
  std::vector<std::ptrdiff_t> first_;  // first group of every head of every batch item, and the total
  Buffer<T> outs_;
  std::vector<PartialSoftmax<T>> rows_;  // (groups, splits, lanes)
};

}  // namespace headspan
