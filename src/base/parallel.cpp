// SPDX-License-Identifier: BSD-3-Clause
#include "parallel.h"

#include <fenv.h>

#include <cstddef>

#ifndef _WIN32
#include <pthread.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>

#ifdef _OPENMP
#include <omp.h>
#else
#include <cstdlib>
#include <thread>
#include <vector>
#endif

namespace headspan {

namespace {

// Rounding to nearest and no flush to zero: a library built with fast-math may have changed the mode of any thread.
class DefaultFloatMode {
 public:
  DefaultFloatMode() {
    fegetenv(&saved_);
    fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatMode() { fesetenv(&saved_); }
  DefaultFloatMode(const DefaultFloatMode&) = delete;
  DefaultFloatMode& operator=(const DefaultFloatMode&) = delete;

 private:
  fenv_t saved_;
};

// The state that the threads of one parallel_for share.
class Work {
 public:
  Work(std::ptrdiff_t count, const InterruptCheck& interrupted, const Task& body)
      : count_(count), interrupted_(interrupted), body_(body), last_check_(Clock::now()), last_time_(last_check_) {}

  void run(bool is_caller) noexcept {
    DefaultFloatMode const mode;
    try {
      StopCheck const stop = [this, is_caller] { return must_stop(is_caller); };
      for (std::ptrdiff_t task; !stop() && (task = next_.fetch_add(1)) < count_;) body_(task, stop);
    } catch (...) {
      std::lock_guard<std::mutex> const lock(mutex_);
      if (!error_) error_ = std::current_exception();
      stopped_ = true;
    }
  }

  void finish() const {
    if (error_) std::rethrow_exception(error_);
    if (was_interrupted_) throw Interrupted();
  }

 private:
  using Clock = std::chrono::steady_clock;

  bool must_stop(bool is_caller) {
    // Short parts of the work check only every fourth time, because reading the clock may take as long as such a part.
    if (is_caller && interrupted_ && ++asked_ % pause_ == 0) {
      Clock::time_point const now = Clock::now();
      pause_ = now - last_time_ > std::chrono::milliseconds(4) ? 1 : 4;
      last_time_ = now;
      if (now - last_check_ > std::chrono::milliseconds(20)) {
        if (interrupted_()) was_interrupted_ = stopped_ = true;
        last_check_ = Clock::now();
      }
    }
    return stopped_;
  }

  std::ptrdiff_t const count_;
  const InterruptCheck& interrupted_;
  const Task& body_;
  std::atomic<std::ptrdiff_t> next_{0};
  std::atomic<bool> stopped_{false};
  // Only the calling thread uses these:
  bool was_interrupted_ = false;
  unsigned asked_ = 0, pause_ = 4;
  Clock::time_point last_check_, last_time_;
  std::mutex mutex_;
  std::exception_ptr error_;
};

#ifdef _OPENMP

// After a fork the threads of the OpenMP pool exist in the parent only, and the next parallel region of the child would
// wait for them forever. Other libraries may share the pool, so headspan cannot know whether there was one. A forked
// child therefore computes serially.
std::atomic<bool> forked{false};
#ifndef _WIN32  // there is no fork on Windows
[[maybe_unused]] int const watching_forks = pthread_atfork(nullptr, nullptr, [] { forked = true; });
#endif

int processors() { return omp_get_num_procs(); }

void on_threads(int threads, Work& work) {
  if (forked) return work.run(true);
#pragma omp parallel num_threads(threads)
  work.run(omp_get_thread_num() == 0);
}

#else

int processors() { return static_cast<int>(std::max(1u, std::thread::hardware_concurrency())); }

// Threads that are started for every call, which takes about 0.1 ms longer than those of OpenMP. They depend neither on
// a runtime that other libraries may load as well nor on one that a fork could break.
void on_threads(int threads, Work& work) {
  std::vector<std::thread> others;
  others.reserve(static_cast<std::size_t>(threads) - 1);
  try {
    while (--threads) others.emplace_back([&work] { work.run(false); });
  } catch (const std::exception&) {
    // The system refuses more threads: the existing ones do the work.
  }
  work.run(true);
  for (std::thread& other : others) other.join();
}

#endif

}  // namespace

int default_threads() {
#ifdef _OPENMP
  return std::max(1, omp_get_max_threads());
#else
  // The variable that all OpenMP runtimes read.
  const char* const wanted = std::getenv("OMP_NUM_THREADS");
  int const threads = wanted ? std::atoi(wanted) : 0;
  return threads > 0 ? threads : processors();
#endif
}

void parallel_for(std::ptrdiff_t count, int threads, const InterruptCheck& interrupted, const Task& body) {
  Work work(count, interrupted, body);
  // Not many more threads than processors: OpenMP ends the process if the system refuses a thread.
  threads = static_cast<int>(std::min<std::ptrdiff_t>({threads, count, std::max(16, 4 * processors())}));
  if (threads > 1) {
    on_threads(threads, work);
  } else {
    work.run(true);
  }
  work.finish();
}

bool has_openmp() {
#ifdef _OPENMP
  return true;
#else
  return false;
#endif
}

}  // namespace headspan
