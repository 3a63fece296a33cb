// SPDX-License-Identifier: BSD-3-Clause
// The query's own block of keys, and some blocks back and ahead of it.
#include "patterns/primitive.h"

namespace headspan {

namespace {

class Blockwise : public Primitive {
 public:
  explicit Blockwise(const Numbers& numbers)
      : block_size_(numbers.at(0)), back_(numbers.at(1)), ahead_(numbers.at(2)) {}

  Grouping grouping() const override { return Grouping::sections(block_size_); }
  bool sees_itself() const override { return true; }

  void intervals(const Lanes& lanes, std::ptrdiff_t keys, Intervals& out) const override {
    Interval const range = index_range(lanes);
    append(out, (floor_div(range.first, block_size_) - back_) * block_size_,
           (floor_div(range.last, block_size_) + ahead_ + 1) * block_size_, keys);
  }

  void words(const Lanes& lanes, const Tile& tile, std::ptrdiff_t, std::uint64_t* words) const override {
    LaneClasses const& classes = lanes.remember(this, [&] { return block_rows(lanes, block_size_); });
    for_each_block(tile, block_size_, [&](std::ptrdiff_t block, int first, int last) {
      std::uint64_t word = 0;
      for (int i = 0; i < classes.count(); i++)
        if (block >= classes.at(i) - back_ && block <= classes.at(i) + ahead_) word |= classes.word(i);
      std::fill(words + first, words + last, word);
    });
  }

 private:
  std::ptrdiff_t block_size_, back_, ahead_;
};

}  // namespace

std::unique_ptr<Primitive> make_blockwise(const Numbers& numbers) { return std::make_unique<Blockwise>(numbers); }

}  // namespace headspan
