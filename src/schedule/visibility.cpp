// SPDX-License-Identifier: BSD-3-Clause
#include "visibility.h"

#include <algorithm>
#include <cstddef>

#include "base/span_mask.h"

namespace headspan {

SpanReach span_reach(const Visibility& visibility, double span) {
  std::ptrdiff_t const limit = visibility.queries + visibility.keys;  // no distance between indices is larger
  return {headspan::reach(span, visibility.ramp, limit), ramp_start(span, limit), span};
}

std::ptrdiff_t KeyRange::count() const {
  if (empty()) return 0;
  return last - first - std::max<std::ptrdiff_t>(0, std::min(last, self_last) - std::max(first, self_first));
}

namespace {

KeyRange range_of_positions(const Visibility& visibility, std::ptrdiff_t query, double span) {
  double const p = visibility.query_position[query];
  KeyRange range{};
  auto const first_key = [&](auto past) { return visibility.first_key(query, past); };
  range.first = first_key([&](double k) { return k >= p || in_reach(p - k, span, visibility.ramp); });
  auto const ahead = [&] {
    return first_key([&](double k) { return k > p && !in_reach(k - p, span, visibility.ramp); });
  };
  range.last = visibility.causal ? first_key([&](double k) { return k > p; }) : ahead();
  if (visibility.prefix_end > range.last) range.last = std::max(range.last, std::min(visibility.prefix_end, ahead()));
  if (!visibility.include_self) {
    range.self_first = first_key([&](double k) { return k >= p; });
    range.self_last = first_key([&](double k) { return k > p; });
  }
  return range;
}

KeyRange range_of_indices(const Visibility& visibility, std::ptrdiff_t query, const SpanReach& reach) {
  std::ptrdiff_t const p = visibility.index(query);
  std::ptrdiff_t const ahead = p + reach.furthest + 1;
  KeyRange range{p - reach.furthest, visibility.causal ? p + 1 : ahead, 0, 0};
  if (visibility.prefix_end > range.last) range.last = std::max(range.last, std::min(visibility.prefix_end, ahead));
  if (!visibility.include_self) range.self_first = p, range.self_last = p + 1;
  return range;
}

}  // namespace

KeyRange key_range(const Visibility& visibility, std::ptrdiff_t query, const SpanReach& reach) {
  KeyRange range = visibility.query_position ? range_of_positions(visibility, query, reach.span)
                                             : range_of_indices(visibility, query, reach);
  range.first = std::max({visibility.key_start, visibility.first_of(query), range.first});
  range.last = std::min({visibility.key_stop, visibility.last_of(query), range.last});
  // The last key that a causal query reaches is its own, and no earlier query sees that key.
  if (visibility.causal && !visibility.include_self && range.self_last == range.last) range.last = range.self_first;
  return range;
}

}  // namespace headspan
