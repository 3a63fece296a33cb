// SPDX-License-Identifier: BSD-3-Clause
// Chosen blocks: for each block of queries a list of blocks of keys. They need not be squares.
#include <algorithm>
#include <stdexcept>

#include "patterns/primitive.h"

namespace headspan {

namespace {

class Blocks : public Primitive {
 public:
  // Queries and keys of a block, rows, rows + 1 offsets into what follows, and for each row its ascending blocks of
  // keys.
  explicit Blocks(const Numbers& numbers)
      : numbers_(numbers),
        query_block_(numbers_.at(0)),
        key_block_(numbers_.at(1)),
        rows_(numbers_.at(2)),
        starts_(numbers_.data() + 3) {
    columns_ = starts_ + rows_ + 1;
    std::ptrdiff_t const count = static_cast<std::ptrdiff_t>(numbers_.size()) - 4 - rows_;
    bool const well_formed = query_block_ > 0 && key_block_ > 0 && rows_ >= 0 && count >= 0 && starts_[0] == 0 &&
                             starts_[rows_] == count && std::is_sorted(starts_, starts_ + rows_ + 1);
    if (!well_formed) throw std::invalid_argument("blocks are not well formed");
  }

  Grouping grouping() const override { return Grouping::sections(query_block_); }

  std::unique_ptr<GroupMask> of(const Lanes& lanes, std::ptrdiff_t keys) const override {
    LaneClasses const rows = block_rows(lanes, query_block_);
    return group_mask(
        [this, rows, keys](Intervals& out) {
          Intervals before, row;
          for (int i = 0; i < rows.count(); i++) {
            row.clear();
            for (const std::int64_t* column = begin(rows.at(i)); column != end(rows.at(i)); column++)
              append(row, *column * key_block_, (*column + 1) * key_block_, keys);
            before.swap(out);
            unite(before, row, out);
          }
        },
        [this, rows](const Tile& tile, std::uint64_t* masks) {
          for_each_block(tile, key_block_, [&](std::ptrdiff_t column, int first, int last) {
            std::fill(masks + first, masks + last, mask_of(rows, column));
          });
        });
  }

 private:
  std::uint64_t mask_of(const LaneClasses& rows, std::ptrdiff_t column) const {
    std::uint64_t mask = 0;
    for (int i = 0; i < rows.count(); i++)
      if (std::binary_search(begin(rows.at(i)), end(rows.at(i)), column)) mask |= rows.mask(i);
    return mask;
  }
  bool has(std::ptrdiff_t row) const { return row >= 0 && row < rows_; }
  const std::int64_t* begin(std::ptrdiff_t row) const { return columns_ + (has(row) ? starts_[row] : 0); }
  const std::int64_t* end(std::ptrdiff_t row) const { return columns_ + (has(row) ? starts_[row + 1] : 0); }

  Numbers const numbers_;
  std::ptrdiff_t query_block_, key_block_, rows_;
  const std::int64_t *starts_, *columns_;
};

}  // namespace

std::unique_ptr<Primitive> make_blocks(const Numbers& numbers) { return std::make_unique<Blocks>(numbers); }

}  // namespace headspan
