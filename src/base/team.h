// SPDX-License-Identifier: BSD-3-Clause
// One processor for each thread of a parallel region. A thread that is woken may be put on the processor of the one
// that wakes it, and the two take turns there for milliseconds while another idles: schedulers of virtual machines
// count a halted processor as taken. So a thread that finds itself where one of its team is goes elsewhere.
#pragma once

#ifdef __linux__
#include <sched.h>
#endif

#include <atomic>
#include <cstdint>

namespace headspan {

#ifdef __linux__
class Team {
 public:
  // Every thread's first step, the waking one's before it wakes the others.
  void enter() {
    int const here = sched_getcpu();
    if (here >= 0 && here < CPU_SETSIZE && !claim(here)) go_elsewhere();
    entered_++;
  }

  // Between the waking thread's tasks: one of so many threads may be waiting for its processor.
  void let_others_enter(int threads) const {
    if (entered_ < threads) sched_yield();
  }

 private:
  // Where a thread may run is narrowed for a moment only, which moves it, and best effort: it works anywhere.
  void go_elsewhere() {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed)) return;
    cpu_set_t free = allowed;
    for (int processor = 0; processor < CPU_SETSIZE; processor++)
      if (is_taken(processor)) CPU_CLR(processor, &free);
    if (CPU_COUNT(&free) == 0 || sched_setaffinity(0, sizeof free, &free)) return;
    claim(sched_getcpu());
    sched_setaffinity(0, sizeof allowed, &allowed);
  }

  static std::uint64_t bit(int processor) { return std::uint64_t(1) << processor % 64; }
  bool is_taken(int processor) const { return taken_[processor / 64] & bit(processor); }
  bool claim(int processor) { return !(taken_[processor / 64].fetch_or(bit(processor)) & bit(processor)); }

  std::atomic<std::uint64_t> taken_[CPU_SETSIZE / 64] = {};
  std::atomic<int> entered_{0};
};
#else
class Team {
 public:
  void enter() {}
  void let_others_enter(int) const {}
};
#endif

}  // namespace headspan
