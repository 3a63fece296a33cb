// SPDX-License-Identifier: BSD-3-Clause
// Blocks drawn at random, the same for every run. Zaheer et al., "Big Bird: Transformers for Longer Sequences", 2020,
// section 2.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "base/tile.h"
#include "patterns/expression.h"
#include "patterns/intervals.h"
#include "patterns/lane_set.h"
#include "patterns/primitive.h"

namespace headspan {

namespace {

// A number for each (seed, row, draw): the finaliser of Steele et al., "Fast Splittable Pseudorandom Number
// Generators", 2014, so that no row depends on another.
std::uint64_t mix(std::uint64_t seed, std::uint64_t row, std::uint64_t draw) {
  std::uint64_t z =
      seed * 0x9E3779B97F4A7C15u + row * 0xBF58476D1CE4E5B9u + draw * 0x94D049BB133111EBu + 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

class Random : public Primitive {
 public:
  Random(const Numbers& numbers, std::shared_ptr<const Pattern> avoid)
      : blocks_(numbers.at(0)),
        block_size_(numbers.at(1)),
        seed_(static_cast<std::uint64_t>(numbers.at(2))),
        avoid_(std::move(avoid)) {}

  Grouping grouping() const override { return Grouping::sections(block_size_); }

  std::unique_ptr<GroupMask> of(const Lanes& lanes, std::ptrdiff_t keys) const override {
    struct Row {
      std::uint64_t lanes;
      std::vector<std::ptrdiff_t> columns;
    };
    LaneClasses const blocks = block_rows(lanes, block_size_);
    auto const rows = std::make_shared<std::vector<Row>>();
    for (int i = 0; i < blocks.count(); i++) rows->push_back({blocks.mask(i), columns_of(blocks.at(i), keys)});
    return group_mask(
        [this, rows, keys](Intervals& out) {
          std::vector<std::ptrdiff_t> columns;
          for (const Row& row : *rows) columns.insert(columns.end(), row.columns.begin(), row.columns.end());
          std::sort(columns.begin(), columns.end());
          for (std::ptrdiff_t column : columns) append(out, column * block_size_, (column + 1) * block_size_, keys);
        },
        [this, rows](const Tile& tile, std::uint64_t* masks) {
          std::fill_n(masks, tile.count, 0);
          for (const Row& row : *rows)
            for_each_block(tile, block_size_, [&](std::ptrdiff_t column, int first, int last) {
              if (!std::binary_search(row.columns.begin(), row.columns.end(), column)) return;
              for (int r = first; r < last; r++) masks[r] |= row.lanes;
            });
        });
  }

 private:
  // The blocks of keys that a block of queries sees, ascending: the first distinct ones that are drawn.
  std::vector<std::ptrdiff_t> columns_of(std::ptrdiff_t row, std::ptrdiff_t keys) const {
    std::vector<std::ptrdiff_t> const met = avoid_ ? met_columns(row, keys) : std::vector<std::ptrdiff_t>();
    std::ptrdiff_t const all = (keys + block_size_ - 1) / block_size_ - static_cast<std::ptrdiff_t>(met.size()),
                         wanted = std::min(blocks_, all);
    std::vector<bool> drawn(static_cast<std::size_t>(all));  // of those that are not avoided, which are numbered
    std::vector<std::ptrdiff_t> columns;
    for (std::uint64_t draw = 0; static_cast<std::ptrdiff_t>(columns.size()) < wanted; draw++) {
      std::ptrdiff_t column = wanted == all
                                  ? static_cast<std::ptrdiff_t>(draw)
                                  : static_cast<std::ptrdiff_t>(mix(seed_, static_cast<std::uint64_t>(row), draw) %
                                                                static_cast<std::uint64_t>(all));
      if (drawn[static_cast<std::size_t>(column)]) continue;
      drawn[static_cast<std::size_t>(column)] = true;
      for (std::ptrdiff_t const before : met) column += before <= column;
      columns.push_back(column);
    }
    std::sort(columns.begin(), columns.end());
    return columns;
  }

  // The blocks of keys, ascending, in which some query of a block sees a key by the pattern to avoid, except for
  // queries that see all keys by it. All queries of the block count, whether or not they belong to the call, so that a
  // draw does not depend on the number of queries.
  std::vector<std::ptrdiff_t> met_columns(std::ptrdiff_t row, std::ptrdiff_t keys) const {
    std::vector<std::ptrdiff_t> met;
    std::ptrdiff_t const last = std::min((row + 1) * block_size_, keys);
    for (std::ptrdiff_t first = row * block_size_; first < last; first += kLanes) {
      std::ptrdiff_t index[kLanes];
      int const count = static_cast<int>(std::min<std::ptrdiff_t>(kLanes, last - first));
      std::iota(index, index + count, first);
      add_met(Lanes(index, count), keys, met);
    }
    std::sort(met.begin(), met.end());
    met.erase(std::unique(met.begin(), met.end()), met.end());
    return met;
  }

  void add_met(const Lanes& lanes, std::ptrdiff_t keys, std::vector<std::ptrdiff_t>& met) const {
    UnionMask const avoided(avoid_->conjunctions(), lanes, keys);
    std::vector<std::pair<std::ptrdiff_t, std::uint64_t>>
        seen;  // parts of blocks, and the lanes that see a key of each
    std::uint64_t see_all = lanes.all();
    std::ptrdiff_t left = keys;
    for (Interval const& interval : avoided.intervals())
      for (Tile tile{interval.first, 1, nullptr, nullptr, 0, false}; tile.first < interval.last;) {
        tile.count = static_cast<int>(std::min<std::ptrdiff_t>(kTileKeys, interval.last - tile.first));
        std::uint64_t masks[kTileKeys];
        avoided.fill(tile, masks);
        for_each_block(tile, block_size_, [&](std::ptrdiff_t column, int first, int last) {
          seen.push_back({column, 0});
          for (int r = first; r < last; r++) seen.back().second |= masks[r], see_all &= masks[r];
        });
        tile.first += tile.count;
        left -= tile.count;
      }
    if (left > 0) see_all = 0;
    for (auto const& [column, by] : seen)
      if (by & ~see_all) met.push_back(column);
  }

  std::ptrdiff_t blocks_, block_size_;
  std::uint64_t seed_;
  std::shared_ptr<const Pattern> avoid_;  // null: none
};

}  // namespace

std::unique_ptr<Primitive> make_random(const Numbers& numbers, std::shared_ptr<const Pattern> avoid) {
  return std::make_unique<Random>(numbers, std::move(avoid));
}

}  // namespace headspan
