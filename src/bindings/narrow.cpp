// SPDX-License-Identifier: BSD-3-Clause
// Conversion of whole arrays of 16-bit floats to float32 and back.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "base/array_view.h"
#include "base/parallel.h"
#include "kernel/dispatch.h"
#include "kernel/rows/row_source.h"
#include "key_cache.h"
#include "numpy_views.h"

namespace headspan::bindings {

namespace {

// Calls work(batch, head, token) for all rows of an array on four axes.
template <class T, class Work>
void for_each_row(const ArrayView<const T, 4>& array, int threads, Work work) {
  std::ptrdiff_t const heads = array.shape[1], tokens = array.shape[2], at_a_time = 64,
                       pieces = (tokens + at_a_time - 1) / at_a_time;
  bool const small = array.shape[0] * heads * tokens * array.shape[3] < 1 << 16;
  parallel_for(array.shape[0] * heads * pieces, small ? 1 : threads, {}, [&](std::ptrdiff_t task, const StopCheck&) {
    std::ptrdiff_t const row = task / pieces, first = task % pieces * at_a_time;
    for (std::ptrdiff_t i = first; i < std::min(first + at_a_time, tokens); i++) work(row / heads, row % heads, i);
  });
}

py::array widened(const py::array& array, const std::string& stored, int threads) {
  Storage const storage = storage_named(stored);
  ArrayView<const std::uint16_t, 4> const from = rows_view<std::uint16_t, 4>(array, "array");
  py::array_t<float> result = new_array<float>({from.shape[0], from.shape[1], from.shape[2], from.shape[3]});
  ArrayView<float, 4> const to = writable_view<float, 4>(result);
  py::gil_scoped_release const release;
  for_each_row(from, threads, [&](std::ptrdiff_t batch, std::ptrdiff_t head, std::ptrdiff_t i) {
    active_variant().read_row(storage, reinterpret_cast<const Byte*>(from.at(batch, head, i)), from.shape[3],
                              to.at(batch, head, i));
  });
  return py::array(std::move(result));
}

py::array narrowed(const py::array& array, const std::string& stored, int threads) {
  Storage const storage = storage_named(stored);
  ArrayView<const float, 4> const from = rows_view<float, 4>(array, "array");
  py::array_t<std::uint16_t> result =
      new_array<std::uint16_t>({from.shape[0], from.shape[1], from.shape[2], from.shape[3]});
  ArrayView<std::uint16_t, 4> const to = writable_view<std::uint16_t, 4>(result);
  py::gil_scoped_release const release;
  for_each_row(from, threads, [&](std::ptrdiff_t batch, std::ptrdiff_t head, std::ptrdiff_t i) {
    active_variant().write_row(storage, from.at(batch, head, i), from.shape[3],
                               reinterpret_cast<Byte*>(to.at(batch, head, i)));
  });
  return py::array(std::move(result));
}

}  // namespace

void register_narrow(py::module_& m) {
  m.def("widened", &widened, py::arg("array"), py::arg("stored"), py::arg("threads"),
        "16-bit floats, given as uint16 on four axes, in float32.");
  m.def("narrowed", &narrowed, py::arg("array"), py::arg("stored"), py::arg("threads"),
        "float32 numbers on four axes rounded to 16-bit floats, as uint16.");
}

}  // namespace headspan::bindings
