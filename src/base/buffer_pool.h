// SPDX-License-Identifier: BSD-3-Clause
// Large memory of the core: aligned, checked for overflow, and std::bad_alloc if there is none.
#pragma once

#include <stdint.h>

#include <cstddef>
#include <limits>
#include <memory>
#include <new>

namespace headspan {

inline std::size_t checked_product(std::size_t a, std::size_t b) {
  std::size_t product;
  if (__builtin_mul_overflow(a, b, &product)) throw std::bad_alloc();
  return product;
}

// Freed large memory is kept for requests of the same size: the system clears every new page, which takes a fifth of
// the time of attention with a short span. Beyond 256 MB in total the system may reclaim it.
constexpr std::size_t kLeastKept = std::size_t(1) << 20;
void* pool_alloc(std::size_t bytes);
void pool_free(void* memory, std::size_t bytes) noexcept;

template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t count)
      : data_(static_cast<T*>(pool_alloc(checked_product(count, sizeof(T)))), {count * sizeof(T)}), size_(count) {}

  T* data() const { return data_.get(); }
  std::size_t size() const { return size_; }

 private:
  struct Free {
    std::size_t bytes = 0;
    void operator()(T* p) const { pool_free(p, bytes); }
  };
  std::unique_ptr<T, Free> data_;
  std::size_t size_ = 0;
};

// Scratch memory of the calling thread, kept between calls.
inline char* thread_scratch(std::size_t bytes) {
  thread_local Buffer<char> scratch;
  if (scratch.size() < bytes) scratch = Buffer<char>(bytes);
  return scratch.data();
}

}  // namespace headspan
