// SPDX-License-Identifier: BSD-3-Clause
// A sliding window, optionally dilated: keys p - k * dilation with -after <= k <= before.
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/tile.h"
#include "patterns/band_masks.h"
#include "patterns/intervals.h"
#include "patterns/lane_set.h"
#include "patterns/primitive.h"

namespace headspan {

namespace {

class Window : public Primitive {
 public:
  explicit Window(const Numbers& numbers) : before_(numbers.at(0)), after_(numbers.at(1)), dilation_(numbers.at(2)) {}

  Grouping grouping() const override { return Grouping::classes(dilation_); }
  bool sees_itself() const override { return true; }

  std::unique_ptr<GroupMask> of(const Lanes& lanes, std::ptrdiff_t keys) const override {
    LaneClasses const classes = residues(lanes, dilation_);
    return group_mask(
        [this, lanes, keys](Intervals& out) {
          auto const [least, most] = lanes.range();
          append(out, least - before_, most + after_ + 1, keys);
        },
        [this, lanes, classes](const Tile& tile, std::uint64_t* masks) {
          if (dilation_ == 1 && lanes.in_line())
            return fill_band(tile, lanes.index[0], before_, after_, lanes.count, masks);
          fill_ranges(tile, lanes.count, masks,
                      [&](int lane) { return Interval{lanes.index[lane] - before_, lanes.index[lane] + after_ + 1}; });
          for (int r = 0; r < tile.count && dilation_ > 1; r++)
            masks[r] &= classes.mask_of(key_index(tile, r) % dilation_);
        });
  }

 private:
  std::ptrdiff_t before_, after_, dilation_;  // the window in tokens
};

}  // namespace

std::unique_ptr<Primitive> make_window(const Numbers& numbers) { return std::make_unique<Window>(numbers); }

}  // namespace headspan
