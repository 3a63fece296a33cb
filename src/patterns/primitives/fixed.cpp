// SPDX-License-Identifier: BSD-3-Clause
// The last columns of every block, which all queries see. Child et al., "Generating Long Sequences with Sparse
// Transformers", 2019, section 4.3, second part of the fixed pattern.
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/tile.h"
#include "patterns/intervals.h"
#include "patterns/lane_set.h"
#include "patterns/primitive.h"

namespace headspan {

namespace {

class Fixed : public Primitive {
 public:
  explicit Fixed(const Numbers& numbers) : block_size_(numbers.at(0)), columns_(numbers.at(1)) {}

  std::unique_ptr<GroupMask> of(const Lanes& lanes, std::ptrdiff_t keys) const override {
    return group_mask(
        [this, keys](Intervals& out) {
          for (std::ptrdiff_t end = block_size_; end - columns_ < keys; end += block_size_)
            append(out, end - columns_, end, keys);
        },
        [this, lanes](const Tile& tile, std::uint64_t* masks) {
          fill_by_key(lanes, tile, masks,
                      [this](std::ptrdiff_t key) { return key % block_size_ >= block_size_ - columns_; });
        });
  }

 private:
  std::ptrdiff_t block_size_, columns_;
};

}  // namespace

std::unique_ptr<Primitive> make_fixed(const Numbers& numbers) { return std::make_unique<Fixed>(numbers); }

}  // namespace headspan
