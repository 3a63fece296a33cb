// SPDX-License-Identifier: BSD-3-Clause
// Every key.
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

class Full : public Primitive {
 public:
  explicit Full(const Numbers&) {}

  bool sees_itself() const override { return true; }
  std::unique_ptr<GroupMask> of(const Lanes& lanes, std::ptrdiff_t keys) const override {
    return group_mask([keys](Intervals& out) { append(out, 0, keys, keys); },
                      [lanes](const Tile& tile, std::uint64_t* masks) { std::fill_n(masks, tile.count, lanes.all()); });
  }
};

}  // namespace

std::unique_ptr<Primitive> make_full(const Numbers& numbers) { return std::make_unique<Full>(numbers); }

}  // namespace headspan
