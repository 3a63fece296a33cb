// SPDX-License-Identifier: BSD-3-Clause
// Selected blocks: a list of blocks of keys for each block of queries. Blocks need not be square.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

#include "base/tile.h"
#include "patterns/intervals.h"
#include "patterns/lane_set.h"
#include "patterns/primitive.h"

namespace headspan {

namespace {

class Blocks : public Primitive {
 public:
  // The numbers of queries and keys per block, the first row that has blocks, the number of rows from there on, rows +
  // 1 offsets into the following numbers, and for each of these rows its blocks of keys, ascending.
  explicit Blocks(const Numbers& numbers)
      : numbers_(numbers),
        query_block_(numbers_.at(0)),
        key_block_(numbers_.at(1)),
        first_row_(numbers_.at(2)),
        rows_(numbers_.at(3)),
        starts_(numbers_.data() + 4) {
    columns_ = starts_ + rows_ + 1;
    std::ptrdiff_t const count = static_cast<std::ptrdiff_t>(numbers_.size()) - 5 - rows_;
    bool const well_formed = query_block_ > 0 && key_block_ > 0 && first_row_ >= 0 && rows_ >= 0 && count >= 0 &&
                             starts_[0] == 0 && starts_[rows_] == count && std::is_sorted(starts_, starts_ + rows_ + 1);
    if (!well_formed) throw std::invalid_argument("blocks are not well formed");
    apart_ = is_better_apart();
  }

  Grouping grouping() const override {
    Grouping grouping = Grouping::sections(query_block_);
    grouping.apart = apart_;
    return grouping;
  }

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
          std::fill_n(masks, tile.count, 0);
          for (int i = 0; i < rows.count(); i++) {
            // Columns and, mostly, keys ascend, so the search starts at the previous one.
            const std::int64_t *const from = begin(rows.at(i)), *const to = end(rows.at(i)), *at = from;
            for_each_block(tile, key_block_, [&](std::ptrdiff_t column, int first, int last) {
              if (at != from && at[-1] >= column) at = std::lower_bound(from, at, column);
              while (at != to && *at < column) ++at;
              if (at == to || *at != column) return;
              for (int r = first; r < last; r++) masks[r] |= rows.mask(i);
            });
          }
        });
  }

 private:
  // Rows that share a group process the keys of all of them with all lanes, in whole vectors. This is estimated from
  // every 16th group, with a quarter more for groups that are started for a few queries.
  bool is_better_apart() const {
    constexpr std::ptrdiff_t least = 16, every = 16;
    std::ptrdiff_t const together = kLanes / query_block_;
    if (together < 2) return false;
    double of_groups = 0, of_rows = 0;
    std::vector<std::int64_t> met;
    std::ptrdiff_t const end_row = first_row_ + rows_;
    for (std::ptrdiff_t row = first_row_; row < end_row; row += every * together) {
      std::ptrdiff_t const last = std::min(row + together, end_row);
      met.assign(begin(row), end(last - 1));
      of_rows += static_cast<double>(met.size());
      std::sort(met.begin(), met.end());
      of_groups += static_cast<double>(std::unique(met.begin(), met.end()) - met.begin());
    }
    return 1.25 * of_rows * static_cast<double>(std::max(query_block_, least)) < of_groups * kLanes;
  }
  bool has(std::ptrdiff_t row) const { return row >= first_row_ && row - first_row_ < rows_; }
  const std::int64_t* begin(std::ptrdiff_t row) const { return columns_ + (has(row) ? starts_[row - first_row_] : 0); }
  const std::int64_t* end(std::ptrdiff_t row) const {
    return columns_ + (has(row) ? starts_[row - first_row_ + 1] : 0);
  }

  Numbers const numbers_;
  std::ptrdiff_t query_block_, key_block_, first_row_, rows_;
  const std::int64_t *starts_, *columns_;
  bool apart_;
};

}  // namespace

std::unique_ptr<Primitive> make_blocks(const Numbers& numbers) { return std::make_unique<Blocks>(numbers); }

}  // namespace headspan
