// SPDX-License-Identifier: BSD-3-Clause
// The terms of a score besides the product of query and key:
//
//     s = cap * tanh(product / cap) - slope * x + number of the key + number of the pair
//
// each if it is given, and all times log2(e). Terms are added to the products of a tile in a separate loop, so that the
// products do not know them and calls without terms do not pay for them.
#pragma once

#include <stdint.h>
#include <string.h>

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

// The numbers for the pairs of a tile, and room for them.
template <class T>
struct PairRows {
  T* room;
  const T* rows[kPaddedKeys];
};

// The lanes of a row that hold -infinity. A comparison gives a byte of 0 or 1 for each lane; the product brings byte i
// of eight to bit 56 + i.
template <class T>
HEADSPAN_INLINE uint64_t infinite_lanes(const T* row) {
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "byte 0 is the lowest");
  uint8_t is_infinite[kLanes];
  for (int lane = 0; lane < kLanes; lane++) is_infinite[lane] = row[lane] == -kInfinity<T>;
  uint64_t lanes = 0;
  for (int first = 0; first < kLanes; first += 8) {
    uint64_t bytes;
    memcpy(&bytes, is_infinite + first, sizeof bytes);
    lanes |= bytes * 0x0102040810204080 >> 56 << first;
  }
  return lanes;
}

// Removes pairs whose number is -infinity from the lane masks. Masks leave a pair out exactly, whatever its key and
// value contain. Runs stay the same, so that sums keep their order.
template <class T>
HEADSPAN_NOINLINE void leave_out_removed(const Group<T>& group, const Tile& tile, const T* const* rows,
                                         TileKeys<T>& keys) {
  uint64_t removed = 0;
  bool any_removed = false;
  for (int r = 0; r < tile.count; r++) {
    if (r == 0 || rows[r] != rows[r - 1]) removed = infinite_lanes(rows[r]);  // neighbouring keys may share a row
    if (!removed) continue;
    if (!keys.lane_masks) {
      for (int i = 0; i < keys.padded; i++) keys.padded_masks[i] = all_lanes(group);
      keys.lane_masks = keys.padded_masks;
    }
    keys.padded_masks[r] &= ~removed;
    any_removed = true;
  }
  for (int i = 0; i < keys.run_count && any_removed; i++)
    for (int r = keys.runs[i].first; r < keys.runs[i].last; r++) keys.runs[i].all_seen &= keys.lane_masks[r];
}

// The terms of a tile; `slope` is times log2(e). Pairs that they remove are taken out of the lane masks of the tile.
template <class T>
HEADSPAN_INLINE ScoreTerms<T> score_terms(const Group<T>& group, const Tile& tile, TileKeys<T>& keys, const T* slope,
                                          PairRows<T>& pairs) {
  if (group.pair_bias.self) {
    group.pair_bias.rows(group.pair_bias.self, tile, pairs.room, pairs.rows);
    for (int r = tile.count; r < keys.padded; r++) pairs.rows[r] = pairs.rows[tile.count - 1];
    if (group.pair_bias.removes) leave_out_removed(group, tile, pairs.rows, keys);
  }
  return {SoftCap<T>(group.softcap), group.biased ? slope : nullptr, keys.distances,
          group.key_bias.data ? keys.bias : nullptr, group.pair_bias.self ? pairs.rows : nullptr};
}

// products -> scores, in place, for the keys first .. last - 1 of one vector of lanes; returns their maximum and
// `best`. `cap_slopes`, if not null, receives the derivative of the cap for each pair. Works on a key group at a time,
// so that the terms are not tested for every key.
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

// The scores of a run; -infinity where the mask of a key lacks the lane. `best`, if not null, is raised to the maximum
// of each lane.
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
