// SPDX-License-Identifier: BSD-3-Clause
#include "patterns/lane_set.h"

#include <doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "random_cases.h"

namespace headspan {

namespace {

// Whether `classes` are the classes of the lanes by class_of(index), in ascending order, with every lane in its class.
template <class ClassOf>
bool are_classes_of(const LaneClasses& classes, const Lanes& lanes, ClassOf class_of) {
  std::uint64_t seen = 0;
  for (int i = 0; i < classes.count(); i++) {
    if (i > 0 && classes.at(i - 1) >= classes.at(i)) return false;
    if (classes.mask(i) == 0 || (classes.mask(i) & seen)) return false;
    if (classes.mask_of(classes.at(i)) != classes.mask(i)) return false;
    seen |= classes.mask(i);
    for (int lane = 0; lane < lanes.count; lane++)
      if ((classes.mask(i) >> lane & 1) && class_of(lanes.index[lane]) != classes.at(i)) return false;
    if (classes.mask_of(classes.at(i) + 1) && (i + 1 == classes.count() || classes.at(i + 1) != classes.at(i) + 1))
      return false;
  }
  return seen == lanes.all();
}

}  // namespace

TEST_CASE("divisions round down on both sides of zero") {
  for (std::ptrdiff_t a = -20; a <= 20; a++)
    for (std::ptrdiff_t b = 1; b <= 7; b++) {
      double const quotient = std::floor(static_cast<double>(a) / static_cast<double>(b));
      CHECK(floor_div(a, b) == static_cast<std::ptrdiff_t>(quotient));
      CHECK(floor_mod(a, b) == a - b * static_cast<std::ptrdiff_t>(quotient));
    }
}

TEST_CASE("lanes know their range and whether they follow each other") {
  for (int seed = 0; seed < 300; seed++) {
    CAPTURE(seed);
    Random random(seed);
    auto const index = some_lanes(random, -30, 100);
    Lanes const lanes(index.data(), static_cast<int>(index.size()));
    bool in_line = true;
    for (std::size_t i = 1; i < index.size(); i++) in_line = in_line && index[i] == index[i - 1] + 1;
    CHECK(lanes.in_line() == in_line);
    CHECK(lanes.range().least == *std::min_element(index.begin(), index.end()));
    CHECK(lanes.range().most == *std::max_element(index.begin(), index.end()));
    CHECK(__builtin_popcountll(lanes.all()) == lanes.count);
  }
}

TEST_CASE("every lane is in the class of its residue and of its block, also before the first key") {
  for (int seed = 0; seed < 500; seed++) {
    CAPTURE(seed);
    Random random(seed);
    auto const index = some_lanes(random, -50, 200);
    Lanes const lanes(index.data(), static_cast<int>(index.size()));
    std::ptrdiff_t const n = random.between(1, random.one_in(2) ? 8 : 100);
    CHECK(are_classes_of(residues(lanes, n), lanes, [=](std::ptrdiff_t p) { return floor_mod(p, n); }));
    CHECK(are_classes_of(block_rows(lanes, n), lanes, [=](std::ptrdiff_t p) { return floor_div(p, n); }));
  }
}

}  // namespace headspan
