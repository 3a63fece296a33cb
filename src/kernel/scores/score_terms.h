// SPDX-License-Identifier: BSD-3-Clause
// What a score is made of beside the product of query and key:
//
//     s = cap * tanh(product / cap) - slope * x + number of the key + number of the pair
//
// each where it is given, and all times log2(e). Terms are added to the products of a tile in a pass of their own, so
// that no product knows them and calls without them do not pay.
#pragma once

#include <stdint.h>

#include "base/attributes.h"
#include "base/tile.h"
#include "kernel/interface.h"
#include "kernel/isa/instruction_set.h"
#include "kernel/key_tile.h"
#include "kernel/matmul.h"
#include "kernel/prefetch.h"
#include "kernel/scores/positions.h"
#include "soft_cap.h"

namespace headspan::HEADSPAN_ISA {

template <class T>
struct ScoreTerms {
  SoftCap<T> cap;
  const T* slope;  // of each lane; null: none
  Distances<T> distances;
  const T* of_key;          // for each key; null: none
  const T* const* of_pair;  // for each key a row of lanes; null: none

  HEADSPAN_ALWAYS_INLINE bool any() const { return cap || slope || of_key || of_pair; }
};

// Where the numbers of a tile's pairs are, and room for them.
template <class T>
struct PairRows {
  T* room;
  const T* rows[kPaddedKeys];
};

// The terms of a tile; `slope` is times log2(e).
template <class T>
HEADSPAN_INLINE ScoreTerms<T> score_terms(const Group<T>& group, const Tile& tile, const TileKeys<T>& keys,
                                          const T* slope, PairRows<T>& pairs) {
  if (group.pair_bias.self) {
    group.pair_bias.rows(group.pair_bias.self, tile, pairs.room, pairs.rows);
    for (int r = tile.count; r < keys.padded; r++) pairs.rows[r] = pairs.rows[tile.count - 1];
  }
  return {SoftCap<T>(group.softcap), group.biased ? slope : nullptr, keys.distances,
          group.key_bias.data ? keys.bias : nullptr, group.pair_bias.self ? pairs.rows : nullptr};
}

// products -> scores, in place, for the keys first .. last - 1 of one vector of lanes; returns their maximum and that
// given. `cap_slopes`, when not null, gets the derivative of the cap for each pair. A key group at a time, so that one
// does not ask for every key which terms there are.
template <class T>
HEADSPAN_NOINLINE Vec<T> add_terms(const ScoreTerms<T>& terms, const uint64_t* lane_masks, T* s, T* cap_slopes,
                                   Vec<T> best, int vector, int first, int last) {
  int const lane = vector * kWidth<T>;
  Vec<T> const slope = terms.slope ? load(terms.slope + lane) : Vec<T>{};
  for (int r = first; r < last; r += kKeyGroup) {
    Vec<T> x[kKeyGroup];
    auto const each = [&](auto work) HEADSPAN_ALWAYS_INLINE {
      unroll<kKeyGroup>([&](auto i) HEADSPAN_ALWAYS_INLINE { work(x[i.value], r + i.value); });
    };
    each([&](Vec<T>& score, int key) HEADSPAN_ALWAYS_INLINE { score = load(s + key * kLanes); });
    if (terms.cap)
      unroll<kKeyGroup / kAtOnce>([&](auto part) HEADSPAN_ALWAYS_INLINE {
        constexpr int i = part.value * kAtOnce;
        terms.cap.template apply<kAtOnce>(x + i, cap_slopes ? cap_slopes + (r + i) * kLanes : nullptr);
      });
    if (terms.slope)
      each([&](Vec<T>& score, int key) HEADSPAN_ALWAYS_INLINE { score -= slope * terms.distances.at(lane, key); });
    if (terms.of_key) each([&](Vec<T>& score, int key) HEADSPAN_ALWAYS_INLINE { score += terms.of_key[key]; });
    if (terms.of_pair)
      each([&](Vec<T>& score, int key) HEADSPAN_ALWAYS_INLINE { score += load(terms.of_pair[key] + lane); });
    if (lane_masks)
      each([&](Vec<T>& score, int key)
               HEADSPAN_ALWAYS_INLINE { score = select(lane_masks[key] >> lane, score, broadcast(-kInfinity<T>)); });
    each([&](Vec<T>& score, int key) HEADSPAN_ALWAYS_INLINE { store(s + key * kLanes, score); });
    best = maximum(best, maximum(maximum(x[0], x[1]), maximum(x[2], x[3])));
    static_assert(kKeyGroup == 4, "as many as here");
  }
  return best;
}

// The scores of a run; -infinity where a key's mask lacks the lane. `best`, when not null, is raised to the maximum of
// each lane.
template <class T>
HEADSPAN_INLINE void run_scores(const Run& run, const TileKeys<T>& keys, const ScoreTerms<T>& terms,
                                const Fetch<T>& fetch, const Group<T>& group, const T* q, T* s, T* cap_slopes,
                                Vec<T>* best) {
  bool const more = terms.any();
  run_products<T>(run, keys.key, fetch, group.head_dim, q, s, more ? nullptr : keys.lane_masks, more ? nullptr : best,
                  group.lanes, keys.storage, keys.key_scale);
  for (int j = run.first_vector; more && j < run.last_vector; j++) {
    int const lane = j * kWidth<T>;
    Vec<T> const highest = add_terms(terms, keys.lane_masks, s + lane, cap_slopes ? cap_slopes + lane : nullptr,
                                     best ? best[j] : Vec<T>{}, j, run.first, run.last);
    if (best) best[j] = highest;
  }
}

}  // namespace headspan::HEADSPAN_ISA
