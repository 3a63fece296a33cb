// SPDX-License-Identifier: BSD-3-Clause
// The block of keys of the query, and some blocks back and ahead of it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/tile.h"
#include "patterns/intervals.h"
#include "patterns/lane_set.h"
#include "patterns/primitive.h"

namespace headspan {

namespace {

class Blockwise : public Primitive {
 public:
  explicit Blockwise(const Numbers& numbers)
      : block_size_(numbers.at(0)), back_(numbers.at(1)), ahead_(numbers.at(2)) {}

  Grouping grouping() const override { return Grouping::sections(block_size_); }
  bool sees_itself() const override { return true; }

  std::unique_ptr<GroupMask> of(const Lanes& lanes, std::ptrdiff_t keys) const override {
    LaneClasses const blocks = block_rows(lanes, block_size_);
    return group_mask(
        [this, lanes, keys](Intervals& out) {
          auto const [least, most] = lanes.range();
          append(out, (floor_div(least, block_size_) - back_) * block_size_,
                 (floor_div(most, block_size_) + ahead_ + 1) * block_size_, keys);
        },
        [this, blocks](const Tile& tile, std::uint64_t* masks) {
          for_each_block(tile, block_size_, [&](std::ptrdiff_t block, int first, int last) {
            std::uint64_t mask = 0;
            for (int i = 0; i < blocks.count(); i++)
              if (block >= blocks.at(i) - back_ && block <= blocks.at(i) + ahead_) mask |= blocks.mask(i);
            std::fill(masks + first, masks + last, mask);
          });
        });
  }

 private:
  std::ptrdiff_t block_size_, back_, ahead_;
};

}  // namespace

std::unique_ptr<Primitive> make_blockwise(const Numbers& numbers) { return std::make_unique<Blockwise>(numbers); }

}  // namespace headspan
