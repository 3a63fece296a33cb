// SPDX-License-Identifier: BSD-3-Clause
// Blocks drawn at random, the same for every run. Zaheer et al., "Big Bird: Transformers for Longer Sequences", 2020,
// section 2.
#include <algorithm>

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
  explicit Random(const Numbers& numbers)
      : blocks_(numbers.at(0)), block_size_(numbers.at(1)), seed_(static_cast<std::uint64_t>(numbers.at(2))) {}

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
    std::ptrdiff_t const all = (keys + block_size_ - 1) / block_size_, wanted = std::min(blocks_, all);
    std::vector<bool> drawn(static_cast<std::size_t>(all));
    std::vector<std::ptrdiff_t> columns;
    for (std::uint64_t draw = 0; static_cast<std::ptrdiff_t>(columns.size()) < wanted; draw++) {
      std::ptrdiff_t const column =
          wanted == all ? static_cast<std::ptrdiff_t>(draw)
                        : static_cast<std::ptrdiff_t>(mix(seed_, static_cast<std::uint64_t>(row), draw) %
                                                      static_cast<std::uint64_t>(all));
      if (drawn[static_cast<std::size_t>(column)]) continue;
      drawn[static_cast<std::size_t>(column)] = true;
      columns.push_back(column);
    }
    std::sort(columns.begin(), columns.end());
    return columns;
  }

  std::ptrdiff_t blocks_, block_size_;
  std::uint64_t seed_;
};

}  // namespace

std::unique_ptr<Primitive> make_random(const Numbers& numbers) { return std::make_unique<Random>(numbers); }

}  // namespace headspan
