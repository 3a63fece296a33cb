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
  KeyRange range;
  range.first = std::max<std::ptrdiff_t>(0, p - extent.reach);
  range.last = std::min(band.keys, p + band.ahead(extent) + 1);
  range.self = band.include_self ? -1 : p;
  return range;
}

template <class T>
GroupKeys::GroupKeys(const Band& band, const std::ptrdiff_t* query, int lanes, const T* spans)
    : lanes_(lanes), is_band_(true) {
  for (int lane = 1; lane < lanes; lane++) is_band_ &= query[lane] == query[0] + lane && spans[lane] == spans[0];
  Extent e = extent(band, static_cast<double>(spans[0]));
  if (is_band_) {
    add_band(band, query[0], e);
    return;
  }
  full_first_ = 0, full_last_ = PTRDIFF_MAX;
  for (int lane = 0; lane < lanes; lane++) {
    if (lane > 0 && !(spans[lane] == spans[lane - 1])) e = extent(band, static_cast<double>(spans[lane]));
    add_lane(band, lane, query[lane], e);
  }
}

void GroupKeys::add_band(const Band& band, std::ptrdiff_t query, const Extent& extent) {
  KeyRange const low = key_range(band, query, extent), high = key_range(band, query + lanes_ - 1, extent);
  position_ = band.position(query);
  ahead_ = band.ahead(extent);
  reach_ = extent.reach;
  first_ = low.first, last_ = high.last;
  full_first_ = high.first, full_last_ = low.last;
  soft_before_ = position_ + lanes_ - extent.ramp_start;
  soft_from_ = position_ + extent.ramp_start;
  without_self_ = !band.include_self;
  if (without_self_) self_first_ = position_, self_last_ = position_ + lanes_ - 1;
}

void GroupKeys::add_lane(const Band& band, int lane, std::ptrdiff_t query, const Extent& extent) {
  KeyRange const range = range_[lane] = key_range(band, query, extent);
  std::ptrdiff_t const p = band.position(query);
  bool const empty = range.empty();
  full_first_ = std::max(full_first_, empty ? PTRDIFF_MAX : range.first);
  full_last_ = std::min(full_last_, empty ? 0 : range.last);
  if (empty) return;
  first_ = std::min(first_, range.first);
  last_ = std::max(last_, range.last);
  soft_before_ = std::max(soft_before_, p - extent.ramp_start + 1);
  soft_from_ = std::min(soft_from_, p + extent.ramp_start);
  if (range.self < 0) return;
  self_first_ = std::min(self_first_, range.self);
  self_last_ = std::max(self_last_, range.self);
}

// The lanes of a band that see a key: position_ + lane - reach_ <= key <= position_ + lane + ahead_.
std::uint64_t GroupKeys::band_word(std::ptrdiff_t key) const {
  std::ptrdiff_t const lane = key - position_;  // that stands at the key
  std::ptrdiff_t const first = std::max<std::ptrdiff_t>(0, lane - ahead_),
                       last = std::min<std::ptrdiff_t>(lanes_ - 1, lane + reach_);
  if (first > last) return 0;
  std::uint64_t const word = (~std::uint64_t(0) >> (kLanes - 1 - (last - first))) << first;
  return without_self_ && lane >= first && lane <= last ? word & ~(std::uint64_t(1) << lane) : word;
}

template GroupKeys::GroupKeys(const Band&, const std::ptrdiff_t*, int, const float*);
template GroupKeys::GroupKeys(const Band&, const std::ptrdiff_t*, int, const double*);

void GroupKeys::clip(std::ptrdiff_t first, std::ptrdiff_t last) {
  first_ = std::max(first_, first);
  last_ = std::min(last_, last);
  full_first_ = std::max(full_first_, first_);
  full_last_ = std::min(full_last_, last_);
}

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

// Of lanes that each have a range of their own, a lane's bit is toggled where its range starts and where it ends;
// running over the keys then gives every word.
void TileList::add_words(Tile& tile, std::uint64_t* words) const {
  tile.words = words;
  if (keys_.is_band_) {
    for (int r = 0; r < tile.count; r++) words[r] = keys_.band_word(tile.first + r);
    return;
  }
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
}

std::uint64_t GroupKeys::word(std::ptrdiff_t key) const {
  if (is_band_) return band_word(key);
  std::uint64_t lanes = 0;
  for (int lane = 0; lane < lanes_; lane++)
    if (range_[lane].contains(key)) lanes |= std::uint64_t(1) << lane;
  return lanes;
}

Tile GroupKeys::gathered(const std::int64_t* indices, int count, std::uint64_t* words) const {
  for (int r = 0; r < count; r++) words[r] = word(indices[r]);
  return {0, indices, words, count, true};
}

}  // namespace headspan
