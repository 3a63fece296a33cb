// SPDX-License-Identifier: BSD-3-Clause
// What an instruction set's file has, as plain functions on arrays: vectors of different lengths have no type in
// common. Compiled once per instruction set, as the kernel is, and so without anything that the linker could merge.
#pragma once

#include <stdint.h>

#include "base/attributes.h"
#include "base/stored_rows.h"

namespace headspan {

constexpr int kMostWidth = 16;  // elements of the longest vector

// All arrays are of `width` elements, unless said.
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

// Numbers of fewer bytes as floats: a vector of them, and its first n and zeros.
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
