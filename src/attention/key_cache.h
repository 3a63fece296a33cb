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
#include "kernel/rows/row_source.h"

namespace headspan {

class KeyCache {
 public:
  // The keys or the values of a head, of all batch items, item by item: `capacity` rows of the ring, then one for each
  // kept row; or the pages.
  struct Memory {
    Byte* ring;
    std::vector<void*> pages;
  };
  struct OfHead {
    Memory key, value;
    std::ptrdiff_t capacity;  // per item: of the ring, or of all pages
    std::ptrdiff_t first;     // the oldest row of the ring

    bool paged() const { return !key.pages.empty(); }
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
  // The largest capacity of a head.
  std::ptrdiff_t longest() const {
    std::ptrdiff_t most = 0;
    for (OfHead const& head : heads_) most = std::max(most, head.capacity);
    return most;
  }
  // The maximum number of rows, which pages limit and rings do not.
  std::ptrdiff_t room() const {
    std::ptrdiff_t least = std::numeric_limits<std::ptrdiff_t>::max();
    for (OfHead const& head : heads_)
      if (head.paged()) least = std::min(least, head.capacity);
    return least;
  }
  Storage storage() const { return storage_; }
  RowBytes row_bytes() const { return row_bytes_; }

  // The rows of a head of a batch item, and after them those of `following`, (batch, key heads, rows, bytes), which are
  // not in the cache yet.
  RowSource keys(std::ptrdiff_t batch, std::ptrdiff_t head, const ArrayView<const Byte, 4>& following) const {
    return source(of(head), of(head).key, row_bytes_.key, batch, head, following);
  }
  RowSource values(std::ptrdiff_t batch, std::ptrdiff_t head, const ArrayView<const Byte, 4>& following) const {
    return source(of(head), of(head).value, row_bytes_.value, batch, head, following);
  }

  // Appends rows of key and value, (batch, key heads, new rows, bytes), in the storage type.
  void append(const ArrayView<const Byte, 4>& key, const ArrayView<const Byte, 4>& value) {
    std::ptrdiff_t const more = key.shape[2];
    for (std::ptrdiff_t head = 0; head < key_heads(); head++) {
      OfHead& of_head = heads_[static_cast<std::size_t>(head)];
      for (std::ptrdiff_t batch = 0; batch < key.shape[0]; batch++) {
        copy_rows(key, batch, head, of_head, of_head.key, row_bytes_.key);
        copy_rows(value, batch, head, of_head, of_head.value, row_bytes_.value);
      }
      of_head.first = std::max(of_head.first, count_ + more - of_head.capacity);
    }
    count_ += more;
  }

  // Removes the last rows. Rows that the ring has overwritten do not come back.
  void truncate(std::ptrdiff_t count) { count_ = std::min(count_, count); }

 private:
  OfHead const& of(std::ptrdiff_t head) const { return heads_[static_cast<std::size_t>(head)]; }
  std::ptrdiff_t kept_count() const { return static_cast<std::ptrdiff_t>(kept_.size()); }
  // The memory of a batch item.
  Byte* ring(const OfHead& head, const Memory& memory, std::ptrdiff_t bytes, std::ptrdiff_t batch) const {
    return memory.ring + batch * (head.capacity + kept_count()) * bytes;
  }
  void* const* pages(const OfHead& head, const Memory& memory, std::ptrdiff_t batch) const {
    return memory.pages.data() + batch * (head.capacity / kPageRows);
  }

  RowSource source(const OfHead& of_head, const Memory& memory, std::ptrdiff_t bytes, std::ptrdiff_t batch,
                   std::ptrdiff_t head, const ArrayView<const Byte, 4>& following) const {
    bool const paged = of_head.paged();
    return {storage_,
            paged ? nullptr : ring(of_head, memory, bytes, batch),
            bytes,
            1,
            {of_head.first, count_, of_head.capacity, kept_.data(), paged ? 0 : kept_count()},
            paged ? pages(of_head, memory, batch) : nullptr,
            following ? following.at(batch, head) : nullptr,
            following.stride[2]};
  }

  void copy_rows(const ArrayView<const Byte, 4>& from, std::ptrdiff_t batch, std::ptrdiff_t head, const OfHead& of_head,
                 const Memory& memory, std::ptrdiff_t bytes) const {
    std::ptrdiff_t const more = from.shape[2], capacity = of_head.capacity;
    auto const copy = [&](std::ptrdiff_t row, Byte* place) { std::copy_n(from.at(batch, head, row), bytes, place); };
    if (of_head.paged()) {
      void* const* const to = pages(of_head, memory, batch);
      for (std::ptrdiff_t row = 0; row < more; row++)
        copy(row, static_cast<Byte*>(to[(count_ + row) / kPageRows]) + (count_ + row) % kPageRows * bytes);
      return;
    }
    Byte* const to = ring(of_head, memory, bytes, batch);
    for (std::ptrdiff_t row = std::max<std::ptrdiff_t>(0, more - capacity); row < more; row++)
      copy(row, to + (count_ + row) % capacity * bytes);
    auto const is_before = [](std::int64_t token, std::ptrdiff_t row) { return token < row; };
    for (auto token = std::lower_bound(kept_.begin(), kept_.end(), count_, is_before);
         token != kept_.end() && *token < count_ + more; token++)
      copy(*token - count_, to + (capacity + (token - kept_.begin())) * bytes);
  }

  std::vector<OfHead> heads_;
  std::vector<std::int64_t> kept_;
  std::ptrdiff_t count_;
  Storage const storage_;
  RowBytes const row_bytes_;
};

}  // namespace headspan
