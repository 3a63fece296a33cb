// SPDX-License-Identifier: BSD-3-Clause
// Reads and writes a row of numbers in a narrower type than that of the computation. row_source.h lists the formats.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/attributes.h"
#include "row_source.h"

namespace headspan::HEADSPAN_ISA {

HEADSPAN_INLINE float float_of_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}
HEADSPAN_INLINE uint32_t bits_of_float(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

HEADSPAN_INLINE float from_bfloat16(uint16_t x) { return float_of_bits((uint32_t)x << 16); }
// The exponents differ by 112, which a product corrects, also for subnormal numbers.
HEADSPAN_INLINE float from_float16(uint16_t x) {
  uint32_t const magnitude = (uint32_t)(x & 0x7fff) << 13, sign = (uint32_t)(x & 0x8000) << 16;
  uint32_t const finite = bits_of_float(float_of_bits(magnitude) * 0x1p112f);
  return float_of_bits(((x & 0x7c00) == 0x7c00 ? magnitude | 0x7f800000 : finite) | sign);
}

// Rounded to nearest, ties to even.
HEADSPAN_INLINE uint16_t to_bfloat16(float x) {
  uint32_t const bits = bits_of_float(x);
  if (x != x) return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
HEADSPAN_INLINE uint16_t to_float16(float x) {
  uint32_t const bits = bits_of_float(x), magnitude = bits & 0x7fffffff, sign = bits >> 16 & 0x8000;
  // Computes all cases and selects one: without branches, a vector takes as long as one number.
  uint32_t const normal = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
  uint32_t const small = bits_of_float(float_of_bits(magnitude) + 0.5f) - 0x3f000000;  // steps of 2^-24, as below 1
  uint32_t rounded = magnitude < 0x38800000 ? small : normal;
  rounded = magnitude >= 0x477ff000 ? 0x7c00 : rounded;  // beyond the largest, 65504, by half a step or more
  rounded = magnitude > 0x7f800000 ? 0x7e00 : rounded;   // NaN
  return (uint16_t)(rounded | sign);
}

HEADSPAN_INLINE void write_row(Storage storage, const float* row, ptrdiff_t dims, Byte* to) {
  if (storage == Storage::int8) {
    float most = 0;
    bool finite = true;
    for (ptrdiff_t d = 0; d < dims; d++) {
      float const magnitude = row[d] < 0 ? -row[d] : row[d];
      finite = finite && row[d] - row[d] == 0;
      most = magnitude > most ? magnitude : most;
    }
    float const scale = finite ? most / 127 : float_of_bits(0x7fc00000);  // a row with NaN or infinity is all NaN
    memcpy(to, &scale, sizeof scale);
    for (ptrdiff_t d = 0; d < dims; d++) {
      float const x = finite && scale > 0 ? row[d] / scale : 0;
      int8_t const rounded = (int8_t)__builtin_lrintf(x > 127 ? 127 : x < -127 ? -127 : x);
      memcpy(to + sizeof scale + d, &rounded, 1);
    }
    return;
  }
  uint16_t* const numbers = (uint16_t*)to;
  if (storage == Storage::float16)
    for (ptrdiff_t d = 0; d < dims; d++) numbers[d] = to_float16(row[d]);
  else
    for (ptrdiff_t d = 0; d < dims; d++) numbers[d] = to_bfloat16(row[d]);
}

template <class T>
HEADSPAN_INLINE void read_row(Storage storage, const Byte* row, ptrdiff_t dims, T* to) {
  if (storage == Storage::int8) {
    float scale;
    memcpy(&scale, row, sizeof scale);
    const int8_t* const numbers = (const int8_t*)(row + sizeof scale);
    for (ptrdiff_t d = 0; d < dims; d++) to[d] = T((float)numbers[d] * scale);
    return;
  }
  const uint16_t* const numbers = (const uint16_t*)row;
  if (storage == Storage::float16)
    for (ptrdiff_t d = 0; d < dims; d++) to[d] = T(from_float16(numbers[d]));
  else
    for (ptrdiff_t d = 0; d < dims; d++) to[d] = T(from_bfloat16(numbers[d]));
}

}  // namespace headspan::HEADSPAN_ISA
