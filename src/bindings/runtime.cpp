// SPDX-License-Identifier: BSD-3-Clause
// Threads, variants and the configuration of the build.
#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "attention/sums/chunk_queue.h"
#include "base/array_view.h"
#include "base/parallel.h"
#include "base/tile.h"
#include "kernel/dispatch.h"
#include "kernel/interface.h"
#include "kernel/rows/row_source.h"
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

// Floating-point operations per second of `count` threads at once, measured for about two milliseconds.
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

// The sum of an array, read once from end to end, which measures the bandwidth of memory.
double read_sum(const py::array& array, int threads) {
  ArrayView<const float, 1> const numbers = rows_view<float, 1>(array, "array");
  constexpr std::ptrdiff_t piece = std::ptrdiff_t(1) << 18, lanes = 128, ahead = 2048;
  std::ptrdiff_t const pieces = (numbers.shape[0] + piece - 1) / piece;
  std::vector<double> sums(static_cast<std::size_t>(pieces));
  py::gil_scoped_release const release;
  parallel_for(pieces, threads, {}, [&](std::ptrdiff_t task, const StopCheck&) {
    const float* const from = numbers.data + task * piece;
    std::ptrdiff_t const count = std::min(piece, numbers.shape[0] - task * piece);
    float of_lane[lanes] = {};
    for (std::ptrdiff_t i = 0; i + lanes <= count; i += lanes) {
      for (std::ptrdiff_t line = 0; line < lanes; line += 16) __builtin_prefetch(from + i + ahead + line);
      for (std::ptrdiff_t lane = 0; lane < lanes; lane++) of_lane[lane] += from[i + lane];
    }
    double sum = std::accumulate(of_lane, of_lane + lanes, 0.0);
    for (std::ptrdiff_t i = count / lanes * lanes; i < count; i++) sum += static_cast<double>(from[i]);
    sums[static_cast<std::size_t>(task)] = sum;
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

// Memory for results whose layout the caller chooses, from the same pool as results that the core allocates.
py::array empty(const std::vector<std::ptrdiff_t>& shape, const py::dtype& dtype) {
  for (std::ptrdiff_t n : shape) require(n >= 0, "shape", " must not be negative");
  if (dtype.equal(py::dtype::of<float>())) return new_array<float>(shape);
  require(dtype.equal(py::dtype::of<double>()), "dtype", " must be float32 or float64");
  return new_array<double>(shape);
}

// An array over memory that its owner keeps alive; strides count elements.
py::array array_over(const py::object& owner, std::uintptr_t address, const std::vector<std::ptrdiff_t>& shape,
                     std::vector<std::ptrdiff_t> strides, const py::dtype& dtype) {
  require(strides.size() == shape.size(), "strides", " must be as many as axes");
  for (std::ptrdiff_t& stride : strides) stride *= dtype.itemsize();
  return py::array(dtype, shape, strides, reinterpret_cast<const void*>(address), owner);
}

}  // namespace

void register_runtime(py::module_& m) {
  m.def("default_threads", &default_threads, "As many threads as OMP_NUM_THREADS or the processors say.");
  m.def("isa", [] { return std::string(active_variant().name); }, "The variant of the kernel that runs.");
  m.def("variants", &available_variants, "The variants that this machine can run, the best last.");
  m.def("fma_peak", &fma_peak, py::arg("dtype"), py::arg("threads"), py::call_guard<py::gil_scoped_release>(),
        "Floating-point operations a second that the running variant's multiply-adds reach on so many threads.");
  m.def("read_sum", &read_sum, py::arg("array"), py::arg("threads"),
        "The sum of an array of float32, which takes as long as memory needs to give it.");
  m.def("empty", &empty, py::arg("shape"), py::arg("dtype"), "An array without values, a large one in memory kept.");
  m.def("array_over", &array_over, py::arg("owner"), py::arg("address"), py::arg("shape"), py::arg("strides"),
        py::arg("dtype"), "An array over memory that its owner keeps; strides count elements.");
  m.def("compiler", &compiler);
  m.def("openmp", &has_openmp);
  m.attr("group_queries") = kLanes;
  m.attr("tile_keys") = kTileKeys;
  m.attr("range_keys") = kRangeKeys;
  m.attr("chunk_groups") = kChunkGroups;
  m.attr("page_rows") = kPageRows;
  m.attr("__version__") = HEADSPAN_TEXT(HEADSPAN_VERSION);
}

}  // namespace headspan::bindings
