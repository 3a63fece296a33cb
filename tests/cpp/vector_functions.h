// SPDX-License-Identifier: BSD-3-Clause
// The functions of an instruction set as plain functions on arrays, because vectors of different lengths have no common
// type. Compiled once per instruction set like the kernel, and therefore without anything that the linker could merge.
#pragma once

#include <stdint.h>

#include "base/attributes.h"
#include "kernel/rows/row_source.h"

namespace headspan {

constexpr int kMostWidth = 16;  // elements of the longest vector

// All arrays have `width` elements unless noted.
template <class T>
struct VectorFunctions {
  int width;
  void (*load_first)(const T* from, int n, T* to);  // `from` has n elements
  void (*store_first)(T* to, const T* v, int n);    // `to` has n elements
  void (*store_past_caches)(T* to, const T* v);     // `to` is aligned to 64 bytes
  void (*maximum)(const T* a, const T* b, T* to);
  void (*select)(uint64_t lanes, const T* a, const T* b, T* to);
  void (*fraction)(const T* x, T* to);
  void (*scale_by_power)(const T* p, const T* x, T* to);
  void (*absolute)(const T* x, T* to);
  bool (*all_zero)(const T* x);
  void (*exp2)(const T* x, T* to);
};

// Reads numbers of narrower types as floats: a whole vector, and the first n with zeros after them.
struct Widening {
  Storage storage;
  void (*all)(const void* from, float* to);
  void (*first)(const void* from, int n, float* to);
};
constexpr int kWidenings = 3;

struct VectorIsa {
  const char* name;
  VectorFunctions<float> (*float32)();
  VectorFunctions<double> (*float64)();
  const Widening* widenings;
};

}  // namespace headspan
