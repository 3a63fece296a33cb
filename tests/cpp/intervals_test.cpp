// SPDX-License-Identifier: BSD-3-Clause
#include "patterns/intervals.h"

#include <doctest.h>
#include <stdint.h>

#include <algorithm>
#include <cstddef>
#include <set>

#include "base/tile.h"
#include "random_cases.h"

namespace headspan {

namespace {

using Keys = std::set<std::ptrdiff_t>;

Intervals some_intervals(Random& random, std::ptrdiff_t keys) {
  Intervals all;
  std::ptrdiff_t at = random.between(-5, 10);
  for (std::ptrdiff_t left = random.between(0, 8); left > 0; left--) {
    append(all, at, at + random.between(0, 12), keys);
    at += random.between(0, 15);
  }
  return all;
}

Keys keys_of(const Intervals& all) {
  Keys keys;
  for (Interval const& interval : all)
    for (std::ptrdiff_t key = interval.first; key < interval.last; key++) keys.insert(key);
  return keys;
}

bool ascend_apart(const Intervals& all) {
  for (std::size_t i = 0; i < all.size(); i++)
    if (all[i].first >= all[i].last || (i > 0 && all[i - 1].last >= all[i].first)) return false;
  return true;
}

}  // namespace

TEST_CASE("append joins what touches and leaves out what is no key") {
  Intervals all;
  for (Interval const& more : Intervals{{-4, -1}, {-2, 3}, {3, 5}, {4, 4}, {7, 9}, {8, 20}, {30, 40}})
    append(all, more.first, more.last, 12);
  REQUIRE(all.size() == 2);
  CHECK(keys_of(all) == Keys{0, 1, 2, 3, 4, 7, 8, 9, 10, 11});
}

TEST_CASE("unions and intersections of intervals are those of their keys") {
  for (int seed = 0; seed < 500; seed++) {
    CAPTURE(seed);
    Random random(seed);
    Intervals const a = some_intervals(random, 60), b = some_intervals(random, 60);
    Keys const in_b = keys_of(b);
    Keys either = in_b, both;
    for (std::ptrdiff_t key : keys_of(a)) {
      either.insert(key);
      if (in_b.count(key)) both.insert(key);
    }
    Intervals out{{1000, 1001}};  // previous contents are removed
    unite(a, b, out);
    CHECK(ascend_apart(out));
    CHECK(keys_of(out) == either);
    intersect(a, b, out);
    CHECK(ascend_apart(out));
    CHECK(keys_of(out) == both);
  }
}

TEST_CASE("the interval of a tile goes from its least key to past its largest") {
  for (int seed = 0; seed < 200; seed++) {
    CAPTURE(seed);
    Random random(seed);
    SomeTile const tile(random, 200);
    std::ptrdiff_t least = PTRDIFF_MAX, most = -1;
    for (int r = 0; r < tile->count; r++) {
      least = std::min<std::ptrdiff_t>(least, key_index(tile, r));
      most = std::max<std::ptrdiff_t>(most, key_index(tile, r));
    }
    CHECK(key_interval(tile).first == least);
    CHECK(key_interval(tile).last == most + 1);
  }
}

}  // namespace headspan
