// SPDX-License-Identifier: BSD-3-Clause
// From a pattern to the tiles of the kernel: every visible pair is in one tile of one stage, and no other pair is.
#include "schedule/tile_list.h"

#include <doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "attention/request.h"
#include "base/array_view.h"
#include "base/span_mask.h"
#include "base/tile.h"
#include "pattern_cases.h"
#include "patterns/expression.h"
#include "random_cases.h"
#include "schedule/group_schedule.h"
#include "schedule/plan.h"
#include "schedule/visibility.h"
#include "visibility_cases.h"

namespace headspan {

namespace {

struct TileCase {
  std::unique_ptr<SomePattern> pattern;  // null: none
  std::ptrdiff_t keys, queries;
  std::unique_ptr<SomeVisibility> some;
  std::vector<double> spans;  // of each query
  bool limited, span_per_query;
  std::unique_ptr<bool[]> removed;

  explicit TileCase(Random& random) {
    if (!random.one_in(4)) pattern = std::make_unique<SomePattern>(random);
    keys = pattern ? pattern->keys : random.between(1, 250);
    bool const on_grid = pattern && pattern->grid.axes;
    queries = random.one_in(2) ? keys : random.between(1, on_grid ? keys : 250);
    some = std::make_unique<SomeVisibility>(random, queries, keys, on_grid);
    limited = !random.one_in(4);
    span_per_query = limited && random.one_in(2);
    spans.assign(static_cast<std::size_t>(queries), limited ? some_span(random, keys) : kUnlimited);
    for (double& span : spans)
      if (span_per_query) span = some_span(random, keys);
    if (random.one_in(3)) {
      removed.reset(new bool[static_cast<std::size_t>(keys)]);
      for (std::ptrdiff_t key = 0; key < keys; key++) removed[static_cast<std::size_t>(key)] = random.one_in(5);
    }
  }

  Visibility const& visibility() const { return some->visibility; }
  double span(std::ptrdiff_t query) const { return spans[static_cast<std::size_t>(query)]; }
  double distance(std::ptrdiff_t query, std::ptrdiff_t key) const {
    bool const on_grid = pattern && pattern->grid.axes;
    return on_grid ? pattern->grid_distance(visibility().index(query), key)
                   : headspan::distance(visibility(), query, key);
  }
  // Whether no span limits a pair.
  bool exempt(std::ptrdiff_t query, std::ptrdiff_t key) const {
    return !limited || (pattern && (pattern->is_global(visibility().index(query)) || pattern->is_global(key)));
  }
  bool sees(std::ptrdiff_t query, std::ptrdiff_t key) const {
    if (removed && removed[static_cast<std::size_t>(key)]) return false;
    if (pattern && !pattern->allows(visibility().index(query), key)) return false;
    return exists(visibility(), query, key) &&
           (exempt(query, key) || in_reach(distance(query, key), span(query), visibility().ramp));
  }
};

// How often each pair occurs in tiles, (queries, keys).
class PairTally {
 public:
  explicit PairTally(const TileCase& inputs)
      : inputs_(inputs), times_(static_cast<std::size_t>(inputs.queries * inputs.keys)) {}

  // False if the tile violates the requirements of the kernel.
  bool add(const Tile& tile, const GroupSchedule& group) {
    if (tile.count < 1 || tile.count > kTileKeys) return false;
    std::uint64_t const all = ~std::uint64_t(0) >> (kLanes - group.lanes());
    for (int r = 0; r < tile.count; r++) {
      std::ptrdiff_t const key = key_index(tile, r);
      std::uint64_t const mask = tile.lane_masks ? tile.lane_masks[r] : all;
      if (key < 0 || key >= inputs_.keys || (mask & ~all)) return false;
      for (int lane = 0; lane < group.lanes(); lane++) {
        if (!(mask >> lane & 1)) continue;
        std::ptrdiff_t const query = group.query(lane);
        times_[static_cast<std::size_t>(query * inputs_.keys + key)]++;
        // The kernel computes the mask of a pair in a soft tile from the span of the lane, and uses 1 otherwise.
        bool const falls = inputs_.distance(query, key) >= inputs_.span(query);
        bool const limited = !inputs_.exempt(query, key) && group.span(lane) < kUnlimited;
        if (limited && falls && !tile.soft) return false;
        if (!limited && tile.soft && inputs_.distance(query, key) >= group.span(lane)) return false;
      }
    }
    return true;
  }
  bool each_visible_pair_once() const {
    for (std::ptrdiff_t query = 0, i = 0; query < inputs_.queries; query++)
      for (std::ptrdiff_t key = 0; key < inputs_.keys; key++, i++)
        if (times_[static_cast<std::size_t>(i)] != inputs_.sees(query, key)) return false;
    return true;
  }
  std::int64_t pairs() const { return std::accumulate(times_.begin(), times_.end(), std::int64_t(0)); }

 private:
  TileCase const& inputs_;
  std::vector<int> times_;
};

template <class Visit>
void for_each_group(const TileCase& inputs, int tiles_at_once, Visit visit) {
  std::vector<const Pattern*> patterns;
  if (inputs.pattern) patterns.push_back(&inputs.pattern->pattern);
  Plan const plan(patterns, 1, inputs.queries, inputs.keys);
  for (std::ptrdiff_t number = 0; number < plan.stages(); number++)
    for (std::ptrdiff_t index = 0; index < plan.groups(0, 0, number); index++) {
      GroupQueries const queries = group_queries(plan, 0, 0, number, index, inputs.span_per_query,
                                                 [&](std::ptrdiff_t i) { return inputs.span(i); });
      visit(GroupSchedule(inputs.visibility(), plan.pattern(0, 0), plan.stage(0, 0, number), queries, inputs.limited,
                          inputs.removed.get(), tiles_at_once));
    }
}

}  // namespace

TEST_CASE("tiles meet every visible pair once, whole or split, a batch of any size at a time") {
  auto const batch = std::make_unique<TileBatch>();
  for (int seed = 0; seed < 600; seed++) {
    CAPTURE(seed);
    Random random(seed);
    TileCase const inputs(random);
    PairTally counts(inputs);
    int const at_once = static_cast<int>(random.one_of({1, 3, kBatchTiles}));
    std::ptrdiff_t const splits = random.one_in(2) ? 1 : random.between(2, 4);
    bool well_formed = true;
    for_each_group(inputs, at_once, [&](const GroupSchedule& group) {
      for (std::ptrdiff_t split = 0; split < splits; split++) {
        VisibleKeys keys = group.visible_keys();
        if (splits > 1) keys.clip_to_split(split, splits);
        for_each_batch(
            group.tiles(keys), *batch, [] { return false; },
            [&](const Tile* tiles, int count) {
              well_formed = well_formed && count <= at_once;
              for (int i = 0; i < count; i++) well_formed = counts.add(tiles[i], group) && well_formed;
              return true;
            });
      }
    });
    CHECK(well_formed);
    CHECK(counts.each_visible_pair_once());
  }
}

TEST_CASE("gathered keys, in any order, are met once, apart from those that no span limits") {
  for (int seed = 0; seed < 300; seed++) {
    CAPTURE(seed);
    Random random(seed);
    TileCase const inputs(random);
    auto const keys = some_of<std::int64_t>(random, 0, inputs.keys, inputs.keys);
    PairTally counts(inputs);
    bool well_formed = true;
    for_each_group(inputs, kBatchTiles, [&](const GroupSchedule& group) {
      VisibleKeys const visible = group.visible_keys();
      TileList const tiles = group.tiles(visible);
      for (std::size_t at = 0; at < keys.size(); at += kTileKeys) {
        int const count = static_cast<int>(std::min<std::size_t>(kTileKeys, keys.size() - at));
        for (bool exempt : {false, true}) {
          if (exempt && !visible.span_exempt) continue;
          std::uint64_t masks[kTileKeys];
          auto const tile = tiles.gathered(keys.data() + at, count, exempt, masks);
          if (tile) well_formed = counts.add(*tile, group) && well_formed;
        }
      }
    });
    CHECK(well_formed);
    CHECK(counts.each_visible_pair_once());
  }
}

TEST_CASE("count_pairs counts the pairs that the definition has") {
  double const nothing = 0;
  for (int seed = 0; seed < 300; seed++) {
    CAPTURE(seed);
    Random random(seed);
    TileCase const inputs(random);
    Visibility const visible = inputs.visibility();
    std::int64_t const begin = visible.key_start, end = std::min(visible.key_stop, inputs.keys);
    std::int64_t expected = 0, counted = -1;
    for (std::ptrdiff_t query = 0; query < inputs.queries; query++)
      for (std::ptrdiff_t key = 0; key < inputs.keys; key++) expected += inputs.sees(query, key);
    Request<double> request;
    request.query = {&nothing, {1, 1, inputs.queries, 1}, {}};
    request.key = request.value = {&nothing, {1, 1, inputs.keys, 1}, {}};
    if (inputs.limited) request.span = {inputs.spans.data(), {1, 1, inputs.queries}, {0, 0, 1}};
    if (inputs.removed) request.removed = {inputs.removed.get(), {1, 1, inputs.keys}, {0, 0, 1}};
    if (visible.query_position) {
      request.query_positions = {visible.query_position, {1, inputs.queries}, {0, 1}};
      request.key_positions = {visible.key_position, {1, inputs.keys}, {0, 1}};
    }
    request.key_start = {&begin, {1}, {}};
    request.key_stop = {&end, {1}, {}};
    std::int64_t const prefix_end = visible.prefix_end;
    request.prefix_end = {&prefix_end, {1}, {}};
    if (visible.range_first) {
      request.range_first = {visible.range_first, {1, inputs.queries}, {0, 1}};
      request.range_last = {visible.range_last, {1, inputs.queries}, {0, 1}};
    }
    if (inputs.pattern) request.patterns.push_back(&inputs.pattern->pattern);
    request.ramp = visible.ramp;
    request.causal = visible.causal;
    request.include_self = visible.include_self;
    PairCounts const counts = pair_counts(request);
    CHECK(counts.items == 1);
    CHECK(counts.heads == 1);
    count_pairs(request, ArrayView<std::int64_t, 2>{&counted, {1, 1}, {1, 1}}, {});
    CHECK(counted == expected);
  }
}

}  // namespace headspan
