// SPDX-License-Identifier: BSD-3-Clause
// Random patterns, and their definition pair by pair.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "patterns/expression.h"
#include "patterns/grid.h"
#include "patterns/primitive.h"
#include "random_cases.h"

namespace headspan {

// A union of conjunctions of primitives, optionally on a grid.
class SomePattern {
 public:
  std::ptrdiff_t keys;
  Grid grid;  // no axes: none
  Pattern::Description description;
  Pattern const pattern;

  explicit SomePattern(Random& random) : pattern((describe(random), description)) {
    pattern.check(keys < 1 ? 0 : 1, keys);
  }
  SomePattern(const SomePattern&) = delete;  // a pattern points to its primitives

  // Whether the query at position p may see key j. p may be negative.
  bool allows(std::ptrdiff_t p, std::ptrdiff_t j) const {
    for (const auto& conjunction : description) {
      bool in_all = true;
      for (const auto& [name, numbers, avoid] : conjunction) in_all = in_all && contains(name, numbers, p, j);
      if (in_all) return true;
    }
    return false;
  }
  bool is_global(std::ptrdiff_t index) const {
    for (const auto& conjunction : description)
      for (const auto& [name, numbers, avoid] : conjunction)
        if (name == "global" && std::count(numbers.begin(), numbers.end(), index)) return true;
    return false;
  }
  // Empty for tokens outside the grid, which are global.
  double grid_distance(std::ptrdiff_t p, std::ptrdiff_t j) const {
    if (!grid.holds(p) || !grid.holds(j)) return 0;
    std::ptrdiff_t from[kGridAxes], to[kGridAxes], furthest = 0;
    grid.coordinates(p, from);
    grid.coordinates(j, to);
    for (int axis = 0; axis < grid.axes; axis++) furthest = std::max(furthest, std::abs(from[axis] - to[axis]));
    return static_cast<double>(furthest);
  }

 private:
  void describe(Random& random) {
    keys = random.between(1, 250);
    if (random.one_in(3)) {
      grid.axes = static_cast<int>(random.between(1, kGridAxes));
      for (int axis = 0; axis < grid.axes; axis++)
        grid.shape[axis] = random.between(1, grid.axes == 1 ? 200 : grid.axes == 2 ? 16 : 6);
      if (random.one_in(3)) grid.first = random.between(0, 3);
      keys = grid.first + grid.tokens() + (random.one_in(3) ? random.between(0, 3) : 0);
    }
    for (std::ptrdiff_t left = random.between(1, 3); left > 0; left--) {
      description.emplace_back();
      for (std::ptrdiff_t more = random.one_in(3) ? 2 : 1; more > 0; more--)
        description.back().push_back(primitive(random));
    }
    if (!grid.axes) return;
    description[0][0] = neighborhood(random);
    Numbers outside;
    for (std::ptrdiff_t key = 0; key < keys; key++)
      if (!grid.holds(key)) outside.push_back(key);
    if (!outside.empty()) description.push_back({{"global", outside, nullptr}});
  }

  Numbers some_keys(Random& random, std::ptrdiff_t most) const {
    Numbers tokens = some_of<std::int64_t>(random, 0, keys, random.between(1, std::min(keys, most)));
    std::sort(tokens.begin(), tokens.end());
    return tokens;
  }
  using Term = Pattern::Description::value_type::value_type;
  Term primitive(Random& random) const {
    std::ptrdiff_t const size = random.between(1, random.one_in(2) ? 8 : 90);
    switch (random.between(0, grid.axes ? 8 : 7)) {
      case 0: {  // as many gaps before as after
        std::ptrdiff_t const dilation = random.one_in(2) ? 1 : random.between(2, 9);
        return {"window", {random.between(0, 40) * dilation, random.between(0, 40) * dilation, dilation}, nullptr};
      }
      case 1:
        return {"strided", {size, random.one_in(2) ? -1 : random.between(0, size - 1)}, nullptr};
      case 2:
        return {"global", some_keys(random, random.one_in(4) ? 100 : 5), nullptr};
      case 3:
        return {"blockwise", {size, random.between(0, 3), random.between(0, 3)}, nullptr};
      case 4:
        return {"fixed", {size, random.between(1, size)}, nullptr};
      case 5:
        return {"full", {}, nullptr};
      case 6:
        return blocks(random, size);
      case 7:
        return mask(random);
      default:
        return neighborhood(random);
    }
  }
  Term blocks(Random& random, std::ptrdiff_t size) const {
    std::ptrdiff_t const of_keys = random.one_in(2) ? size : random.between(1, 90);
    std::ptrdiff_t const columns = (keys + of_keys - 1) / of_keys, rows = random.between(0, (keys + size - 1) / size),
                         first = random.one_in(2) ? 0 : random.between(0, (keys + size - 1) / size - rows);
    Numbers numbers{size, of_keys, first, rows, 0}, of_rows;
    for (std::ptrdiff_t row = 0; row < rows; row++) {
      for (std::ptrdiff_t column = 0; column < columns; column++)
        if (random.one_in(3)) of_rows.push_back(column);
      numbers.push_back(static_cast<std::int64_t>(of_rows.size()));
    }
    numbers.insert(numbers.end(), of_rows.begin(), of_rows.end());
    return {"blocks", numbers, nullptr};
  }
  // Some tiles have no pair, some all of them.
  Term mask(Random& random) const {
    std::ptrdiff_t const columns = (keys + 63) / 64, rows = random.between(0, columns),
                         first = random.between(-2, columns - rows);
    Numbers numbers{first, rows, 0}, of_tiles, places;
    std::int64_t partial = 0;
    for (std::ptrdiff_t row = 0; row < rows; row++) {
      for (std::ptrdiff_t column = 0; column < columns; column++)
        if (random.one_in(2)) of_tiles.push_back(column), places.push_back(random.one_in(3) ? -1 : partial++);
      numbers.push_back(static_cast<std::int64_t>(of_tiles.size()));
    }
    numbers.insert(numbers.end(), of_tiles.begin(), of_tiles.end());
    numbers.insert(numbers.end(), places.begin(), places.end());
    for (std::int64_t key = 0; key < 64 * partial; key++) {
      std::uint64_t queries = 0;
      for (int bit = 0; bit < 64 && !random.one_in(3); bit++)
        queries |= static_cast<std::uint64_t>(random.one_in(2)) << bit;
      numbers.push_back(static_cast<std::int64_t>(queries));
    }
    return {"mask", numbers, nullptr};
  }
  Term neighborhood(Random& random) const {
    Numbers numbers{grid.axes, grid.first}, dilations, strides;
    numbers.insert(numbers.end(), grid.shape, grid.shape + grid.axes);
    for (int axis = 0; axis < grid.axes; axis++) {
      dilations.push_back(random.between(1, std::min<std::ptrdiff_t>(3, grid.shape[axis])));
      numbers.push_back(random.between(1, std::min<std::ptrdiff_t>(9, grid.shape[axis] / dilations.back())));
      strides.push_back(random.one_in(2) ? 1 : random.between(1, numbers.back()));
    }
    numbers.insert(numbers.end(), dilations.begin(), dilations.end());
    for (int axis = 0; axis < grid.axes; axis++) numbers.push_back(random.one_in(3));
    numbers.insert(numbers.end(), strides.begin(), strides.end());
    return {"neighborhood", numbers, nullptr};
  }

  static std::ptrdiff_t down(std::ptrdiff_t a, std::ptrdiff_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

  bool contains(const std::string& name, const Numbers& n, std::ptrdiff_t p, std::ptrdiff_t j) const {
    if (name == "full") return true;
    if (name == "window") return j >= p - n[0] && j <= p + n[1] && (p - j) % n[2] == 0;
    if (name == "strided") return n[1] < 0 ? (p - j) % n[0] == 0 : j % n[0] == n[1];
    if (name == "global") return std::count(n.begin(), n.end(), p) || std::count(n.begin(), n.end(), j);
    if (name == "fixed") return j % n[0] >= n[0] - n[1];
    if (name == "blockwise") {
      std::ptrdiff_t const row = down(p, n[0]), column = j / n[0];
      return column >= row - n[1] && column <= row + n[2];
    }
    if (name == "blocks") {
      std::ptrdiff_t const row = down(p, n[0]) - n[2];
      if (row < 0 || row >= n[3]) return false;
      auto const starts = n.begin() + 4 + row, columns = n.begin() + 5 + n[3];
      return std::count(columns + starts[0], columns + starts[1], j / n[1]) > 0;
    }
    if (name == "mask") return in_mask(n, p, j);
    return in_neighborhood(n, p, j);
  }
  static bool in_mask(const Numbers& n, std::ptrdiff_t p, std::ptrdiff_t j) {
    std::ptrdiff_t const row = down(p, 64) - n[0];
    if (row < 0 || row >= n[1]) return false;
    auto const starts = n.begin() + 2, columns = starts + n[1] + 1, places = columns + starts[n[1]],
               words = places + starts[n[1]];
    auto const tile = std::find(columns + starts[row], columns + starts[row + 1], j / 64);
    if (tile == columns + starts[row + 1]) return false;
    std::int64_t const place = places[tile - columns];
    return place < 0 || (static_cast<std::uint64_t>(words[64 * place + j % 64]) >> (p - 64 * down(p, 64)) & 1);
  }
  // The coordinates of one class on every axis, renumbered: the window around the leading query, moved inside the grid,
  // or its part up to the query.
  bool in_neighborhood(const Numbers& n, std::ptrdiff_t p, std::ptrdiff_t j) const {
    if (!grid.holds(p) || !grid.holds(j)) return false;
    std::ptrdiff_t from[kGridAxes], to[kGridAxes];
    grid.coordinates(p, from);
    grid.coordinates(j, to);
    for (int axis = 0; axis < grid.axes; axis++) {
      auto const number = [&](int which) { return n[static_cast<std::size_t>(2 + which * grid.axes + axis)]; };
      std::ptrdiff_t const window = number(1), step = number(2), place = from[axis] / step, stride = number(4);
      std::vector<std::ptrdiff_t> of_class;
      for (std::ptrdiff_t c = from[axis] % step; c < grid.shape[axis]; c += step) of_class.push_back(c);
      std::ptrdiff_t const count = static_cast<std::ptrdiff_t>(of_class.size()), team = place - place % stride;
      std::ptrdiff_t const middle = std::min(team + stride / 2, count - 1), last = std::min(team + stride, count) - 1;
      std::ptrdiff_t start = std::min(std::max<std::ptrdiff_t>(middle - window / 2, 0), count - window);
      std::ptrdiff_t end = start + window;
      if (number(3)) start = std::max<std::ptrdiff_t>(last - window + 1, 0), end = place + 1;
      if (!std::count(of_class.begin() + start, of_class.begin() + end, to[axis])) return false;
    }
    return true;
  }
};

}  // namespace headspan
