// SPDX-License-Identifier: BSD-3-Clause
// Random numbers, groups of queries and tiles of keys.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "base/tile.h"

namespace headspan {

// A case by its number. It is the same with every standard library, whose distributions differ.
class Random {
 public:
  explicit Random(int seed) : engine_(static_cast<std::uint64_t>(seed)) {}

  std::ptrdiff_t between(std::ptrdiff_t least, std::ptrdiff_t most) {
    return least + static_cast<std::ptrdiff_t>(engine_() % static_cast<std::uint64_t>(most - least + 1));
  }
  bool one_in(int n) { return engine_() % static_cast<std::uint64_t>(n) == 0; }
  double number(double least, double most) {
    return least + (most - least) * static_cast<double>(engine_() >> 11) / 9007199254740992.0;
  }
  template <class T>
  T one_of(std::initializer_list<T> choices) {
    return choices.begin()[between(0, static_cast<std::ptrdiff_t>(choices.size()) - 1)];
  }
  template <class T>
  void shuffle(std::vector<T>& values) {
    for (std::size_t n = values.size(); n > 1; n--)
      std::swap(values[n - 1], values[static_cast<std::size_t>(between(0, static_cast<std::ptrdiff_t>(n) - 1))]);
  }

 private:
  std::mt19937_64 engine_;
};

// `count` distinct numbers of first .. last - 1: neighbours, every n-th, or any, ascending or not.
template <class T>
std::vector<T> some_of(Random& random, std::ptrdiff_t first, std::ptrdiff_t last, std::ptrdiff_t count) {
  std::vector<T> chosen(static_cast<std::size_t>(last - first));
  std::iota(chosen.begin(), chosen.end(), static_cast<T>(first));
  if (random.one_in(2)) {
    std::ptrdiff_t const step = random.one_in(2)
                                    ? 1
                                    : random.between(1, std::max<std::ptrdiff_t>(1, (last - first) / count)),
                         start = random.between(0, last - first - 1 - (count - 1) * step);
    for (std::ptrdiff_t i = 0; i < count; i++)
      chosen[static_cast<std::size_t>(i)] = static_cast<T>(first + start + i * step);
    chosen.resize(static_cast<std::size_t>(count));
    return chosen;
  }
  random.shuffle(chosen);
  chosen.resize(static_cast<std::size_t>(count));
  if (random.one_in(2)) std::sort(chosen.begin(), chosen.end());
  return chosen;
}

// The indices of a group of queries among the keys.
inline std::vector<std::ptrdiff_t> some_lanes(Random& random, std::ptrdiff_t first, std::ptrdiff_t last) {
  return some_of<std::ptrdiff_t>(random, first, last,
                                 random.between(1, std::min<std::ptrdiff_t>(kLanes, last - first)));
}

// A random tile of some of the keys, with the arrays that it points to.
class SomeTile {
 public:
  SomeTile(Random& random, std::ptrdiff_t keys) {
    std::ptrdiff_t const count = random.between(1, std::min<std::ptrdiff_t>(kTileKeys, keys));
    indices_ = some_of<std::int64_t>(random, 0, keys, count);
    tile_ = {0, 1, indices_.data(), nullptr, static_cast<int>(count), false};
    std::int64_t const step = count > 1 ? indices_[1] - indices_[0] : 1;
    bool regular = step > 0;
    for (std::size_t i = 1; i < indices_.size(); i++) regular = regular && indices_[i] - indices_[i - 1] == step;
    if (regular && !random.one_in(4)) tile_ = {indices_[0], step, nullptr, nullptr, static_cast<int>(count), false};
  }
  SomeTile(const SomeTile&) = delete;

  operator const Tile&() const { return tile_; }
  const Tile* operator->() const { return &tile_; }

 private:
  std::vector<std::int64_t> indices_;
  Tile tile_;
};

// Whether masks[r] has exactly the lanes for which sees(lane, key) is true.
template <class Sees>
bool are_masks_of(const std::uint64_t* masks, const Tile& tile, int lanes, Sees sees) {
  for (int r = 0; r < tile.count; r++) {
    std::uint64_t expected = 0;
    for (int lane = 0; lane < lanes; lane++)
      if (sees(lane, key_index(tile, r))) expected |= std::uint64_t(1) << lane;
    if (masks[r] != expected) return false;
  }
  return true;
}

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

inline double some_span(Random& random, std::ptrdiff_t keys) {
  double const furthest = static_cast<double>(keys);
  return random.one_of({0.0, 0.5, static_cast<double>(random.between(1, 20)), random.number(0, 20),
                        random.number(0, furthest), 2 * furthest, kUnlimited});
}

}  // namespace headspan
