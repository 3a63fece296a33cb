// SPDX-License-Identifier: BSD-3-Clause
#include "buffer_pool.h"

#include <cstddef>
#include <new>

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

#include <mutex>
#include <vector>

namespace headspan {

namespace {

// The maximum number of bytes kept, and of blocks beyond them whose pages the system may reclaim.
#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kMostKept = 0, kMostReclaimable = 0;  // freed memory must not be touched
#else
constexpr std::size_t kMostKept = std::size_t(256) << 20, kMostReclaimable = 8;
#endif
constexpr std::size_t kHugePage = std::size_t(2) << 20;

std::align_val_t alignment_of(std::size_t bytes) { return std::align_val_t(bytes < 2 * kHugePage ? 64 : kHugePage); }

void* allocate(std::size_t bytes) {
  void* const memory = ::operator new(bytes, alignment_of(bytes));
#ifdef MADV_HUGEPAGE
  // This is only advice; nothing is lost if it is ignored.
  if (bytes >= 2 * kHugePage) madvise(memory, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
#endif
  return memory;
}

void release(void* memory, std::size_t bytes) noexcept { ::operator delete(memory, alignment_of(bytes)); }

// Lets the system reclaim the pages of this memory when it needs some, which costs nothing otherwise. Returns false if
// the system does not support it.
bool mark_reclaimable([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) noexcept {
#ifdef MADV_FREE
  std::size_t const page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return madvise(memory, bytes / page * page, MADV_FREE) == 0;
#else
  return false;
#endif
}

// Freed memory for reuse. A caller that finds the pool locked does without it, so that a process forked at that moment
// works, too.
class Pool {
 public:
  void* take(std::size_t bytes) noexcept {
    std::unique_lock<std::mutex> const lock(mutex_, std::try_to_lock);
    if (!lock) return nullptr;
    if (void* const memory = take_of(kept_, bytes)) {
      total_ -= bytes;
      return memory;
    }
    return take_of(reclaimable_, bytes);
  }

  void give(void* memory, std::size_t bytes) noexcept {
    std::unique_lock<std::mutex> const lock(mutex_, std::try_to_lock);
    if (!lock) return release(memory, bytes);
    if (bytes > kMostKept || !append(kept_, {memory, bytes})) return mark_or_release({memory, bytes});
    total_ += bytes;
    while (total_ > kMostKept) {
      Piece const oldest = take_oldest(kept_);
      total_ -= oldest.bytes;
      mark_or_release(oldest);
    }
  }

  void clear() noexcept {
    std::unique_lock<std::mutex> const lock(mutex_, std::try_to_lock);
    if (!lock) return;
    total_ = 0;
    for (Pieces* pieces : {&kept_, &reclaimable_})
      while (!pieces->empty()) release_oldest(*pieces);
  }

 private:
  struct Piece {
    void* memory;
    std::size_t bytes;
  };
  using Pieces = std::vector<Piece>;  // the oldest first

  static bool append(Pieces& pieces, Piece piece) noexcept {
    try {
      pieces.push_back(piece);
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }
  static void* take_of(Pieces& pieces, std::size_t bytes) noexcept {
    for (auto piece = pieces.end(); piece != pieces.begin();) {
      if ((--piece)->bytes != bytes) continue;
      void* const memory = piece->memory;
      pieces.erase(piece);
      return memory;
    }
    return nullptr;
  }
  static Piece take_oldest(Pieces& pieces) noexcept {
    Piece const oldest = pieces.front();
    pieces.erase(pieces.begin());
    return oldest;
  }
  static void release_oldest(Pieces& pieces) noexcept {
    Piece const oldest = take_oldest(pieces);
    release(oldest.memory, oldest.bytes);
  }

  void mark_or_release(Piece piece) noexcept {
    if (kMostReclaimable == 0 || !mark_reclaimable(piece.memory, piece.bytes) || !append(reclaimable_, piece))
      release(piece.memory, piece.bytes);
    else if (reclaimable_.size() > kMostReclaimable)
      release_oldest(reclaimable_);
  }

  std::mutex mutex_;
  Pieces kept_, reclaimable_;
  std::size_t total_ = 0;  // bytes of kept_
};

Pool& pool() {
  static Pool* const only = new Pool;  // never destroyed: arrays may outlive all other objects
  return *only;
}

}  // namespace

void* pool_alloc(std::size_t bytes) {
  if (bytes < kLeastKept) return allocate(bytes);
  if (void* const kept = pool().take(bytes)) return kept;
  try {
    return allocate(bytes);
  } catch (const std::bad_alloc&) {
    pool().clear();
    return allocate(bytes);
  }
}

void pool_free(void* memory, std::size_t bytes) noexcept {
  if (bytes < kLeastKept) return release(memory, bytes);
  pool().give(memory, bytes);
}

}  // namespace headspan
