// SPDX-License-Identifier: BSD-3-Clause
// A sliding window, perhaps with gaps: keys p - k * dilation with -after <= k <= before.
#include "patterns/band_masks.h"
#include "patterns/primitive.h"

namespace headspan {

namespace {

class Local : public Primitive {
 public:
  explicit Local(const Numbers& numbers) : before_(numbers.at(0)), after_(numbers.at(1)), dilation_(numbers.at(2)) {}

  Grouping grouping() const override { return Grouping::classes(dilation_); }
  bool sees_itself() const override { return true; }

  void intervals(const Lanes& lanes, std::ptrdiff_t keys, Intervals& out) const override {
    Interval const range = index_range(lanes);
    append(out, range.first - before_, range.last + after_ + 1, keys);
  }

  void words(const Lanes& lanes, const Tile& tile, std::ptrdiff_t, std::uint64_t* words) const override {
    if (dilation_ == 1 && lanes.in_line())
      return words_of_band(tile, lanes.index[0], before_, after_, lanes.count, words);
    words_of_ranges(tile, lanes.count, words,
                    [&](int lane) { return Interval{lanes.index[lane] - before_, lanes.index[lane] + after_ + 1}; });
    if (dilation_ == 1) return;
    LaneClasses const classes = residues(lanes, dilation_);
    for (int r = 0; r < tile.count; r++) words[r] &= classes.word_of(key_index(tile, r) % dilation_);
  }

 private:
  std::ptrdiff_t before_, after_, dilation_;  // the window in tokens
};

}  // namespace

std::unique_ptr<Primitive> make_local(const Numbers& numbers) { return std::make_unique<Local>(numbers); }

}  // namespace headspan
