// SPDX-License-Identifier: BSD-3-Clause
// Keys and values of a text that is continued: for every key head only as many rows as somebody can still see, in
// memory that the caller owns.
#pragma once

#include <algorithm>
#include <vector>

#include "base/array_view.h"
#include "base/row_places.h"

namespace headspan {

template <class T>
class KeyCache {
 public:
  // The rows of all batch items, item by item: `capacity` of the ring, then one for each of the kept ones.
  struct OfHead {
    T *key, *value;
    std::ptrdiff_t capacity;
    std::ptrdiff_t first;  // the oldest row of the ring
  };

  KeyCache(std::vector<OfHead> heads, std::vector<std::int64_t> kept, std::ptrdiff_t count, std::ptrdiff_t key_dim,
           std::ptrdiff_t value_dim)
      : heads_(std::move(heads)), kept_(std::move(kept)), count_(count), key_dim_(key_dim), value_dim_(value_dim) {}

  std::ptrdiff_t count() const { return count_; }
  std::ptrdiff_t key_heads() const { return static_cast<std::ptrdiff_t>(heads_.size()); }
  std::ptrdiff_t first(std::ptrdiff_t head) const { return of(head).first; }

  RowPlaces places(std::ptrdiff_t head) const {
    return {of(head).first, count_, of(head).capacity, kept_.data(), static_cast<std::ptrdiff_t>(kept_.size())};
  }
  T* keys(std::ptrdiff_t batch, std::ptrdiff_t head) const { return of(head).key + batch * rows(head) * key_dim_; }
  T* values(std::ptrdiff_t batch, std::ptrdiff_t head) const {
    return of(head).value + batch * rows(head) * value_dim_;
  }

  // Rows behind the last one: key and value (batch, key heads, more rows, dims).
  void append(const ArrayView<const T, 4>& key, const ArrayView<const T, 4>& value) {
    std::ptrdiff_t const more = key.shape[2];
    for (std::ptrdiff_t head = 0; head < key_heads(); head++) {
      for (std::ptrdiff_t batch = 0; batch < key.shape[0]; batch++) {
        copy_rows(key, batch, head, keys(batch, head), key_dim_);
        copy_rows(value, batch, head, values(batch, head), value_dim_);
      }
      OfHead& its = heads_[static_cast<std::size_t>(head)];
      its.first = std::max(its.first, count_ + more - its.capacity);
    }
    count_ += more;
  }

  // Forgets the last rows. What the ring has lost for them does not come back.
  void truncate(std::ptrdiff_t count) { count_ = std::min(count_, count); }

 private:
  OfHead const& of(std::ptrdiff_t head) const { return heads_[static_cast<std::size_t>(head)]; }
  std::ptrdiff_t rows(std::ptrdiff_t head) const {
    return of(head).capacity + static_cast<std::ptrdiff_t>(kept_.size());
  }
  void copy_rows(const ArrayView<const T, 4>& from, std::ptrdiff_t batch, std::ptrdiff_t head, T* to,
                 std::ptrdiff_t dims) const {
    std::ptrdiff_t const more = from.shape[2], capacity = of(head).capacity;
    auto const copy = [&](std::ptrdiff_t row, std::ptrdiff_t place) {
      std::copy_n(from.at(batch, head, row), dims, to + place * dims);
    };
    for (std::ptrdiff_t row = std::max<std::ptrdiff_t>(0, more - capacity); row < more; row++)
      copy(row, (count_ + row) % capacity);
    auto const is_before = [](std::int64_t token, std::ptrdiff_t row) { return token < row; };
    for (auto token = std::lower_bound(kept_.begin(), kept_.end(), count_, is_before);
         token != kept_.end() && *token < count_ + more; token++)
      copy(*token - count_, capacity + (token - kept_.begin()));
  }

  std::vector<OfHead> heads_;
  std::vector<std::int64_t> kept_;
  std::ptrdiff_t count_;
  std::ptrdiff_t const key_dim_, value_dim_;
};

}  // namespace headspan
