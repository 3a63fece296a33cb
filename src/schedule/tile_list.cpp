// SPDX-License-Identifier: BSD-3-Clause
#include "tile_list.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/tile.h"
#include "patterns/grid.h"
#include "patterns/intervals.h"
#include "patterns/lane_set.h"
#include "stage.h"

namespace headspan {

// Without a pattern, tiles are divided so that those inside the band need no masks: first the keys that only some lanes
// see, in whole key groups, then whole tiles, then the rest.
TileList::TileList(const VisibleKeys& keys, const Lanes& lanes, const PairRules& rules)
    : in_span_(keys.in_span),
      span_exempt_(keys.span_exempt ? *keys.span_exempt : keys.in_span),
      lanes_(lanes),
      rules_(rules),
      at_(in_span_.first()) {
  if (rules.stage) {
    stage_.emplace(*rules.stage, lanes, rules.keys);
    if (rules.grid_reach)
      in_grid_reach_.emplace(*rules.grid, lanes, [&](int lane, int axis, std::ptrdiff_t at) {
        std::ptrdiff_t const furthest = rules.grid_reach[lane];
        return GridRange{std::max<std::ptrdiff_t>(0, at - furthest),
                         std::min(rules.grid->shape[axis], at + furthest + 1), 1};
      });
    find_runs();
    return;
  }
  std::ptrdiff_t const first = in_span_.full_first(), last = in_span_.full_last();
  full_first_ = first == PTRDIFF_MAX ? at_ : at_ + (first - at_ + kKeyGroup - 1) / kKeyGroup * kKeyGroup;
  full_last_ = full_first_;
  if (first != PTRDIFF_MAX && last > full_first_) full_last_ += (last - full_first_) / kTileKeys * kTileKeys;
}

int TileList::next(TileBatch& batch) {
  int count = 0;
  while (count < at_once()) {
    Tile& tile = batch.tiles[count];
    bool const exempt = rules_.stage && exempt_at_ < exempt_count();
    tile = rules_.stage ? next_of_pattern(batch.indices[count]) : next_of_band();
    if (tile.count == 0) break;
    count += fill_masks(tile, exempt, batch.lane_masks[count]);
  }
  return count;
}

Tile TileList::next_of_band() {
  std::ptrdiff_t const cut = at_ < full_first_ && full_last_ > full_first_ ? full_first_ : in_span_.last(),
                       left = std::max<std::ptrdiff_t>(cut - at_, 0);
  Tile const tile{at_, 1, nullptr, nullptr, static_cast<int>(std::min<std::ptrdiff_t>(kTileKeys, left)), false};
  at_ += tile.count;
  return tile;
}

// Exempt keys come first, then the runs. Short runs share a tile and long ones start their own, so that their tiles are
// as regular as without the short ones.
Tile TileList::next_of_pattern(std::int64_t* indices) {
  if (exempt_at_ < exempt_count()) {
    std::size_t const count = std::min<std::size_t>(kTileKeys, exempt_count() - exempt_at_);
    Tile const tile{0, 1, rules_.exempt_keys->data() + exempt_at_, nullptr, static_cast<int>(count), false};
    exempt_at_ += count;
    return tile;
  }
  auto const list = [](std::ptrdiff_t first, std::ptrdiff_t step, int count, std::int64_t* to) {
    for (int i = 0; i < count; i++) to[i] = first + i * step;
  };
  Tile tile{0, 1, nullptr, nullptr, 0, false};
  while (run_ < runs_.size() && tile.count < kTileKeys) {
    KeyRun& run = runs_[run_];
    if (tile.count > 0 && run.last - run.first >= kTileKeys * run.step) break;
    std::ptrdiff_t const left = (run.last - run.first + run.step - 1) / run.step;
    int const count = static_cast<int>(std::min<std::ptrdiff_t>(left, kTileKeys - tile.count));
    if (tile.count == 0) {
      tile.first = run.first, tile.step = run.step;
    } else {  // more than one run
      if (!tile.indices) list(tile.first, tile.step, tile.count, indices);
      list(run.first, run.step, count, indices + tile.count);
      tile.indices = indices;
    }
    tile.count += count;
    run.first += count * run.step;
    run_ += count == left;
  }
  return tile;
}

void TileList::find_runs() {
  std::ptrdiff_t const first = in_span_.first(), last = in_span_.last();
  if (first >= last) return;
  std::vector<KeyRun> const runs = stage_->runs();
  runs_.reserve(runs.size());
  for (KeyRun run : runs) {
    if (run.first < first) run.first += (first - run.first + run.step - 1) / run.step * run.step;
    run.last = std::min(run.last, last);
    if (exempt_count()) {
      auto const from = std::lower_bound(rules_.exempt_keys->begin(), rules_.exempt_keys->end(), run.first);
      for (auto key = from; key != rules_.exempt_keys->end() && *key < run.last; ++key) {
        if ((*key - run.first) % run.step) continue;
        if (run.first < *key) runs_.push_back({run.first, *key, run.step});
        run.first = *key + run.step;
      }
    }
    if (run.first < run.last) runs_.push_back(run);
  }
}

std::size_t TileList::exempt_count() const { return rules_.exempt_keys ? rules_.exempt_keys->size() : 0; }

// Computes the masks of a tile, or that it needs none; false if no lane sees any key.
bool TileList::fill_masks(Tile& tile, bool exempt, std::uint64_t* masks) const {
  GroupKeyRange const& reach = exempt ? span_exempt_ : in_span_;
  auto const [first, last] = key_interval(tile);
  bool const on_grid = in_grid_reach_ && !exempt;
  tile.soft = on_grid || (!exempt && reach.soft(first, last));
  bool const full = reach.full(first, last);
  if (full && !rules_.stage && !rules_.removed) return true;
  std::uint64_t const all_of_them = lanes_.all();
  std::uint64_t more[kTileKeys];
  auto const restrict_to_more = [&] {
    for (int r = 0; r < tile.count; r++) masks[r] &= more[r];
  };
  if (rules_.stage)
    stage_->fill(tile, masks);
  else
    std::fill_n(masks, tile.count, all_of_them);
  if (!full) {
    reach.fill(tile, more);
    restrict_to_more();
  }
  if (on_grid) {
    in_grid_reach_->fill(tile, more);
    restrict_to_more();
  }
  for (int r = 0; r < tile.count && rules_.removed; r++)
    if (rules_.removed[key_index(tile, r)]) masks[r] = 0;
  std::uint64_t any = 0, common = all_of_them;
  for (int r = 0; r < tile.count; r++) any |= masks[r], common &= masks[r];
  if (common != all_of_them) tile.lane_masks = masks;
  return any != 0;
}

bool TileList::overlaps(const Interval& keys, bool exempt) const {
  if (exempt) {
    auto const key = std::lower_bound(rules_.exempt_keys->begin(), rules_.exempt_keys->end(), keys.first);
    return key != rules_.exempt_keys->end() && *key < keys.last;
  }
  auto const touches = [&](const auto& run) { return keys.first < run.last && keys.last > run.first; };
  if (!rules_.stage) return touches(Interval{in_span_.first(), in_span_.last()});
  return std::any_of(runs_.begin(), runs_.end(), touches);
}

std::optional<Tile> TileList::gathered(const std::int64_t* indices, int count, bool exempt,
                                       std::uint64_t* masks) const {
  Tile tile{0, 1, indices, nullptr, count, false};
  if (!overlaps(key_interval(tile), exempt) || !fill_masks(tile, exempt, masks)) return std::nullopt;
  for (int r = 0; r < count && exempt_count(); r++)
    if (std::binary_search(rules_.exempt_keys->begin(), rules_.exempt_keys->end(), indices[r]) != exempt) masks[r] = 0;
  if (exempt_count()) tile.lane_masks = masks;
  return tile;
}

}  // namespace headspan
