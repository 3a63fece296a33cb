// SPDX-License-Identifier: BSD-3-Clause
// The order in which threads take queries and add to the gradients of keys. A chunk is a few neighbouring groups of
// queries of one key head:
//
//            keys   range 0   range 1   range 2   range 3
//     chunk 0          1
//     chunk 1          2         1
//     chunk 2          3         2         1
//     chunk 3          4         3         2         1
//
// Every chunk processes its ranges of keys from last to first, and chunks add to a range in ascending order. The sums
// are therefore the same for every number of threads and need no copies, and threads of one head hardly wait for each
// other: each is one range behind its predecessor.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/parallel.h"
#include "base/tile.h"

namespace headspan {

// Keys per range, and groups per chunk. Smaller numbers let more threads share a head, but move the rows of a key
// between threads more often. A pattern computes the keys of a group anew in every range, so its ranges are longer.
constexpr std::ptrdiff_t kRangeKeys = 2 * kTileKeys, kPatternRangeKeys = 32 * kTileKeys;
constexpr std::ptrdiff_t kChunkGroups = 2;

class ChunkQueue {
 public:
  static constexpr std::ptrdiff_t kDone = -1;  // instead of a range
  struct Place {
    std::ptrdiff_t head, chunk;
    bool is_last;  // of the head
  };

  // `work`: the average work of a chunk.
  struct OfHead {
    std::ptrdiff_t chunks;
    double work;
  };
  explicit ChunkQueue(const std::vector<OfHead>& heads) : heads_(heads.size()) {
    std::size_t chunks = 0;
    for (std::size_t i = 0; i < heads.size(); i++) {
      heads_[i].first = chunks;
      heads_[i].chunks = heads[i].chunks;
      heads_[i].work = heads[i].work;
      chunks += static_cast<std::size_t>(heads[i].chunks);
      by_work_.push_back(i);
    }
    left_ = std::vector<Progress>(chunks);
    std::sort(by_work_.begin(), by_work_.end(), [&](std::size_t a, std::size_t b) {
      double const work = heads_[a].remaining(), other = heads_[b].remaining();
      return work != other ? work > other : a < b;
    });
  }

  std::ptrdiff_t chunks() const { return static_cast<std::ptrdiff_t>(left_.size()); }

  // A thread stays with its head while no other thread works there, because the keys of the head are in the cache.
  // Otherwise the thread moves to the unstarted head with the most work, and at the end to the head with the fewest
  // threads.
  std::optional<Place> next(const std::optional<Place>& before) {
    std::lock_guard<std::mutex> const lock(mutex_);
    Head* const current = before ? &heads_[static_cast<std::size_t>(before->head)] : nullptr;
    if (current) current->threads--;
    Head* best = current && current->threads == 0 && current->taken < current->chunks ? current : nullptr;
    if (!best && begun_ < by_work_.size()) best = &heads_[by_work_[begun_++]];
    if (!best)
      for (Head& head : heads_)
        if (head.taken < head.chunks && (!best || head.is_before(*best))) best = &head;
    if (!best) return {};
    best->threads++;
    std::ptrdiff_t const chunk = best->taken++;
    return Place{best - heads_.data(), chunk, best->taken == best->chunks};
  }

  // Waits until all earlier chunks of the head have left a range and those after it or, for kDone, are done. Returns
  // false if the work was stopped.
  bool await(const Place& place, std::ptrdiff_t range, const StopCheck& stop) {
    Head& head = heads_[static_cast<std::size_t>(place.head)];
    std::ptrdiff_t chunk = head.done.load(std::memory_order_acquire);
    for (bool all_done = true; chunk < place.chunk; chunk++) {
      std::atomic<std::ptrdiff_t> const& left = left_[head.first + static_cast<std::size_t>(chunk)].range;
      for (std::ptrdiff_t asked = 0; left.load(std::memory_order_acquire) > range; asked++) {
        if (stop()) return false;
        pause(asked);
      }
      all_done = all_done && left.load(std::memory_order_acquire) == kDone;
      if (all_done) head.done.store(chunk + 1, std::memory_order_release);
    }
    return true;
  }
  // Marks that the chunk has left a range and those after it, or is done.
  void leave(const Place& place, std::ptrdiff_t range) {
    left_[heads_[static_cast<std::size_t>(place.head)].first + static_cast<std::size_t>(place.chunk)].range.store(
        range, std::memory_order_release);
  }

 private:
  struct Head {
    std::size_t first = 0;  // index of its first chunk
    std::ptrdiff_t chunks = 0;
    double work = 0;
    std::ptrdiff_t taken = 0, threads = 0;
    std::atomic<std::ptrdiff_t> done{0};  // at least this many of the first chunks

    double remaining() const { return work * static_cast<double>(chunks - taken); }
    bool is_before(const Head& other) const {
      return threads != other.threads ? threads < other.threads : remaining() > other.remaining();
    }
  };
  // The first of the ranges that a chunk has left, on its own cache line.
  struct alignas(64) Progress {
    std::atomic<std::ptrdiff_t> range{std::numeric_limits<std::ptrdiff_t>::max()};
  };

  // Yielding to another program may cost milliseconds, so threads spin first, for longer than a few tiles take.
  static void pause(std::ptrdiff_t asked) {
    constexpr std::ptrdiff_t patience = 2000;
    if (asked >= patience) return std::this_thread::yield();
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  std::mutex mutex_;
  std::vector<Head> heads_;
  std::vector<std::size_t> by_work_;
  std::size_t begun_ = 0;  // number of started heads
  std::vector<Progress> left_;
};

}  // namespace headspan
