// SPDX-License-Identifier: BSD-3-Clause
#include "tile_list.h"

#include <algorithm>

#include "patterns/grid.h"

namespace headspan {

// Without a pattern the tiles are cut so that those inside the band need no words: first the keys that only some lanes
// see yet, to whole key groups, then whole tiles, then the rest.
TileList::TileList(const Reach& reach, const Lanes& lanes, const Choice& choice)
    : near_(reach.near),
      free_(reach.free ? *reach.free : reach.near),
      lanes_(lanes),
      choice_(choice),
      at_(near_.first()) {
  if (choice.pass) {
    find_runs();
    return;
  }
  std::ptrdiff_t const first = near_.full_first(), last = near_.full_last();
  full_first_ = first == PTRDIFF_MAX ? at_ : at_ + (first - at_ + kKeyGroup - 1) / kKeyGroup * kKeyGroup;
  full_last_ = full_first_;
  if (first != PTRDIFF_MAX && last > full_first_) full_last_ += (last - full_first_) / kTileKeys * kTileKeys;
}

int TileList::next(TileBatch& batch) {
  int count = 0;
  while (count < at_once()) {
    Tile& tile = batch.tiles[count];
    bool const free = choice_.pass && free_at_ < free_keys();
    tile = choice_.pass ? next_of_pattern(batch.indices[count]) : next_of_band();
    if (tile.count == 0) break;
    count += see(tile, free, batch.words[count]);
  }
  return count;
}

Tile TileList::next_of_band() {
  std::ptrdiff_t const cut = at_ < full_first_ && full_last_ > full_first_ ? full_first_ : near_.last(),
                       left = std::max<std::ptrdiff_t>(cut - at_, 0);
  Tile const tile{at_, 1, nullptr, nullptr, static_cast<int>(std::min<std::ptrdiff_t>(kTileKeys, left)), false};
  at_ += tile.count;
  return tile;
}

// Keys whose pairs no span limits come first, then the runs: short ones share a tile, long ones start their own, so
// that their tiles are as regular as without the short ones.
Tile TileList::next_of_pattern(std::int64_t* indices) {
  if (free_at_ < free_keys()) {
    std::size_t const count = std::min<std::size_t>(kTileKeys, free_keys() - free_at_);
    Tile const tile{0, 1, choice_.free_keys->data() + free_at_, nullptr, static_cast<int>(count), false};
    free_at_ += count;
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
  std::ptrdiff_t const first = near_.first(), last = near_.last();
  if (first >= last) return;
  std::vector<KeyRun> const runs = choice_.pass->runs(lanes_, choice_.keys);
  runs_.reserve(runs.size());
  for (KeyRun run : runs) {
    if (run.first < first) run.first += (first - run.first + run.step - 1) / run.step * run.step;
    run.last = std::min(run.last, last);
    if (free_keys()) {
      auto const from = std::lower_bound(choice_.free_keys->begin(), choice_.free_keys->end(), run.first);
      for (auto key = from; key != choice_.free_keys->end() && *key < run.last; ++key) {
        if ((*key - run.first) % run.step) continue;
        if (run.first < *key) runs_.push_back({run.first, *key, run.step});
        run.first = *key + run.step;
      }
    }
    if (run.first < run.last) runs_.push_back(run);
  }
}

std::size_t TileList::free_keys() const { return choice_.free_keys ? choice_.free_keys->size() : 0; }

// Finds the words of a tile, and that it needs none; false if no lane sees any key.
bool TileList::see(Tile& tile, bool free, std::uint64_t* words) const {
  GroupKeys const& reach = free ? free_ : near_;
  auto const [first, last] = key_interval(tile);
  bool const on_grid = choice_.grid_reach && !free;
  tile.soft = on_grid || (!free && reach.soft(first, last));
  bool const full = reach.full(first, last);
  if (full && !choice_.pass && !choice_.removed) return true;
  std::uint64_t const all_of_them = all(lanes_);
  std::uint64_t more[kTileKeys];
  auto const restrict_to_more = [&] {
    for (int r = 0; r < tile.count; r++) words[r] &= more[r];
  };
  if (choice_.pass)
    choice_.pass->words(lanes_, tile, choice_.keys, words);
  else
    std::fill_n(words, tile.count, all_of_them);
  if (!full) {
    reach.words(tile, more);
    restrict_to_more();
  }
  if (on_grid) {
    auto const range_of = [this](int lane, int axis, std::ptrdiff_t at) {
      std::ptrdiff_t const furthest = choice_.grid_reach[lane];
      return GridRange{std::max<std::ptrdiff_t>(0, at - furthest),
                       std::min(choice_.grid->shape[axis], at + furthest + 1), 1};
    };
    lanes_.remember(this, [&] { return GridBoxes(*choice_.grid, lanes_, range_of); }).words(tile, more);
    restrict_to_more();
  }
  for (int r = 0; r < tile.count && choice_.removed; r++)
    if (choice_.removed[key_index(tile, r)]) words[r] = 0;
  std::uint64_t any = 0, common = all_of_them;
  for (int r = 0; r < tile.count; r++) any |= words[r], common &= words[r];
  if (common != all_of_them) tile.words = words;
  return any != 0;
}

bool TileList::meets(const Interval& keys, bool free) const {
  if (free) {
    auto const key = std::lower_bound(choice_.free_keys->begin(), choice_.free_keys->end(), keys.first);
    return key != choice_.free_keys->end() && *key < keys.last;
  }
  auto const touches = [&](const auto& run) { return keys.first < run.last && keys.last > run.first; };
  if (!choice_.pass) return touches(Interval{near_.first(), near_.last()});
  return std::any_of(runs_.begin(), runs_.end(), touches);
}

std::optional<Tile> TileList::gathered(const std::int64_t* indices, int count, bool free, std::uint64_t* words) const {
  Tile tile{0, 1, indices, nullptr, count, false};
  if (!meets(key_interval(tile), free) || !see(tile, free, words)) return std::nullopt;
  for (int r = 0; r < count && free_keys(); r++)
    if (std::binary_search(choice_.free_keys->begin(), choice_.free_keys->end(), indices[r]) != free) words[r] = 0;
  if (free_keys()) tile.words = words;
  return tile;
}

}  // namespace headspan
