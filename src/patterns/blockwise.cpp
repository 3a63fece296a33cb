// SPDX-License-Identifier: BSD-3-Clause
// The query's own block of keys, and some blocks back and ahead of it.
#include "lane_ranges.h"
#include "pattern.h"

namespace headspan {
namespace {

class Blockwise : public Primitive {
 public:
  explicit Blockwise(const Numbers& numbers)
      : block_size_(numbers.at(0)), back_(numbers.at(1)), ahead_(numbers.at(2)) {}

  Grouping grouping() const override { return Grouping::sections(block_size_); }

  void intervals(const Lanes& lanes, std::ptrdiff_t keys, Intervals& out) const override {
    Interval const range = index_range(lanes);
    append(out, of(range.first).first, of(range.last).last, keys);
  }

  void words(const Lanes& lanes, const Tile& tile, std::ptrdiff_t, std::uint64_t* words) const override {
    words_of_ranges(tile, lanes.count, words, [&](int lane) { return of(lanes.index[lane]); });
  }

 private:
  Interval of(std::ptrdiff_t query) const {
    std::ptrdiff_t const block = floor_div(query, block_size_);
    return {(block - back_) * block_size_, (block + ahead_ + 1) * block_size_};
  }
  std::ptrdiff_t block_size_, back_, ahead_;
};

Registered<Blockwise> const registered("blockwise");

}  // namespace
}  // namespace headspan
