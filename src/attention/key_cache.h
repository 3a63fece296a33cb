// SPDX-License-Identifier: BSD-3-Clause
// Keys and values of a text that grows. Every key head keeps only the rows that queries can still see, in memory of the
// caller.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "base/array_view.h"
#include "base/row_places.h"
#include "base/stored_rows.h"

namespace headspan {

// Rows as bytes: strides and the last axis count bytes.
using Bytes = unsigned char;

class KeyCache {
 public:
  // The rows of all batch items, item by item: `capacity` rows of the ring, then one for each kept row. If all rows are
  // kept: the pages of each item, where `capacity` is the number of pages per item.
  struct OfHead {
    Bytes *key, *value;
    std::ptrdiff_t capacity;
    std::ptrdiff_t first;  // the oldest row of the ring
    std::vector<void*> key_pages, value_pages;

    bool paged() const { return !key_pages.empty(); }
  };
  struct RowBytes {
    std::ptrdiff_t key, value;
  };

  KeyCache(std::vector<OfHead> heads, std::vector<std::int64_t> kept, std::ptrdiff_t count, Storage storage,
           RowBytes row_bytes)
      : heads_(std::move(heads)), kept_(std::move(kept)), count_(count), storage_(storage), row_bytes_(row_bytes) {}

  std::ptrdiff_t count() const { return count_; }
  std::ptrdiff_t key_heads() const { return static_cast<std::ptrdiff_t>(heads_.size()); }
  std::ptrdiff_t first(std::ptrdiff_t head) const { return of(head).first; }
  // The constructor for rings.
  std::ptrdiff_t longest() const {
    std::ptrdiff_t most = 0;
    for (OfHead const& head : heads_) most = std::max(most, head.capacity);
    return most;
  }
  Storage storage() const { return storage_; }
  RowBytes row_bytes() const { return row_bytes_; }

  RowPlaces places(std::ptrdiff_t head) const {
    return {of(head).first, count_, of(head).capacity, kept_.data(),
            of(head).paged() ? 0 : static_cast<std::ptrdiff_t>(kept_.size())};
  }
  // null for a ring
  void* const* key_pages(std::ptrdiff_t batch, std::ptrdiff_t head) const {
    return of(head).paged() ? of(head).key_pages.data() + batch * (of(head).capacity / kPageRows) : nullptr;
  }
  void* const* value_pages(std::ptrdiff_t batch, std::ptrdiff_t head) const {
    return of(head).paged() ? of(head).value_pages.data() + batch * (of(head).capacity / kPageRows) : nullptr;
  }
  // The maximum number of rows.
  std::ptrdiff_t room() const {
    std::ptrdiff_t least = std::numeric_limits<std::ptrdiff_t>::max();
    for (OfHead const& head : heads_)
      if (head.paged()) least = std::min(least, head.capacity);
    return least;
  }
  Bytes* keys(std::ptrdiff_t batch, std::ptrdiff_t head) const {
    return of(head).paged() ? nullptr : of(head).key + batch * rows(head) * row_bytes_.key;
  }
  Bytes* values(std::ptrdiff_t batch, std::ptrdiff_t head) const {
    return of(head).paged() ? nullptr : of(head).value + batch * rows(head) * row_bytes_.value;
  }

  // Appends rows of key and value, (batch, key heads, new rows, bytes), in the storage type.
  void append(const ArrayView<const Bytes, 4>& key, const ArrayView<const Bytes, 4>& value) {
    std::ptrdiff_t const more = key.shape[2];
    for (std::ptrdiff_t head = 0; head < key_heads(); head++) {
      for (std::ptrdiff_t batch = 0; batch < key.shape[0]; batch++) {
        copy_rows(key, batch, head, {keys(batch, head), key_pages(batch, head), row_bytes_.key});
        copy_rows(value, batch, head, {values(batch, head), value_pages(batch, head), row_bytes_.value});
      }
      OfHead& its = heads_[static_cast<std::size_t>(head)];
      its.first = std::max(its.first, count_ + more - its.capacity);
    }
    count_ += more;
  }

  // Removes the last rows. Rows that the ring has overwritten do not come back.
  void truncate(std::ptrdiff_t count) { count_ = std::min(count_, count); }

 private:
  OfHead const& of(std::ptrdiff_t head) const { return heads_[static_cast<std::size_t>(head)]; }
  std::ptrdiff_t rows(std::ptrdiff_t head) const {
    return of(head).capacity + static_cast<std::ptrdiff_t>(kept_.size());
  }
  struct Place {
    Bytes* ring;
    void* const* pages;
    std::ptrdiff_t bytes;  // per row
  };
  void copy_rows(const ArrayView<const Bytes, 4>& from, std::ptrdiff_t batch, std::ptrdiff_t head, Place to) const {
    std::ptrdiff_t const more = from.shape[2], capacity = of(head).capacity;
    auto const copy = [&](std::ptrdiff_t row, Bytes* place) {
      std::copy_n(from.at(batch, head, row), to.bytes, place);
    };
    if (to.pages) {
      for (std::ptrdiff_t row = 0; row < more; row++)
        copy(row, static_cast<Bytes*>(to.pages[(count_ + row) / kPageRows]) + (count_ + row) % kPageRows * to.bytes);
      return;
    }
    for (std::ptrdiff_t row = std::max<std::ptrdiff_t>(0, more - capacity); row < more; row++)
      copy(row, to.ring + (count_ + row) % capacity * to.bytes);
    auto const is_before = [](std::int64_t token, std::ptrdiff_t row) { return token < row; };
    for (auto token = std::lower_bound(kept_.begin(), kept_.end(), count_, is_before);
         token != kept_.end() && *token < count_ + more; token++)
      copy(*token - count_, to.ring + (capacity + (token - kept_.begin())) * to.bytes);
  }

  std::vector<OfHead> heads_;
  std::vector<std::int64_t> kept_;
  std::ptrdiff_t count_;
  Storage const storage_;
  RowBytes const row_bytes_;
};

}  // namespace headspan
