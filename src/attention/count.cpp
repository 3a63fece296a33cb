// SPDX-License-Identifier: BSD-3-Clause
// Pairs, counted and drawn instead of computed.
#include <algorithm>
#include <limits>

#include "query_group.h"
#include "request.h"

namespace headspan {

namespace {

// A problem without numbers: only who meets whom.
Problem<double> empty_problem(const Band& band, std::ptrdiff_t batch, std::ptrdiff_t heads,
                              const std::vector<const Pattern*>& patterns) {
  Problem<double> problem;
  problem.query.shape[0] = problem.key.shape[0] = batch;
  problem.query.shape[1] = problem.key.shape[1] = heads;
  problem.query.shape[2] = band.queries;
  problem.key.shape[2] = band.keys;
  problem.ramp = band.ramp;
  problem.causal = band.causal;
  problem.include_self = band.include_self;
  problem.patterns = patterns;
  return problem;
}

std::int64_t pairs_of_group(const QueryGroup<double>& queries, TileBatch& batch, const StopCheck& stop) {
  std::int64_t count = 0;
  for_each_batch(queries.tiles(queries.reach()), batch, stop, [&](const Tile* tiles, int n) {
    for (const Tile* tile = tiles; tile < tiles + n; tile++) {
      if (!tile->words) count += static_cast<std::int64_t>(tile->count) * queries.group.lanes;
      for (int r = 0; r < tile->count && tile->words; r++) count += __builtin_popcountll(tile->words[r]);
    }
    return true;
  });
  return count;
}

std::int64_t pairs_of_band(const Band& band, const ArrayView<const double, 3>& span, std::ptrdiff_t batch,
                           std::ptrdiff_t head, const StopCheck& stop) {
  std::int64_t count = 0;
  for (std::ptrdiff_t i = 0; i < band.queries; i++) {
    if (i % 65536 == 0 && stop()) break;
    count += key_range(band, i, extent(band, *span.at(batch, head, i))).count();
  }
  return count;
}

}  // namespace

void count_pairs(const Band& band, const ArrayView<const double, 3>& span, const std::vector<const Pattern*>& patterns,
                 const ArrayView<std::int64_t, 2>& pairs, const Control& control) {
  std::ptrdiff_t const heads = pairs.shape[1];
  Problem<double> problem = empty_problem(band, pairs.shape[0], heads, patterns);
  problem.span = span;
  Plan const plan(patterns, band.queries, band.keys);
  parallel_for(pairs.shape[0] * heads, 1, control.interrupted, [&](std::ptrdiff_t task, const StopCheck& stop) {
    std::ptrdiff_t const batch = task / heads, head = task % heads;
    std::int64_t& count = *pairs.at(batch, head);
    count = 0;
    if (patterns.empty()) {
      count = pairs_of_band(band, span, batch, head, stop);
      return;
    }
    Buffer<TileBatch> const tiles(1);
    for (std::ptrdiff_t pass = 0; pass < plan.passes(); pass++)
      for (std::ptrdiff_t index = 0; index < plan.groups(head, pass) && !stop(); index++)
        count += pairs_of_group(group_of(problem, plan, batch, head, pass, index), *tiles.data(), stop);
  });
}

void pattern_mask(const Pattern& pattern, const ArrayView<bool, 2>& mask, const Control& control) {
  std::ptrdiff_t const queries = mask.shape[0], keys = mask.shape[1];
  Pass const pass = pattern.whole();
  parallel_for((queries + kLanes - 1) / kLanes, 1, control.interrupted, [&](std::ptrdiff_t group, const StopCheck&) {
    std::ptrdiff_t index[kLanes];
    int count = 0;
    for (std::ptrdiff_t i = group * kLanes; i < std::min(queries, (group + 1) * kLanes); i++)
      index[count++] = i + keys - queries;
    Lanes const lanes(index, count);
    for (std::ptrdiff_t first = 0; first < keys; first += kTileKeys) {
      std::uint64_t words[kTileKeys];
      Tile const tile{first, 1, nullptr, nullptr, static_cast<int>(std::min<std::ptrdiff_t>(kTileKeys, keys - first)),
                      false};
      pass.words(lanes, tile, keys, words);
      for (int lane = 0; lane < lanes.count; lane++)
        for (int r = 0; r < tile.count; r++) *mask.at(group * kLanes + lane, first + r) = words[r] >> lane & 1;
    }
  });
}

}  // namespace headspan
