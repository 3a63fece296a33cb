// SPDX-License-Identifier: BSD-3-Clause
#include "visibility.h"

#include <algorithm>
#include <cmath>

#include "base/span_mask.h"
#include "patterns/band_masks.h"

namespace headspan {

Extent extent(const Band& band, double span) {
  std::ptrdiff_t const limit = band.queries + band.keys;  // no distance between indices is larger
  return {reach(span, band.ramp, limit), ramp_start(span, limit), span};
}

std::ptrdiff_t KeyRange::count() const {
  if (empty()) return 0;
  return last - first - std::max<std::ptrdiff_t>(0, std::min(last, self_last) - std::max(first, self_first));
}

namespace {

// The first key for which `past` holds; it does for all that follow.
template <class Past>
std::ptrdiff_t first_key(const Band& band, Past past) {
  return std::partition_point(band.key_position, band.key_position + band.keys, [&](double k) { return !past(k); }) -
         band.key_position;
}

KeyRange range_of_positions(const Band& band, std::ptrdiff_t query, double span) {
  double const p = band.query_position[query];
  KeyRange range{};
  range.first = first_key(band, [&](double k) { return k >= p || in_reach(p - k, span, band.ramp); });
  range.last = band.causal ? first_key(band, [&](double k) { return k > p; })
                           : first_key(band, [&](double k) { return k > p && !in_reach(k - p, span, band.ramp); });
  if (!band.include_self) {
    range.self_first = first_key(band, [&](double k) { return k >= p; });
    range.self_last = first_key(band, [&](double k) { return k > p; });
  }
  return range;
}

KeyRange range_of_indices(const Band& band, std::ptrdiff_t query, const Extent& extent) {
  std::ptrdiff_t const p = band.index(query);
  KeyRange range{p - extent.reach, p + (band.causal ? 0 : extent.reach) + 1, 0, 0};
  if (!band.include_self) range.self_first = p, range.self_last = p + 1;
  return range;
}

}  // namespace

KeyRange key_range(const Band& band, std::ptrdiff_t query, const Extent& extent) {
  KeyRange range =
      band.query_position ? range_of_positions(band, query, extent.span) : range_of_indices(band, query, extent);
  range.first = std::max<std::ptrdiff_t>(0, range.first);
  range.last = std::min(std::min(band.keys, band.key_end), range.last);
  if (band.segment_first) {
    range.first = std::max<std::ptrdiff_t>(range.first, band.segment_first[band.index(query)]);
    range.last = std::min<std::ptrdiff_t>(range.last, band.segment_last[band.index(query)]);
  }
  // The last key that a causal query reaches is its own, and nobody before it sees that one.
  if (band.causal && !band.include_self && range.self_last == range.last) range.last = range.self_first;
  return range;
}

template <class T>
GroupKeys::GroupKeys(const Band& band, const std::ptrdiff_t* query, int lanes, const T* spans)
    : lanes_(lanes), is_band_(!band.query_position) {
  bool unlimited = !band.causal && band.include_self && !band.segment_first;
  for (int lane = 0; lane < lanes; lane++) {
    is_band_ &= query[lane] == query[0] + lane && spans[lane] == spans[0];
    unlimited &= std::isinf(spans[lane]);
  }
  if (unlimited) {
    add_all(band);
    return;
  }
  if (is_band_ && band.segment_first)  // of one document
    is_band_ = band.segment_last[band.index(query[0])] > band.index(query[lanes - 1]);
  Extent e = extent(band, static_cast<double>(spans[0]));
  if (is_band_) {
    add_band(band, query[0], e);
    return;
  }
  for (int lane = 0; lane < lanes; lane++) {
    if (lane > 0 && !(spans[lane] == spans[lane - 1])) e = extent(band, static_cast<double>(spans[lane]));
    add_lane(band, lane, query[lane], e);
  }
}

void GroupKeys::add_all(const Band& band) {
  is_band_ = true;
  index_ = 0;
  ahead_ = reach_ = PTRDIFF_MAX / 4;  // further than any key, and no sum of it overflows
  first_ = full_first_ = 0;
  last_ = full_last_ = std::min(band.keys, band.key_end);
}

void GroupKeys::add_band(const Band& band, std::ptrdiff_t query, const Extent& extent) {
  KeyRange const low = key_range(band, query, extent), high = key_range(band, query + lanes_ - 1, extent);
  index_ = band.index(query);
  ahead_ = band.causal ? (band.include_self ? 0 : -1) : extent.reach;
  reach_ = extent.reach;
  first_ = low.first, last_ = high.last;
  full_first_ = high.first, full_last_ = low.last;
  soft_before_ = index_ + lanes_ - extent.ramp_start;
  soft_from_ = index_ + extent.ramp_start;
  if (!band.include_self) self_first_ = index_, self_last_ = index_ + lanes_;
}

void GroupKeys::add_lane(const Band& band, int lane, std::ptrdiff_t query, const Extent& extent) {
  KeyRange const range = range_[lane] = key_range(band, query, extent);
  bool const empty = range.empty();
  full_first_ = std::max(full_first_, empty ? PTRDIFF_MAX : range.first);
  full_last_ = std::min(full_last_, empty ? 0 : range.last);
  if (empty) return;
  first_ = std::min(first_, range.first);
  last_ = std::max(last_, range.last);
  std::ptrdiff_t before = band.index(query) - extent.ramp_start + 1, from = band.index(query) + extent.ramp_start;
  if (band.query_position) {
    double const p = band.query_position[query];
    before = first_key(band, [&](double k) { return p - k < extent.span; });
    from = first_key(band, [&](double k) { return k - p >= extent.span; });
  }
  soft_before_ = std::max(soft_before_, before);
  soft_from_ = std::min(soft_from_, from);
  if (range.self_first >= range.self_last) return;
  self_first_ = std::min(self_first_, range.self_first);
  self_last_ = std::max(self_last_, range.self_last);
}

template GroupKeys::GroupKeys(const Band&, const std::ptrdiff_t*, int, const float*);
template GroupKeys::GroupKeys(const Band&, const std::ptrdiff_t*, int, const double*);

void GroupKeys::clip(std::ptrdiff_t first, std::ptrdiff_t last) {
  first_ = std::max(first_, first);
  last_ = std::min(last_, last);
  full_first_ = std::max(full_first_, first_);
  full_last_ = std::min(full_last_, last_);
}

void GroupKeys::words(const Tile& tile, std::uint64_t* words) const {
  if (is_band_)
    words_of_band(tile, index_, reach_, ahead_, lanes_, words);
  else
    words_of_ranges(tile, lanes_, words, [this](int lane) -> const KeyRange& { return range_[lane]; });
  std::ptrdiff_t const first = tile.first, last = key_index(tile, tile.count - 1);
  bool const whole = !tile.indices && first >= first_ && last < last_;
  if (whole && (last < self_first_ || first >= self_last_)) return;
  for (int r = 0; r < tile.count; r++) {
    std::ptrdiff_t const key = key_index(tile, r);
    if (key < first_ || key >= last_) words[r] = 0;  // clipped
    if (key < self_first_ || key >= self_last_) continue;
    if (is_band_)
      words[r] &= ~(std::uint64_t(1) << (key - index_));
    else
      for (int lane = 0; lane < lanes_; lane++)
        if (key >= range_[lane].self_first && key < range_[lane].self_last) words[r] &= ~(std::uint64_t(1) << lane);
  }
}

}  // namespace headspan
