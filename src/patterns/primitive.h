// SPDX-License-Identifier: BSD-3-Clause
// A pattern: which keys a group of queries may see, and which lanes of the group see each. Every file in primitives/
// defines one pattern; expressions of primitives are in expression.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/tile.h"
#include "grid.h"
#include "intervals.h"
#include "lane_set.h"

namespace headspan {

// Which queries should share a group, so that they have most of their keys in common. A stride is also a promise: keys
// of other classes are never visited.
struct Grouping {
  std::ptrdiff_t stride = 1;                       // queries whose indices are equal modulo this
  std::ptrdiff_t section = 0;                      // and that are in one section of this many; 0: anywhere
  bool apart = false;                              // whether small sections, too, must not share a group
  Grid grid;                                       // queries that are in one block of a grid,
  std::ptrdiff_t dilation[kGridAxes] = {1, 1, 1};  // counting every n-th coordinate,
  std::ptrdiff_t sharing[kGridAxes] = {1, 1, 1};   // of which this many see the same keys

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

// The keys that one group of queries may see: created per group and queried tile by tile.
class GroupMask {
 public:
  virtual ~GroupMask() = default;
  // Fills `out`, which is empty, with intervals that contain every key that some lane may see. If the grouping has a
  // stride they may also contain keys of other classes.
  virtual void intervals(Intervals& out) const = 0;
  // masks[r]: the lanes that may see key r of the tile.
  virtual void fill(const Tile& tile, std::uint64_t* masks) const = 0;
};

class Primitive {
 public:
  virtual ~Primitive() = default;
  virtual Grouping grouping() const { return {}; }
  // The indices of the lanes must live as long as the result.
  virtual std::unique_ptr<GroupMask> of(const Lanes& lanes, std::ptrdiff_t keys) const = 0;
  // Whether every token is known to see itself: rows of keys that a mask allows may be read then.
  virtual bool sees_itself() const { return false; }
  // Tokens whose pairs no span limits, ascending.
  virtual const std::vector<std::int64_t>& global_tokens() const {
    static const std::vector<std::int64_t> none;
    return none;
  }
};

// Creates a primitive from its name and the numbers of its Python class, which has checked them, and for random blocks
// from the pattern to avoid, or null.
class Pattern;
using Numbers = std::vector<std::int64_t>;
std::unique_ptr<Primitive> make_primitive(const std::string& name, const Numbers& numbers,
                                          const std::shared_ptr<const Pattern>& avoid);

// ---- common parts of primitives

// A GroupMask from two functions, intervals(out) and fill(tile, masks), which hold their state.
template <class OfIntervals, class Fill>
std::unique_ptr<GroupMask> group_mask(OfIntervals of_intervals, Fill fill) {
  class Mask : public GroupMask {
   public:
    Mask(OfIntervals&& of_keys, Fill&& fill_masks) : intervals_(std::move(of_keys)), fill_(std::move(fill_masks)) {}
    void intervals(Intervals& out) const override { intervals_(out); }
    void fill(const Tile& tile, std::uint64_t* masks) const override { fill_(tile, masks); }

   private:
    OfIntervals intervals_;
    Fill fill_;
  };
  return std::make_unique<Mask>(std::move(of_intervals), std::move(fill));
}

// Calls visit(block, first, last) for the keys first .. last - 1 of a tile that are in one block.
template <class Visit>
void for_each_block(const Tile& tile, std::ptrdiff_t block_size, Visit visit) {
  for (int first = 0, last; first < tile.count; first = last) {
    std::ptrdiff_t const block = key_index(tile, first) / block_size;
    for (last = first + 1; last < tile.count; last++)
      if (key_index(tile, last) < block * block_size || key_index(tile, last) >= (block + 1) * block_size) break;
    visit(block, first, last);
  }
}

// masks[r] = all lanes if sees(key), else none.
template <class Sees>
void fill_by_key(const Lanes& lanes, const Tile& tile, std::uint64_t* masks, Sees sees) {
  for (int r = 0; r < tile.count; r++)
    masks[r] = sees(static_cast<std::ptrdiff_t>(key_index(tile, r))) ? lanes.all() : 0;
}

}  // namespace headspan
