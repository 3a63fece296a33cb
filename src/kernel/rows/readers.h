// SPDX-License-Identifier: BSD-3-Clause
// Readers of vectors from rows of keys and values, either directly or from narrower types. row_source.h lists the
// formats.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/attributes.h"
#include "kernel/isa/instruction_set.h"
#include "kernel/vectors/transpose.h"
#include "row_source.h"

namespace headspan::HEADSPAN_ISA {

// load(from) for a whole vector, load_first(from, n) for its first n numbers and zeros. `scaled`: the row has a scale.
template <class T, Storage storage>
struct Reader {
  using Element = T;
  static constexpr bool scaled = false;
  HEADSPAN_ALWAYS_INLINE static Vec<T> load(const T* from) { return HEADSPAN_ISA::load(from); }
  HEADSPAN_ALWAYS_INLINE static Vec<T> load_first(const T* from, int n) { return load_dims(from, n); }
};

// Common parts of readers of narrower types: `Bytes` is a vector with as many elements, Widen converts them to floats.
template <class E, class Bytes, class Widen>
struct NarrowReader {
  using Element = E;
  HEADSPAN_ALWAYS_INLINE static VecF load(const E* from) {
    Bytes bytes;
    memcpy(&bytes, from, sizeof bytes);
    return Widen::widen(bytes);
  }
  HEADSPAN_ALWAYS_INLINE static VecF load_first(const E* from, int n) {
    Bytes bytes{};
    memcpy(&bytes, from, (size_t)n * sizeof(E));
    return Widen::widen(bytes);
  }
};

struct FromBfloat16 {
  HEADSPAN_ALWAYS_INLINE static VecF widen(HalfWords x) {
    return (VecF)(__builtin_convertvector(x, IntVec<float>) << 16);
  }
};
struct FromFloat16 {
  HEADSPAN_ALWAYS_INLINE static VecF widen(HalfWords x) { return from_halves(x); }
};
struct FromInt8 {
  HEADSPAN_ALWAYS_INLINE static VecF widen(SignedBytes x) { return from_bytes(x); }
};

template <>
struct Reader<float, Storage::bfloat16> : NarrowReader<uint16_t, HalfWords, FromBfloat16> {
  static constexpr bool scaled = false;
};
template <>
struct Reader<float, Storage::float16> : NarrowReader<uint16_t, HalfWords, FromFloat16> {
  static constexpr bool scaled = false;
};
template <>
struct Reader<float, Storage::int8> : NarrowReader<int8_t, SignedBytes, FromInt8> {
  static constexpr bool scaled = true;
};

// Calls work(Reader<...>{}) for the storage type of the rows.
template <class T, class Work>
HEADSPAN_INLINE void for_reader(Storage storage, Work work) {
  if constexpr (sizeof(T) == sizeof(float)) {
    if (storage == Storage::bfloat16) return work(Reader<T, Storage::bfloat16>{});
    if (storage == Storage::float16) return work(Reader<T, Storage::float16>{});
    if (storage == Storage::int8) return work(Reader<T, Storage::int8>{});
  }
  work(Reader<T, Storage::same>{});
}

// The rows of keys or values in the form for the products of decode.h.
template <class T>
struct DecodeRows {
  const T* const* rows;  // of other elements if they are stored in a narrower type
  const T* const* next;  // to be prefetched
  Storage storage;
  const T* scales;  // of each row, if they have scales
};

}  // namespace headspan::HEADSPAN_ISA
