// SPDX-License-Identifier: BSD-3-Clause
// Every n-th key: (p - j) mod stride = 0, or with an offset j mod stride = offset for all queries. Child et al.,
// "Generating Long Sequences with Sparse Transformers", 2019, section 4.3.
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

class Strided : public Primitive {
 public:
  explicit Strided(const Numbers& numbers) : stride_(numbers.at(0)), offset_(numbers.at(1)) {}

  Grouping grouping() const override { return Grouping::classes(relative() ? stride_ : 1); }
  bool sees_itself() const override { return relative(); }

  std::unique_ptr<GroupMask> of(const Lanes& lanes, std::ptrdiff_t keys) const override {
    if (relative()) {
      LaneClasses const classes = residues(lanes, stride_);
      return group_mask([keys](Intervals& out) { append(out, 0, keys, keys); },
                        [this, classes](const Tile& tile, std::uint64_t* masks) {
                          if (!tile.indices && tile.step % stride_ == 0)  // one class, as such a group requests
                            std::fill_n(masks, tile.count, classes.mask_of(tile.first % stride_));
                          else
                            for (int r = 0; r < tile.count; r++)
                              masks[r] = classes.mask_of(key_index(tile, r) % stride_);
                        });
    }
    return group_mask(
        [this, keys](Intervals& out) {
          for (std::ptrdiff_t key = offset_; key < keys; key += stride_) append(out, key, key + 1, keys);
        },
        [this, lanes](const Tile& tile, std::uint64_t* masks) {
          fill_by_key(lanes, tile, masks, [this](std::ptrdiff_t key) { return key % stride_ == offset_; });
        });
  }

 private:
  bool relative() const { return offset_ < 0; }
  std::ptrdiff_t stride_, offset_;
};

}  // namespace

std::unique_ptr<Primitive> make_strided(const Numbers& numbers) { return std::make_unique<Strided>(numbers); }

}  // namespace headspan
