// SPDX-License-Identifier: BSD-3-Clause
#include "pattern_mask.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/array_view.h"
#include "base/parallel.h"
#include "base/tile.h"
#include "expression.h"
#include "lane_set.h"

namespace headspan {

void pattern_mask(const Pattern& pattern, const ArrayView<bool, 2>& mask, const InterruptCheck& interrupted) {
  std::ptrdiff_t const queries = mask.shape[0], keys = mask.shape[1];
  parallel_for((queries + kLanes - 1) / kLanes, 1, interrupted, [&](std::ptrdiff_t group, const StopCheck&) {
    std::ptrdiff_t index[kLanes];
    int count = 0;
    for (std::ptrdiff_t i = group * kLanes; i < std::min(queries, (group + 1) * kLanes); i++)
      index[count++] = i + keys - queries;
    UnionMask const allowed(pattern.conjunctions(), Lanes(index, count), keys);
    for (std::ptrdiff_t first = 0; first < keys; first += kTileKeys) {
      std::uint64_t masks[kTileKeys];
      Tile const tile{first, 1, nullptr, nullptr, static_cast<int>(std::min<std::ptrdiff_t>(kTileKeys, keys - first)),
                      false};
      allowed.fill(tile, masks);
      for (int lane = 0; lane < count; lane++)
        for (int r = 0; r < tile.count; r++) *mask.at(group * kLanes + lane, first + r) = masks[r] >> lane & 1;
    }
  });
}

}  // namespace headspan
