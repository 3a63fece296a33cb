// SPDX-License-Identifier: BSD-3-Clause
// Rows of numbers in a narrower type than that of the computation: the names and sizes of the types.
//
//     float16, bfloat16    2 bytes a number
//     int8                 a float, the scale of the row, and a byte a number
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "attributes.h"

namespace headspan {

enum class Storage { same, float16, bfloat16, int8 };

struct StorageName {
  const char* name;
  Storage storage;
};
constexpr StorageName kStorages[] = {
    {"same", Storage::same}, {"float16", Storage::float16}, {"bfloat16", Storage::bfloat16}, {"int8", Storage::int8}};

HEADSPAN_INLINE size_t stored_row_bytes(Storage storage, size_t dims, size_t element_bytes) {
  if (storage == Storage::same) return dims * element_bytes;
  return storage == Storage::int8 ? sizeof(float) + (dims + 3) / 4 * 4 : dims * 2;
}

}  // namespace headspan
