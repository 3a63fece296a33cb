// SPDX-License-Identifier: BSD-3-Clause
// A random number for each pair of a query and a key, which does not depend on the order of calls. It mixes the bits of
// two words of the query and the number of the key with the constants of MurmurHash3, which is in the public domain.
#pragma once

#include <stdint.h>

#include <initializer_list>

#include "attributes.h"

namespace headspan {

struct QueryWords {
  uint32_t first, second;
};

HEADSPAN_INLINE uint64_t mix_bits(uint64_t x) {
  x = (x ^ x >> 33) * 0xff51afd7ed558ccdu;
  x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53u;
  return x ^ x >> 33;
}

HEADSPAN_INLINE QueryWords query_words(uint64_t seed, uint64_t batch, uint64_t head, uint64_t query) {
  uint64_t x = seed;
  for (uint64_t number : {batch, head, query}) x = mix_bits(x + 0x9e3779b97f4a7c15u) ^ number;
  x = mix_bits(x);
  return {(uint32_t)x, (uint32_t)(x >> 32)};
}

// For unsigned 32-bit integers, and for vectors of them.
template <class Words>
HEADSPAN_INLINE Words pair_hash(Words first, Words second, Words key) {
  Words x = key + first;
  x = (x ^ x >> 16) * 0x85ebca6bu;
  x = ((x ^ x >> 13) + second) * 0xc2b2ae35u;
  return x ^ x >> 16;
}

}  // namespace headspan
