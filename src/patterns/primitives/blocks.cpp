// SPDX-License-Identifier: BSD-3-Clause
// Chosen blocks: for each block of queries a list of blocks of keys.
#include <algorithm>
#include <stdexcept>

#include "patterns/primitive.h"

namespace headspan {

namespace {

class Blocks : public Primitive {
 public:
  // block_size, rows, rows + 1 offsets into what follows, and for each row its ascending blocks of keys.
  explicit Blocks(const Numbers& numbers)
      : numbers_(numbers), block_size_(numbers_.at(0)), rows_(numbers_.at(1)), starts_(numbers_.data() + 2) {
    columns_ = starts_ + rows_ + 1;
    std::ptrdiff_t const count = static_cast<std::ptrdiff_t>(numbers_.size()) - 3 - rows_;
    bool const well_formed = block_size_ > 0 && rows_ >= 0 && count >= 0 && starts_[0] == 0 &&
                             starts_[rows_] == count && std::is_sorted(starts_, starts_ + rows_ + 1);
    if (!well_formed) throw std::invalid_argument("blocks are not well formed");
  }

  Grouping grouping() const override { return Grouping::sections(block_size_); }

  void intervals(const Lanes& lanes, std::ptrdiff_t keys, Intervals& out) const override {
    Intervals before, row;
    LaneClasses const classes = block_rows(lanes, block_size_);
    for (int i = 0; i < classes.count(); i++) {
      row.clear();
      for (const std::int64_t* column = begin(classes.at(i)); column != end(classes.at(i)); column++)
        append(row, *column * block_size_, (*column + 1) * block_size_, keys);
      before.swap(out);
      unite(before, row, out);
    }
  }

  void words(const Lanes& lanes, const Tile& tile, std::ptrdiff_t, std::uint64_t* words) const override {
    LaneClasses const& classes = lanes.remember(this, [&] { return block_rows(lanes, block_size_); });
    for_each_block(tile, block_size_, [&](std::ptrdiff_t column, int first, int last) {
      std::fill(words + first, words + last, word_of(classes, column));
    });
  }

 private:
  std::uint64_t word_of(const LaneClasses& classes, std::ptrdiff_t column) const {
    std::uint64_t word = 0;
    for (int i = 0; i < classes.count(); i++)
      if (std::binary_search(begin(classes.at(i)), end(classes.at(i)), column)) word |= classes.word(i);
    return word;
  }
  bool has(std::ptrdiff_t row) const { return row >= 0 && row < rows_; }
  const std::int64_t* begin(std::ptrdiff_t row) const { return columns_ + (has(row) ? starts_[row] : 0); }
  const std::int64_t* end(std::ptrdiff_t row) const { return columns_ + (has(row) ? starts_[row + 1] : 0); }

  Numbers const numbers_;
  std::ptrdiff_t block_size_, rows_;
  const std::int64_t *starts_, *columns_;
};

}  // namespace

std::unique_ptr<Primitive> make_blocks(const Numbers& numbers) { return std::make_unique<Blocks>(numbers); }

}  // namespace headspan
