// SPDX-License-Identifier: BSD-3-Clause
// What a pattern is: it says which keys a group of queries may see, and which of the group's lanes see each. A
// primitive is one file in patterns/; expressions of primitives are made into passes, see pass.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/tile.h"

namespace headspan {

// The queries of a group, each by its index among the keys: query i of N has index i + keys - N, so that the last query
// meets the last key. It may be negative.
class Lanes {
 public:
  const std::ptrdiff_t* const index;
  int const count;

  Lanes(const std::ptrdiff_t* its_index, int its_count) : index(its_index), count(its_count) {
    for (int lane = 1; lane < count; lane++) in_line_ &= index[lane] == index[0] + lane;
  }

  // Whether they follow each other.
  bool in_line() const { return in_line_; }

  // What somebody has worked out for these queries, kept from tile to tile.
  template <class Make>
  const auto& remember(const void* who, Make make) const {
    using What = decltype(make());
    for (const auto& memo : memos_)
      if (memo.first == who) return *static_cast<const What*>(memo.second.get());
    memos_.emplace_back(who, std::make_shared<What>(make()));
    return *static_cast<const What*>(memos_.back().second.get());
  }

 private:
  bool in_line_ = true;
  mutable std::vector<std::pair<const void*, std::shared_ptr<void>>> memos_;
};

// The keys first .. last - 1.
struct Interval {
  std::ptrdiff_t first, last;
};
using Intervals = std::vector<Interval>;  // ascending, apart from each other

constexpr int kGridAxes = 3;
static_assert(kGridAxes <= kAxes, "the kernel knows as many axes");

// Tokens laid out in rows, planes or a volume, the last axis fastest. No axes: a plain sequence.
struct Grid {
  int axes = 0;
  std::ptrdiff_t shape[kGridAxes] = {1, 1, 1};

  std::ptrdiff_t tokens() const { return shape[0] * shape[1] * shape[2]; }
  void coordinates(std::ptrdiff_t index, std::ptrdiff_t* at) const {
    for (int axis = axes - 1; axis >= 0; axis--) {
      at[axis] = index % shape[axis];
      index /= shape[axis];
    }
  }
  bool operator==(const Grid& other) const;
};

// Which queries should share a group, so that they have most of their keys in common.
struct Grouping {
  std::ptrdiff_t stride = 1;                       // indices that are equal modulo this
  std::ptrdiff_t section = 0;                      // and that lie in one section of so many; 0: anywhere
  Grid grid;                                       // and that lie in one block of a grid,
  std::ptrdiff_t dilation[kGridAxes] = {1, 1, 1};  // counting every so manieth coordinate

  static Grouping classes(std::ptrdiff_t stride) {
    Grouping grouping;
    grouping.stride = stride;
    return grouping;
  }
  static Grouping sections(std::ptrdiff_t size) {
    Grouping grouping;
    grouping.section = size;
    return grouping;
  }
};

class Primitive {
 public:
  virtual ~Primitive() = default;
  virtual Grouping grouping() const { return {}; }
  // Fills `out`, which is empty, with intervals that hold every key which some lane may see. Where the grouping has a
  // stride they may also hold keys of other classes.
  virtual void intervals(const Lanes& lanes, std::ptrdiff_t keys, Intervals& out) const = 0;
  // words[r]: the lanes that may see the tile's key r.
  virtual void words(const Lanes& lanes, const Tile& tile, std::ptrdiff_t keys, std::uint64_t* words) const = 0;
  // Whether every token is known to see itself.
  virtual bool sees_itself() const { return false; }
  // Tokens whose pairs no span limits, ascending.
  virtual const std::vector<std::int64_t>& global_tokens() const;
};

// A primitive by its name and the numbers of its Python class, which has checked them.
using Numbers = std::vector<std::int64_t>;
std::unique_ptr<Primitive> make_primitive(const std::string& name, const Numbers& numbers);

// ---- what primitives have in common

inline std::ptrdiff_t floor_div(std::ptrdiff_t a, std::ptrdiff_t b) { return a / b - (a % b < 0); }
inline std::ptrdiff_t floor_mod(std::ptrdiff_t a, std::ptrdiff_t b) { return a % b + (a % b < 0 ? b : 0); }

std::uint64_t all(const Lanes& lanes);
Interval index_range(const Lanes& lanes);  // from the least index to the largest

Interval key_interval(const Tile& tile);  // from the least key to past the largest

// Appends, joining what touches; clipped to 0 .. keys - 1. To be called in ascending order.
void append(Intervals& out, std::ptrdiff_t first, std::ptrdiff_t last, std::ptrdiff_t keys);
void unite(const Intervals& a, const Intervals& b, Intervals& out);
void intersect(const Intervals& a, const Intervals& b, Intervals& out);

// The lanes of each class, for classes that many lanes share: classes ascend.
class LaneClasses {
 public:
  template <class ClassOf>
  LaneClasses(const Lanes& lanes, ClassOf class_of) {
    std::ptrdiff_t next = lanes.count > 0 ? class_of(lanes.index[0]) : 0;
    for (int lane = 0; lane < lanes.count;) {  // neighbours mostly share a class
      std::ptrdiff_t const its_class = next;
      std::uint64_t word = 0;
      do word |= std::uint64_t(1) << lane++;
      while (lane < lanes.count && (next = class_of(lanes.index[lane])) == its_class);
      add(its_class, word);
    }
  }
  int count() const { return count_; }
  std::ptrdiff_t at(int i) const { return class_[i]; }
  std::uint64_t word(int i) const { return word_[i]; }
  std::uint64_t word_of(std::ptrdiff_t wanted) const;

 private:
  void add(std::ptrdiff_t its_class, std::uint64_t word);

  int count_ = 0;
  std::ptrdiff_t class_[kLanes];
  std::uint64_t word_[kLanes];
};

// The lanes by their index modulo a stride, and by the block that they lie in.
LaneClasses residues(const Lanes& lanes, std::ptrdiff_t stride);
LaneClasses block_rows(const Lanes& lanes, std::ptrdiff_t block_size);

// Calls visit(block, first, last) for the keys first .. last - 1 of a tile that lie in one block.
template <class Visit>
void for_each_block(const Tile& tile, std::ptrdiff_t block_size, Visit visit) {
  for (int first = 0, last; first < tile.count; first = last) {
    std::ptrdiff_t const block = key_index(tile, first) / block_size;
    for (last = first + 1; last < tile.count; last++)
      if (key_index(tile, last) < block * block_size || key_index(tile, last) >= (block + 1) * block_size) break;
    visit(block, first, last);
  }
}

// words[r] = all lanes if sees(key), else none.
template <class Sees>
void words_of_keys(const Lanes& lanes, const Tile& tile, std::uint64_t* words, Sees sees) {
  for (int r = 0; r < tile.count; r++)
    words[r] = sees(static_cast<std::ptrdiff_t>(key_index(tile, r))) ? all(lanes) : 0;
}

}  // namespace headspan
