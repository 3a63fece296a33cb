// SPDX-License-Identifier: BSD-3-Clause
// Tasks on threads. Exceptions, interrupts, forks and floating-point modes are handled here only.
#pragma once

#include <cstddef>
#include <functional>

namespace headspan {

// Called on the calling thread about every 20 ms; true ends the work early with an Interrupted exception.
using InterruptCheck = std::function<bool()>;
struct Interrupted {};

// The threads of a call, and how it can be interrupted.
struct Control {
  int threads = 1;
  InterruptCheck interrupted;
};

// Passed to every task: true when the work must stop, so that long tasks can end early.
using StopCheck = std::function<bool()>;
using Task = std::function<void(std::ptrdiff_t task, const StopCheck& stop)>;

// Runs body for tasks 0 .. count - 1 on up to `threads` threads. The first exception of a task is thrown here after all
// threads have stopped. Which thread runs a task is not defined; a result must not depend on it.
void parallel_for(std::ptrdiff_t count, int threads, const InterruptCheck& interrupted, const Task& body);

int default_threads();
bool has_openmp();

}  // namespace headspan
