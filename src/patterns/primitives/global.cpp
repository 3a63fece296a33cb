// SPDX-License-Identifier: BSD-3-Clause
// Tokens that see all tokens and are seen by all, without the limit of a span.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/tile.h"
#include "patterns/intervals.h"
#include "patterns/lane_set.h"
#include "patterns/primitive.h"

namespace headspan {

namespace {

class Global : public Primitive {
 public:
  explicit Global(const Numbers& tokens) : tokens_(tokens) {}

  std::unique_ptr<GroupMask> of(const Lanes& lanes, std::ptrdiff_t keys) const override {
    std::uint64_t const global_mask = global_lanes(lanes);
    return group_mask(
        [this, global_mask, keys](Intervals& out) {
          if (global_mask) return append(out, 0, keys, keys);
          for (std::int64_t token : tokens_) append(out, token, token + 1, keys);
        },
        [this, lanes, global_mask](const Tile& tile, std::uint64_t* masks) {
          std::fill_n(masks, tile.count, global_mask);
          if (!tile.indices && outside(tile.first, key_index(tile, tile.count - 1))) return;
          for (int r = 0; r < tile.count; r++)
            if (contains(key_index(tile, r))) masks[r] = lanes.all();
        });
  }

  const std::vector<std::int64_t>& global_tokens() const override { return tokens_; }

 private:
  // Whether no token is in first .. last.
  bool outside(std::ptrdiff_t first, std::ptrdiff_t last) const {
    return tokens_.empty() || last < tokens_.front() || first > tokens_.back();
  }
  bool contains(std::int64_t index) const {
    return !outside(index, index) && std::binary_search(tokens_.begin(), tokens_.end(), index);
  }
  std::uint64_t global_lanes(const Lanes& lanes) const {
    std::uint64_t mask = 0;
    if (lanes.in_line() && outside(lanes.index[0], lanes.index[lanes.count - 1])) return mask;
    for (int lane = 0; lane < lanes.count; lane++)
      mask |= static_cast<std::uint64_t>(contains(lanes.index[lane])) << lane;
    return mask;
  }

  std::vector<std::int64_t> tokens_;  // ascending
};

}  // namespace

std::unique_ptr<Primitive> make_global(const Numbers& numbers) { return std::make_unique<Global>(numbers); }

}  // namespace headspan
