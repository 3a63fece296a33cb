// SPDX-License-Identifier: BSD-3-Clause
#include "group_key_range.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "base/tile.h"
#include "patterns/band_masks.h"
#include "visibility.h"

namespace headspan {

GroupKeyRange::GroupKeyRange(const Visibility& visibility, const std::ptrdiff_t* query, int lanes, const double* spans)
    : lanes_(lanes),
      is_band_(!visibility.query_position &&
               (!visibility.causal || visibility.prefix_end <= visibility.index(query[0]) + 1)) {
  bool unlimited = !visibility.causal && visibility.include_self && !visibility.range_first;
  for (int lane = 0; lane < lanes; lane++) {
    is_band_ &= query[lane] == query[0] + lane && spans[lane] == spans[0];
    if (visibility.range_first)
      is_band_ &= visibility.first_of(query[lane]) == visibility.first_of(query[0]) &&
                  visibility.last_of(query[lane]) == visibility.last_of(query[0]);
    unlimited &= std::isinf(spans[lane]);
  }
  if (unlimited) {
    add_all(visibility);
    return;
  }
  SpanReach e = span_reach(visibility, spans[0]);
  if (is_band_) {
    add_band(visibility, query[0], e);
    return;
  }
  for (int lane = 0; lane < lanes; lane++) {
    if (lane > 0 && !(spans[lane] == spans[lane - 1])) e = span_reach(visibility, spans[lane]);
    add_lane(visibility, lane, query[lane], e);
  }
}

void GroupKeyRange::add_all(const Visibility& visibility) {
  is_band_ = true;
  index_ = 0;
  ahead_ = reach_ = PTRDIFF_MAX / 4;  // farther than any key, and no sum with it overflows
  first_ = full_first_ = visibility.key_start;
  last_ = full_last_ = std::min(visibility.keys, visibility.key_stop);
}

void GroupKeyRange::add_band(const Visibility& visibility, std::ptrdiff_t query, const SpanReach& reach) {
  KeyRange const low = key_range(visibility, query, reach), high = key_range(visibility, query + lanes_ - 1, reach);
  index_ = visibility.index(query);
  ahead_ = visibility.causal ? (visibility.include_self ? 0 : -1) : reach.furthest;
  reach_ = reach.furthest;
  first_ = low.first, last_ = high.last;
  full_first_ = high.first, full_last_ = low.last;
  soft_before_ = index_ + lanes_ - reach.ramp_start;
  soft_from_ = index_ + reach.ramp_start;
  if (!visibility.include_self) self_first_ = index_, self_last_ = index_ + lanes_;
}

void GroupKeyRange::add_lane(const Visibility& visibility, int lane, std::ptrdiff_t query, const SpanReach& reach) {
  KeyRange const range = range_[lane] = key_range(visibility, query, reach);
  bool const empty = range.empty();
  full_first_ = std::max(full_first_, empty ? PTRDIFF_MAX : range.first);
  full_last_ = std::min(full_last_, empty ? 0 : range.last);
  if (empty) return;
  first_ = std::min(first_, range.first);
  last_ = std::max(last_, range.last);
  std::ptrdiff_t before = visibility.index(query) - reach.ramp_start + 1,
                 from = visibility.index(query) + reach.ramp_start;
  if (visibility.query_position) {
    double const p = visibility.query_position[query];
    before = visibility.first_key(query, [&](double k) { return p - k < reach.span; });
    from = visibility.first_key(query, [&](double k) { return k - p >= reach.span; });
    if (before == visibility.first_of(query)) before = 0;  // none; those outside the range do not belong to it
    if (from == visibility.last_of(query)) from = PTRDIFF_MAX;
  }
  soft_before_ = std::max(soft_before_, before);
  soft_from_ = std::min(soft_from_, from);
  if (range.self_first >= range.self_last) return;
  self_first_ = std::min(self_first_, range.self_first);
  self_last_ = std::max(self_last_, range.self_last);
}

void GroupKeyRange::clip(std::ptrdiff_t first, std::ptrdiff_t last) {
  first_ = std::max(first_, first);
  last_ = std::min(last_, last);
  full_first_ = std::max(full_first_, first_);
  full_last_ = std::min(full_last_, last_);
}

void GroupKeyRange::fill(const Tile& tile, std::uint64_t* masks) const {
  if (is_band_)
    fill_band(tile, index_, reach_, ahead_, lanes_, masks);
  else
    fill_ranges(tile, lanes_, masks, [this](int lane) -> const KeyRange& { return range_[lane]; });
  std::ptrdiff_t const first = tile.first, last = key_index(tile, tile.count - 1);
  bool const is_inside = !tile.indices && first >= first_ && last < last_;
  if (is_inside && (last < self_first_ || first >= self_last_)) return;
  for (int r = 0; r < tile.count; r++) {
    std::ptrdiff_t const key = key_index(tile, r);
    if (key < first_ || key >= last_) masks[r] = 0;  // clipped
    if (key < self_first_ || key >= self_last_) continue;
    if (is_band_)
      masks[r] &= ~(std::uint64_t(1) << (key - index_));
    else
      for (int lane = 0; lane < lanes_; lane++)
        if (key >= range_[lane].self_first && key < range_[lane].self_last) masks[r] &= ~(std::uint64_t(1) << lane);
  }
}

}  // namespace headspan
