// SPDX-License-Identifier: BSD-3-Clause
#include "memory.h"

#ifdef __linux__
#include <sys/mman.h>
#endif

#include <mutex>
#include <vector>

namespace headspan {

namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kMostKept = 0;  // what was given back must not be touched
#else
constexpr std::size_t kMostKept = std::size_t(256) << 20;
#endif
constexpr std::size_t kHugePage = std::size_t(2) << 20;

std::align_val_t alignment_of(std::size_t bytes) { return std::align_val_t(bytes < 2 * kHugePage ? 64 : kHugePage); }

void* allocate(std::size_t bytes) {
  void* const memory = ::operator new(bytes, alignment_of(bytes));
#ifdef MADV_HUGEPAGE
  // Only advice: where it is not taken, nothing is lost.
  if (bytes >= 2 * kHugePage) madvise(memory, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
#endif
  return memory;
}

void release(void* memory, std::size_t bytes) noexcept { ::operator delete(memory, alignment_of(bytes)); }

// Memory that was given back, the oldest first. Whoever finds it locked does without, so that a process forked at that
// moment works too.
class Store {
 public:
  void* take(std::size_t bytes) noexcept {
    std::unique_lock<std::mutex> const lock(mutex_, std::try_to_lock);
    if (!lock) return nullptr;
    for (auto piece = kept_.end(); piece != kept_.begin();) {
      if ((--piece)->bytes != bytes) continue;
      void* const memory = piece->memory;
      total_ -= bytes;
      kept_.erase(piece);
      return memory;
    }
    return nullptr;
  }

  void give(void* memory, std::size_t bytes) noexcept {
    std::unique_lock<std::mutex> const lock(mutex_, std::try_to_lock);
    if (!lock || bytes > kMostKept) return release(memory, bytes);
    while (total_ + bytes > kMostKept) drop_oldest();
    try {
      kept_.push_back({memory, bytes});
      total_ += bytes;
    } catch (const std::bad_alloc&) {
      release(memory, bytes);
    }
  }

  void clear() noexcept {
    std::unique_lock<std::mutex> const lock(mutex_, std::try_to_lock);
    while (lock && !kept_.empty()) drop_oldest();
  }

 private:
  void drop_oldest() noexcept {
    release(kept_.front().memory, kept_.front().bytes);
    total_ -= kept_.front().bytes;
    kept_.erase(kept_.begin());
  }

  struct Piece {
    void* memory;
    std::size_t bytes;
  };
  std::mutex mutex_;
  std::vector<Piece> kept_;
  std::size_t total_ = 0;
};

Store& store() {
  static Store* const only = new Store;  // never destroyed: arrays may outlive everything else
  return *only;
}

}  // namespace

void* take_memory(std::size_t bytes) {
  if (bytes < kLeastKept) return allocate(bytes);
  if (void* const kept = store().take(bytes)) return kept;
  try {
    return allocate(bytes);
  } catch (const std::bad_alloc&) {
    store().clear();
    return allocate(bytes);
  }
}

void give_memory(void* memory, std::size_t bytes) noexcept {
  if (bytes < kLeastKept) return release(memory, bytes);
  store().give(memory, bytes);
}

}  // namespace headspan
