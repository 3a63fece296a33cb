// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/group_key_range.h"

#include <doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/tile.h"
#include "random_cases.h"
#include "schedule/visibility.h"
#include "visibility_cases.h"

namespace headspan {

namespace {

struct GroupCase {
  std::vector<std::ptrdiff_t> query;
  std::vector<double> spans;

  GroupCase(Random& random, const Visibility& v) : query(some_lanes(random, 0, v.queries)) {
    bool const shared = random.one_in(2);
    spans.assign(query.size(), some_span(random, v.keys));
    for (double& span : spans)
      if (!shared) span = some_span(random, v.keys);
  }
  int lanes() const { return static_cast<int>(query.size()); }
};

}  // namespace

TEST_CASE("a group's masks, its range and what it says of stretches of keys agree with its lanes one by one") {
  for (int seed = 0; seed < 3000; seed++) {
    CAPTURE(seed);
    Random random(seed);
    std::ptrdiff_t const queries = random.between(1, 150), keys = random.between(1, 200);
    SomeVisibility const some(random, queries, keys);
    Visibility const& v = some.visibility;
    GroupCase const group(random, v);
    GroupKeyRange range(v, group.query.data(), group.lanes(), group.spans.data());
    std::ptrdiff_t from = 0, to = keys;
    if (random.one_in(3)) {
      from = random.between(0, keys), to = random.between(from, keys);
      range.clip(from, to);
    }
    auto const query = [&](int lane) { return group.query[static_cast<std::size_t>(lane)]; };
    auto const span = [&](int lane) { return group.spans[static_cast<std::size_t>(lane)]; };
    auto const sees = [&](int lane, std::ptrdiff_t key) {
      return key >= from && key < to && may_see(v, query(lane), key, span(lane));
    };

    for (int tiles = 0; tiles < 3; tiles++) {
      SomeTile const tile(random, keys);
      std::uint64_t masks[kTileKeys];
      range.fill(tile, masks);
      CHECK(are_masks_of(masks, tile, group.lanes(), sees));
    }

    std::vector<char> in_ramp(static_cast<std::size_t>(keys)), seen_by_all(in_ramp), soft_pair(in_ramp);
    for (std::ptrdiff_t key = 0; key < keys; key++) {
      std::size_t const k = static_cast<std::size_t>(key);
      seen_by_all[k] = true;
      for (int lane = 0; lane < group.lanes(); lane++) {
        bool const beyond = distance(v, query(lane), key) >= span(lane);
        if (sees(lane, key)) CHECK((key >= range.first() && key < range.last()));
        seen_by_all[k] = seen_by_all[k] && sees(lane, key);
        in_ramp[k] = in_ramp[k] || beyond;
        soft_pair[k] = soft_pair[k] || (beyond && sees(lane, key));
      }
    }
    for (int stretches = 0; stretches < 20; stretches++) {
      std::ptrdiff_t const first = random.between(0, keys - 1),
                           last = std::min(keys, first + random.between(1, random.one_in(2) ? 8 : 64));
      auto const any = [&](const std::vector<char>& of_key) {
        return std::find(of_key.begin() + first, of_key.begin() + last, true) != of_key.begin() + last;
      };
      bool const all =
          std::find(seen_by_all.begin() + first, seen_by_all.begin() + last, false) == seen_by_all.begin() + last;
      if (range.full(first, last)) CHECK(all);
      if (all && v.include_self) CHECK(range.full(first, last));
      if (any(soft_pair)) CHECK(range.soft(first, last));
      if (range.soft(first, last) && !v.range_first) CHECK(any(in_ramp));
    }
  }
}

}  // namespace headspan
