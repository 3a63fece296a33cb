// SPDX-License-Identifier: BSD-3-Clause
// For vectors shorter than a cache line. Stores past the caches would send parts of lines, which is slower than normal
// stores.
#pragma once

#include "base/attributes.h"
#include "kernel/vectors/simd.h"

namespace headspan::HEADSPAN_ISA {

constexpr bool kStoresPastCaches = false;
template <class T, class V>
HEADSPAN_INLINE void store_past_caches(T* to, V v) {
  store<T>(to, v);
}
HEADSPAN_INLINE void finish_stores() {}

}  // namespace headspan::HEADSPAN_ISA
