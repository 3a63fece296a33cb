// SPDX-License-Identifier: BSD-3-Clause
// Random cases of who can be reached, and the definition of it.
#pragma once

#include <cmath>

#include "base/span_mask.h"
#include "random_cases.h"
#include "schedule/visibility.h"

namespace headspan {

class SomeVisibility {
 public:
  Visibility visibility;

  SomeVisibility(Random& random, std::ptrdiff_t queries, std::ptrdiff_t keys, bool plain = false)
      : visibility{queries, keys, random.one_in(2), !random.one_in(3), random.one_of({0.0, 1.0, 2.5, 32.0})} {
    if (random.one_in(4)) visibility.key_end = random.between(0, keys);
    if (!plain && random.one_in(3)) add_positions(random);
    if (!plain && queries <= keys && random.one_in(3)) add_documents(random);
  }
  SomeVisibility(const SomeVisibility&) = delete;

 private:
  static std::vector<double> ascending(Random& random, std::ptrdiff_t count) {
    std::vector<double> positions(static_cast<std::size_t>(count));
    double at = random.number(-20, 20);
    for (double& position : positions) position = at += random.one_of({0.0, 0.5, 1.0, 1.0, 4.0});
    return positions;
  }
  void add_positions(Random& random) {
    key_position_ = ascending(random, visibility.keys);
    query_position_ = ascending(random, visibility.queries);
    std::ptrdiff_t const shared = std::min(visibility.queries, visibility.keys);
    if (random.one_in(2)) std::copy_n(key_position_.end() - shared, shared, query_position_.end() - shared);
    std::sort(query_position_.begin(), query_position_.end());
    visibility.query_position = query_position_.data();
    visibility.key_position = key_position_.data();
  }
  void add_documents(Random& random) {
    for (std::int64_t first = 0; first < visibility.keys;) {
      std::int64_t const last =
          std::min<std::int64_t>(visibility.keys, first + random.between(1, random.one_in(2) ? 20 : 150));
      segment_first_.resize(static_cast<std::size_t>(last), first);
      segment_last_.resize(static_cast<std::size_t>(last), last);
      first = last;
    }
    visibility.segment_first = segment_first_.data();
    visibility.segment_last = segment_last_.data();
  }

  std::vector<double> query_position_, key_position_;
  std::vector<std::int64_t> segment_first_, segment_last_;
};

inline double distance(const Visibility& v, std::ptrdiff_t query, std::ptrdiff_t key) {
  return std::fabs(v.position(query) - (v.key_position ? v.key_position[key] : static_cast<double>(key)));
}

// Whether a pair exists apart from spans and patterns.
inline bool exists(const Visibility& v, std::ptrdiff_t query, std::ptrdiff_t key) {
  double const p = v.position(query), k = v.key_position ? v.key_position[key] : static_cast<double>(key);
  if (key >= v.key_end) return false;
  if (v.causal && k > p) return false;
  if (!v.include_self && k == p) return false;
  return !v.segment_first || (key >= v.segment_first[v.index(query)] && key < v.segment_last[v.index(query)]);
}

inline bool may_see(const Visibility& v, std::ptrdiff_t query, std::ptrdiff_t key, double span) {
  return exists(v, query, key) && in_reach(distance(v, query, key), span, v.ramp);
}

}  // namespace headspan
