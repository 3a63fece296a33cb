// SPDX-License-Identifier: BSD-3-Clause
// Threads, variants and how the module was built.
#include <pybind11/stl.h>

#include <atomic>

#include "dispatch.h"
#include "numpy_views.h"

#define HEADSPAN_QUOTE(x) #x
#define HEADSPAN_TEXT(x) HEADSPAN_QUOTE(x)

namespace headspan::bindings {

namespace {

std::atomic<int> threads{0};  // 0: as many as OpenMP gives

const char* compiler() {
#if defined(__clang__)
  return "clang " __clang_version__;
#else
  return "gcc " __VERSION__;
#endif
}

}  // namespace

int thread_count() { return threads > 0 ? threads.load() : default_threads(); }

void register_runtime(py::module_& m) {
  m.def("set_num_threads", [](int n) { threads = n; }, py::arg("n"));
  m.def("get_num_threads", &thread_count);
  m.def("isa", [] { return std::string(active_variant().name); }, "The variant of the kernel that runs.");
  m.def("variants", &available_variants, "The variants that this machine can run, the best last.");
  m.def("compiler", &compiler);
  m.def("openmp", &has_openmp);
  m.attr("__version__") = HEADSPAN_TEXT(HEADSPAN_VERSION);
}

}  // namespace headspan::bindings
