// SPDX-License-Identifier: BSD-3-Clause
// Tasks that add to the same rows one after another, in the order of their numbers: a task may go to a row only when
// the one before has left it. So sums come out the same for every number of threads, without a buffer for each.
#pragma once

#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

#include "base/parallel.h"

namespace headspan {

class OrderedAccumulator {
 public:
  // Task 0, and every task whose number is a multiple of `chain`, waits for nobody.
  OrderedAccumulator(std::ptrdiff_t tasks, std::ptrdiff_t chain)
      : published_(static_cast<std::size_t>(tasks)), chain_(chain) {}

  std::ptrdiff_t tasks() const { return static_cast<std::ptrdiff_t>(published_.size()); }
  std::ptrdiff_t place(std::ptrdiff_t task) const { return task % chain_; }  // in its chain
  bool is_last(std::ptrdiff_t task) const { return place(task) == chain_ - 1; }

  // Until the task before has left all rows below `row`; false if the work was stopped.
  bool await(std::ptrdiff_t task, std::ptrdiff_t row, const StopCheck& stop) const {
    if (place(task) == 0) return true;
    for (std::ptrdiff_t asked = 0; published(task - 1).load(std::memory_order_acquire) < row; asked++) {
      if (stop()) return false;
      pause(asked);
    }
    return true;
  }
  // Rows below `row` are left to the next task.
  void publish(std::ptrdiff_t task, std::ptrdiff_t row) { published(task).store(row, std::memory_order_release); }

 private:
  // Whoever yields to another program may wait for milliseconds, so at first, for longer than a few tiles take, not so.
  static void pause(std::ptrdiff_t asked) {
    constexpr std::ptrdiff_t patience = 2000;
    if (asked >= patience) return std::this_thread::yield();
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  std::atomic<std::ptrdiff_t>& published(std::ptrdiff_t task) { return published_[static_cast<std::size_t>(task)]; }
  const std::atomic<std::ptrdiff_t>& published(std::ptrdiff_t task) const {
    return published_[static_cast<std::size_t>(task)];
  }

  std::vector<std::atomic<std::ptrdiff_t>> published_;
  std::ptrdiff_t const chain_;
};

}  // namespace headspan
