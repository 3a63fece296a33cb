// SPDX-License-Identifier: BSD-3-Clause
// A softmax over parts of the keys: rows that were computed part by part, and how they are merged.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/buffer_pool.h"

namespace headspan {

// A row over some of its keys.
template <class T>
struct PartialSoftmax {
  T* out;
  T maximum;
  double sum;
};

// A row over all keys from its parts, written to `out`: the sum of part.out * share, share = part.sum / sum of the
// sums, under one maximum.
template <class T>
PartialSoftmax<T> merge(const std::vector<PartialSoftmax<T>>& parts, std::ptrdiff_t dims, T* out) {
  PartialSoftmax<T> whole{out, -std::numeric_limits<T>::infinity(), 0};
  for (const PartialSoftmax<T>& part : parts)
    if (part.maximum > whole.maximum || std::isnan(part.maximum)) whole.maximum = part.maximum;  // a NaN stays
  auto const sum_of = [&](const PartialSoftmax<T>& part) {
    return part.sum == 0 ? 0 : part.sum * std::exp2(static_cast<double>(part.maximum - whole.maximum));
  };
  for (const PartialSoftmax<T>& part : parts) whole.sum += sum_of(part);
  std::fill_n(out, dims, T(0));
  for (const PartialSoftmax<T>& part : parts) {
    if (part.sum == 0) continue;
    T const share = static_cast<T>(sum_of(part) / whole.sum);
    for (std::ptrdiff_t d = 0; d < dims; d++) out[d] += part.out[d] * share;
  }
  return whole;
}

// Room for the first groups of every head, at most so many, each over several parts of its keys. How many depends on
// shapes only, so that the sums come out the same for every number of threads.
template <class T>
class SplitKeys {
 public:
  SplitKeys() = default;
  SplitKeys(std::ptrdiff_t heads, std::ptrdiff_t groups, std::ptrdiff_t splits, std::ptrdiff_t lanes,
            std::ptrdiff_t dims)
      : groups_(groups), splits_(splits), lanes_(lanes) {
    std::size_t const rows = static_cast<std::size_t>(heads * groups * splits * lanes),
                      row = static_cast<std::size_t>(dims);
    outs_ = Buffer<T>(checked_product(rows, row));
    rows_.resize(rows);
    for (std::size_t i = 0; i < rows; i++) rows_[i].out = outs_.data() + i * row;
  }

  std::ptrdiff_t groups() const { return groups_; }  // of each head
  std::ptrdiff_t splits() const { return splits_; }
  // The lanes' rows of a part.
  PartialSoftmax<T>* rows(std::ptrdiff_t head, std::ptrdiff_t group, std::ptrdiff_t split) {
    return &rows_[static_cast<std::size_t>(((head * groups_ + group) * splits_ + split) * lanes_)];
  }

 private:
  std::ptrdiff_t groups_ = 0, splits_ = 0, lanes_ = 0;
  Buffer<T> outs_;
  std::vector<PartialSoftmax<T>> rows_;  // (heads, groups, splits, lanes)
};

}  // namespace headspan
