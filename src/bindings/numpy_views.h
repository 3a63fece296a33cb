// SPDX-License-Identifier: BSD-3-Clause
// Conversion between NumPy arrays and views, and calls of the core, which release the interpreter's lock and handle
// Ctrl-C.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "base/array_view.h"
#include "base/buffer_pool.h"
#include "base/parallel.h"

namespace headspan::bindings {

namespace py = pybind11;

// The bindings check memory only; Python has checked the meaning of arguments, with better messages.
inline void require(bool condition, const char* name, const char* what) {
  if (!condition) throw py::value_error(std::string(name) + what);
}

template <class T, int rank>
ArrayView<T, rank> shape_of(const py::array& array, const char* name) {
  using Element = std::remove_const_t<T>;
  require(py::isinstance<py::array_t<Element>>(array) && array.ndim() == rank, name,
          " has another type or number of axes");
  ArrayView<T, rank> view;
  for (int axis = 0; axis < rank; axis++) {
    view.shape[axis] = array.shape(axis);
    // An axis of length 1 is never advanced along, and NumPy gives it any stride.
    require(array.shape(axis) == 1 || array.strides(axis) % static_cast<py::ssize_t>(sizeof(T)) == 0, name,
            " is not aligned to its elements");
    view.stride[axis] = array.strides(axis) / static_cast<py::ssize_t>(sizeof(T));
  }
  return view;
}

template <class T, int rank>
ArrayView<const T, rank> view(const py::array& array, const char* name) {
  ArrayView<const T, rank> v = shape_of<const T, rank>(array, name);
  v.data = static_cast<const T*>(array.data());
  require(reinterpret_cast<std::uintptr_t>(v.data) % alignof(T) == 0, name, " is not aligned to its elements");
  return v;
}

// The last axis must be contiguous; NumPy gives arrays without elements any strides.
template <class T, int rank>
ArrayView<const T, rank> rows_view(const py::array& array, const char* name) {
  ArrayView<const T, rank> const v = view<T, rank>(array, name);
  require(v.stride[rank - 1] == 1 || v.shape[rank - 1] == 1 || array.size() == 0, name,
          " must be contiguous in its last axis");
  return v;
}

// A new array for results. Large ones may use memory from the pool.
template <class T>
py::array_t<T> new_array(const std::vector<std::ptrdiff_t>& shape) {
  std::size_t count = 1;
  for (std::ptrdiff_t n : shape) count = checked_product(count, static_cast<std::size_t>(n));
  if (checked_product(count, sizeof(T)) < kLeastKept) return py::array_t<T>(shape);
  auto buffer = std::make_unique<Buffer<T>>(count);
  T* const data = buffer->data();
  py::capsule const owner(buffer.get(), [](void* memory) { delete static_cast<Buffer<T>*>(memory); });
  buffer.release();
  return py::array_t<T>(shape, data, owner);
}

template <class T, int rank>
ArrayView<T, rank> writable_view(py::array& array) {
  ArrayView<T, rank> v = shape_of<T, rank>(array, "result");
  v.data = static_cast<T*>(array.mutable_data());
  return v;
}

// The array for a result, `target` or a new one, and its view.
template <class T, int rank>
py::array result_array(const std::optional<py::array>& target, const std::vector<std::ptrdiff_t>& shape,
                       ArrayView<T, rank>& view, const char* name) {
  py::array array = target ? *target : py::array(new_array<T>(shape));
  view = shape_of<T, rank>(array, name);
  for (int axis = 0; axis < rank; axis++) {
    require(view.shape[axis] == shape[static_cast<std::size_t>(axis)], name, " has another shape");
    require(view.stride[axis] != 0 || view.shape[axis] <= 1 || array.size() == 0, name,
            " must not be a broadcast array");
  }
  require(view.stride[rank - 1] == 1 || view.shape[rank - 1] <= 1 || array.size() == 0, name,
          " must be contiguous in its last axis");
  view.data = static_cast<T*>(array.mutable_data());  // raises if the array is read-only
  return array;
}

template <class T, int rank>
void require_shape(const ArrayView<T, rank>& view, std::initializer_list<std::ptrdiff_t> shape, const char* name) {
  int axis = 0;
  for (std::ptrdiff_t n : shape) require(view.shape[axis++] == n, name, " has another shape");
}

// Axes of length 1 are broadcast to the shape.
template <class T, int rank>
ArrayView<const T, rank> broadcast_view(const py::array& array, const std::ptrdiff_t (&shape)[rank], const char* name) {
  ArrayView<const T, rank> v = view<T, rank>(array, name);
  for (int axis = 0; axis < rank; axis++) {
    require(v.shape[axis] == shape[axis] || v.shape[axis] == 1, name, " has another shape");
    if (v.shape[axis] == 1) v.stride[axis] = 0;
    v.shape[axis] = shape[axis];
  }
  return v;
}

// The same with a contiguous last axis, for arrays whose rows are read through a pointer.
template <class T, int rank>
ArrayView<const T, rank> tokens_view(const py::array& array, const std::ptrdiff_t (&shape)[rank], const char* name) {
  rows_view<T, rank>(array, name);
  ArrayView<const T, rank> const v = broadcast_view<T, rank>(array, shape, name);
  require(v.stride[rank - 1] == 1 || shape[rank - 1] == 1 || array.size() == 0, name,
          " must be contiguous in its last axis");
  return v;
}

// Calls compute(control) without the interpreter's lock.
template <class Compute>
void call_core(int threads, Compute compute) {
  Control control;
  control.threads = threads;
  control.interrupted = [] {
    py::gil_scoped_acquire const lock;
    return PyErr_CheckSignals() != 0;
  };
  try {
    py::gil_scoped_release const release;
    compute(control);
  } catch (const Interrupted&) {
    throw py::error_already_set();  // the exception of the signal handler
  } catch (const std::bad_alloc&) {
    PyErr_SetString(PyExc_MemoryError, "there is not enough memory for the computation");
    throw py::error_already_set();
  }
}

void register_attention(py::module_& m);
void register_blocks(py::module_& m);
void register_jax(py::module_& m);
void register_narrow(py::module_& m);
void register_runtime(py::module_& m);

}  // namespace headspan::bindings
