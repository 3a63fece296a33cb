// SPDX-License-Identifier: BSD-3-Clause
// Random cases of visibility, and its definition.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/span_mask.h"
#include "random_cases.h"
#include "schedule/visibility.h"

namespace headspan {

class SomeVisibility {
 public:
  Visibility visibility;

  SomeVisibility(Random& random, std::ptrdiff_t queries, std::ptrdiff_t keys, bool plain = false)
      : visibility{queries, keys, random.one_in(2), !random.one_in(3), random.one_of({0.0, 1.0, 2.5, 32.0})} {
    if (random.one_in(4)) visibility.key_stop = random.between(0, keys);
    if (!plain && random.one_in(3)) add_positions(random);
    if (random.one_in(4)) visibility.key_start = random.between(0, keys);
    if (random.one_in(4)) visibility.prefix_end = random.between(0, keys);
    if (random.one_in(3)) random.one_in(2) ? add_documents(random) : add_ranges(random);
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
  // Documents one after another; positions may restart in each.
  void add_documents(Random& random) {
    double const again = random.one_in(2) ? 0 : random.number(0, 40);
    std::ptrdiff_t const before = visibility.keys - visibility.queries;
    for (std::ptrdiff_t first = std::min<std::ptrdiff_t>(before, 0), number = 0; first < visibility.keys; number++) {
      std::ptrdiff_t const last = std::min(visibility.keys, first + random.between(1, random.one_in(2) ? 20 : 150));
      for (std::ptrdiff_t index = first; index < last; index++) {
        double const back = again * static_cast<double>(number);
        if (!key_position_.empty() && index >= 0) key_position_[static_cast<std::size_t>(index)] -= back;
        if (index < before) continue;
        range_first_.push_back(std::max<std::ptrdiff_t>(first, 0));
        range_last_.push_back(std::max<std::ptrdiff_t>(last, 0));
        if (!query_position_.empty()) query_position_[static_cast<std::size_t>(index - before)] -= back;
      }
      first = last;
    }
    set_ranges();
  }
  void add_ranges(Random& random) {
    for (std::ptrdiff_t query = 0; query < visibility.queries; query++) {
      if (query > 0 && random.one_in(2)) {  // like the previous one
        range_first_.push_back(range_first_.back());
        range_last_.push_back(range_last_.back());
        continue;
      }
      range_first_.push_back(random.between(0, visibility.keys));
      range_last_.push_back(random.between(range_first_.back(), visibility.keys));
    }
    set_ranges();
  }
  void set_ranges() {
    visibility.range_first = range_first_.data();
    visibility.range_last = range_last_.data();
  }

  std::vector<double> query_position_, key_position_;
  std::vector<std::int64_t> range_first_, range_last_;
};

inline double distance(const Visibility& v, std::ptrdiff_t query, std::ptrdiff_t key) {
  return std::fabs(v.position(query) - (v.key_position ? v.key_position[key] : static_cast<double>(key)));
}

// Whether a pair exists, apart from spans and patterns.
inline bool exists(const Visibility& v, std::ptrdiff_t query, std::ptrdiff_t key) {
  double const p = v.position(query), k = v.key_position ? v.key_position[key] : static_cast<double>(key);
  if (key < v.key_start || key >= v.key_stop) return false;
  if (v.causal && k > p && key >= v.prefix_end) return false;
  if (!v.include_self && k == p) return false;
  return !v.range_first || (key >= v.range_first[query] && key < v.range_last[query]);
}

inline bool may_see(const Visibility& v, std::ptrdiff_t query, std::ptrdiff_t key, double span) {
  return exists(v, query, key) && in_reach(distance(v, query, key), span, v.ramp);
}

}  // namespace headspan
