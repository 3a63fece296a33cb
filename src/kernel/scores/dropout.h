// SPDX-License-Identifier: BSD-3-Clause
// Dropout of the weights, after the softmax: Srivastava et al., "Dropout", 2014. Each pair has a factor f of 0 or 1 /
// (1 - rate), and out = sum of f * p * value, while the sum of the row and its log-sum-exp do not change.
#pragma once

#include <stdint.h>

#include "base/attributes.h"
#include "base/tile.h"
#include "kernel/interface.h"
#include "kernel/isa/instruction_set.h"
#include "kernel/key_tile.h"

namespace headspan::HEADSPAN_ISA {

// The factors of a tile's pairs.
template <class T>
HEADSPAN_NOINLINE void dropout_factors(const Group<T>& group, const Tile& tile, const TileKeys<T>& keys, T* factors) {
  const Dropout<T>& dropout = group.dropout;
  constexpr int width = kWidth<T>;
  using Words = WordVec<T>;
  auto const load_words = [](const uint32_t* from) HEADSPAN_ALWAYS_INLINE {
    Words words;
    memcpy(&words, from, sizeof words);
    return words;
  };
  Vec<T> const kept = broadcast(dropout.kept);
  for (int lane = 0; lane < group.lanes; lane += width) {
    Words const first = load_words(dropout.first + lane), second = load_words(dropout.second + lane);
    for (int r = 0; r < keys.padded; r++) {
      int const of_tile = r < tile.count ? r : tile.count - 1;
      Words const key = (dropout.first_key + (uint32_t)key_index(tile, of_tile)) - Words{};
      auto const keep = pair_hash(first, second, key) >= dropout.threshold;
      store<T>(factors + r * kLanes + lane, __builtin_convertvector(keep, IntVec<T>) ? kept : Vec<T>{});
    }
  }
}

// Numbers of pairs times their factors, for the keys of a run.
template <class T>
HEADSPAN_NOINLINE void drop(const Run& run, const T* factors, T* numbers) {
  for (int j = run.first_vector; j < run.last_vector; j++)
    for (int r = run.first; r < run.last; r++) {
      int const at = r * kLanes + j * kWidth<T>;
      store<T>(numbers + at, load(numbers + at) * load(factors + at));
    }
}

}  // namespace headspan::HEADSPAN_ISA
