// SPDX-License-Identifier: BSD-3-Clause
// Every allocation of the core: aligned, checked for overflow, std::bad_alloc when there is no memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>

namespace headspan {

inline std::size_t checked_product(std::size_t a, std::size_t b) {
  std::size_t product;
  if (__builtin_mul_overflow(a, b, &product)) throw std::bad_alloc();
  return product;
}

template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t count)
      : data_(static_cast<T*>(::operator new(checked_product(count, sizeof(T)), alignment))), size_(count) {}

  T* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  T& operator[](std::size_t i) const { return data_.get()[i]; }

 private:
  static constexpr std::align_val_t alignment{64};
  struct Free {
    void operator()(T* p) const { ::operator delete(p, alignment); }
  };
  std::unique_ptr<T, Free> data_;
  std::size_t size_ = 0;
};

// Scratch of the calling thread, kept between calls.
inline char* thread_scratch(std::size_t bytes) {
  thread_local Buffer<char> scratch;
  if (scratch.size() < bytes) scratch = Buffer<char>(bytes);
  return scratch.data();
}

}  // namespace headspan
