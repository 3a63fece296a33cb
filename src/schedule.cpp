// SPDX-License-Identifier: BSD-3-Clause
#include "schedule.h"

#include <algorithm>

#include "soft_mask.h"

namespace headspan {

Extent extent(const Band& band, double span) {
  std::ptrdiff_t const limit = band.queries + band.keys;  // no distance is larger
  return {reach(span, band.ramp, limit), ramp_start(span, limit)};
}

KeyRange key_range(const Band& band, std::ptrdiff_t query, const Extent& extent) {
  std::ptrdiff_t const p = band.position(query);
  std::ptrdiff_t const ahead = band.causal ? (band.include_self ? 0 : -1) : extent.reach;
  KeyRange range;
  range.first = std::max<std::ptrdiff_t>(0, p - extent.reach);
  range.last = std::min(band.keys, p + ahead + 1);
  range.self = band.include_self ? -1 : p;
  return range;
}

template <class T>
GroupKeys::GroupKeys(const Band& band, const std::ptrdiff_t* query, int lanes, const T* spans) : lanes_(lanes) {
  std::ptrdiff_t first = PTRDIFF_MAX, last = 0, full_first = 0, full_last = PTRDIFF_MAX;
  std::ptrdiff_t soft_before = 0, soft_from = PTRDIFF_MAX;
  Extent e{};
  for (int lane = 0; lane < lanes; lane++) {
    if (lane == 0 || !(spans[lane] == spans[lane - 1])) e = extent(band, static_cast<double>(spans[lane]));
    KeyRange const range = range_[lane] = key_range(band, query[lane], e);
    std::ptrdiff_t const p = band.position(query[lane]);
    bool const empty = range.empty();
    full_first = std::max(full_first, empty ? PTRDIFF_MAX : range.first);
    full_last = std::min(full_last, empty ? 0 : range.last);
    if (empty) continue;
    first = std::min(first, range.first);
    last = std::max(last, range.last);
    soft_before = std::max(soft_before, p - e.ramp_start + 1);
    soft_from = std::min(soft_from, p + e.ramp_start);
    if (range.self < 0) continue;
    self_first_ = std::min(self_first_, range.self);
    self_last_ = std::max(self_last_, range.self);
  }
  first_ = first, last_ = last;
  full_first_ = full_first, full_last_ = full_last;
  soft_before_ = soft_before, soft_from_ = soft_from;
}

template GroupKeys::GroupKeys(const Band&, const std::ptrdiff_t*, int, const float*);
template GroupKeys::GroupKeys(const Band&, const std::ptrdiff_t*, int, const double*);

// The tiles are cut so that those inside the band need no words: first the keys that only some lanes see yet, to whole
// key groups, then whole tiles, then the rest.
TileList::TileList(const GroupKeys& keys) : keys_(keys), at_(keys.first_) {
  std::ptrdiff_t const lead =
      keys.full_first_ == PTRDIFF_MAX ? 0 : (keys.full_first_ - at_ + kKeyGroup - 1) / kKeyGroup * kKeyGroup;
  full_first_ = at_ + lead;
  full_last_ = full_first_;
  if (keys.full_first_ != PTRDIFF_MAX && keys.full_last_ > full_first_)
    full_last_ += (keys.full_last_ - full_first_) / kTileKeys * kTileKeys;
}

int TileList::next(TileBatch& batch) {
  int count = 0;
  for (; count < kBatchTiles && at_ < keys_.last_; count++) {
    std::ptrdiff_t const cut = at_ < full_first_ && full_last_ > full_first_ ? full_first_ : keys_.last_;
    Tile& tile = batch.tiles[count];
    tile = {at_, nullptr, nullptr, static_cast<int>(std::min<std::ptrdiff_t>(kTileKeys, cut - at_)), false};
    std::ptrdiff_t const end = at_ + tile.count;
    tile.soft = at_ < keys_.soft_before_ || end > keys_.soft_from_;
    bool const full =
        at_ >= keys_.full_first_ && end <= keys_.full_last_ && (end <= keys_.self_first_ || at_ > keys_.self_last_);
    if (!full) add_words(tile, batch.words[count]);
    at_ = end;
  }
  return count;
}

// A lane's bit is toggled where its range starts and where it ends; running over the keys then gives every word.
void TileList::add_words(Tile& tile, std::uint64_t* words) const {
  std::uint64_t toggle[kTileKeys + 1] = {};
  std::uint64_t left_out[kTileKeys] = {};
  for (int lane = 0; lane < keys_.lanes_; lane++) {
    KeyRange const& range = keys_.range_[lane];
    std::ptrdiff_t const first = std::max(range.first, tile.first) - tile.first,
                         last = std::min(range.last, tile.first + tile.count) - tile.first;
    if (first >= last) continue;
    std::uint64_t const bit = std::uint64_t(1) << lane;
    toggle[first] ^= bit;
    toggle[last] ^= bit;
    if (range.self >= tile.first && range.self < tile.first + tile.count) left_out[range.self - tile.first] |= bit;
  }
  std::uint64_t word = 0;
  for (int r = 0; r < tile.count; r++) {
    word ^= toggle[r];
    words[r] = word & ~left_out[r];
  }
  tile.words = words;
}

Tile GroupKeys::gathered(const std::int64_t* indices, int count, std::uint64_t* words) const {
  for (int r = 0; r < count; r++) {
    words[r] = 0;
    for (int lane = 0; lane < lanes_; lane++)
      if (range_[lane].contains(indices[r])) words[r] |= std::uint64_t(1) << lane;
  }
  return {0, indices, words, count, true};
}

}  // namespace headspan
