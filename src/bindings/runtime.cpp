// SPDX-License-Identifier: BSD-3-Clause
// Threads, variants and how the module was built.
#include <pybind11/stl.h>

#include <chrono>
#include <numeric>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "kernel/dispatch.h"
#include "numpy_views.h"

#define HEADSPAN_QUOTE(x) #x
#define HEADSPAN_TEXT(x) HEADSPAN_QUOTE(x)

namespace headspan::bindings {

namespace {

const char* compiler() {
#if defined(__clang__)
  return "clang " __clang_version__;
#else
  return "gcc " __VERSION__;
#endif
}

// Floating-point operations a second of `count` threads at once, measured for about two milliseconds.
template <class T>
double measure_multiply_adds(int count) {
  using Clock = std::chrono::steady_clock;
  constexpr long rounds = 100000;
  Kernel<T> const kernel = active_kernel<T>();
  std::vector<double> rates(static_cast<std::size_t>(count));
  parallel_for(count, count, {}, [&](std::ptrdiff_t task, const StopCheck&) {
    T value = static_cast<T>(0.1) * static_cast<T>(task + 1);
    double operations = 0;
    auto const start = Clock::now();
    for (int i = 0; i < 8; i++) operations += kernel.multiply_adds(rounds, &value);
    rates[static_cast<std::size_t>(task)] = operations / std::chrono::duration<double>(Clock::now() - start).count();
  });
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

double fma_peak(const std::string& dtype, int count) {
  if (count < 1) throw py::value_error("threads must be at least 1");
  if (dtype == "float32") return measure_multiply_adds<float>(count);
  if (dtype == "float64") return measure_multiply_adds<double>(count);
  throw py::value_error("dtype must be 'float32' or 'float64', got '" + dtype + "'");
}

// Memory for results that the caller lays out, of the same pool as that of results which the core makes.
py::array empty(const std::vector<std::ptrdiff_t>& shape, const py::dtype& dtype) {
  for (std::ptrdiff_t n : shape) require(n >= 0, "shape", " must not be negative");
  if (dtype.equal(py::dtype::of<float>())) return new_array<float>(shape);
  require(dtype.equal(py::dtype::of<double>()), "dtype", " must be float32 or float64");
  return new_array<double>(shape);
}

}  // namespace

void register_runtime(py::module_& m) {
  m.def("default_threads", &default_threads, "As many threads as OpenMP would take.");
  m.def("isa", [] { return std::string(active_variant().name); }, "The variant of the kernel that runs.");
  m.def("variants", &available_variants, "The variants that this machine can run, the best last.");
  m.def("fma_peak", &fma_peak, py::arg("dtype"), py::arg("threads"), py::call_guard<py::gil_scoped_release>(),
        "Floating-point operations a second that the running variant's multiply-adds reach on so many threads.");
  m.def("empty", &empty, py::arg("shape"), py::arg("dtype"), "An array without values, a large one in memory kept.");
  m.def("compiler", &compiler);
  m.def("openmp", &has_openmp);
  m.attr("__version__") = HEADSPAN_TEXT(HEADSPAN_VERSION);
}

}  // namespace headspan::bindings
