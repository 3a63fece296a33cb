// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/query_order.h"

#include <doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/tile.h"
#include "patterns/grid.h"
#include "patterns/primitive.h"
#include "random_cases.h"

namespace headspan {

namespace {

struct OrderCase {
  std::ptrdiff_t queries, keys;
  Grouping grouping;
  std::vector<std::int64_t> global_tokens;  // ascending; a token may occur twice, from two parts of a pattern

  explicit OrderCase(Random& random) {
    keys = random.between(1, 400);
    queries = random.one_in(2) ? keys : random.between(0, 500);
    switch (random.between(0, 3)) {
      case 0:
        grouping = Grouping::classes(random.between(2, random.one_in(2) ? 8 : 500));
        break;
      case 1:
        grouping = Grouping::sections(random.between(1, 150));
        break;
      case 2: {
        grouping.grid.axes = static_cast<int>(random.between(1, kGridAxes));
        for (int axis = 0; axis < grouping.grid.axes; axis++) {
          grouping.grid.shape[axis] = random.between(1, grouping.grid.axes == 1   ? 300
                                                        : grouping.grid.axes == 2 ? 25
                                                                                  : 8);
          grouping.dilation[axis] = random.between(1, grouping.grid.shape[axis]);
          if (random.one_in(2)) grouping.sharing[axis] = random.between(1, 100);
        }
        if (random.one_in(3)) grouping.grid.first = random.between(1, 5);
        keys = grouping.grid.first + grouping.grid.tokens() + (random.one_in(3) ? random.between(1, 5) : 0);
        queries = random.one_in(2) ? keys : random.between(0, keys);
      }
    }
    for (std::ptrdiff_t left = random.one_in(2) ? 0 : random.between(1, 100); left > 0; left--)
      global_tokens.push_back(random.between(0, keys - 1));
    std::sort(global_tokens.begin(), global_tokens.end());
  }
};

}  // namespace

TEST_CASE("every query is in one group, and global tokens in groups of their own before all others") {
  for (int seed = 0; seed < 1000; seed++) {
    CAPTURE(seed);
    Random random(seed);
    OrderCase const inputs(random);
    QueryOrder const order = make_query_order(inputs.grouping, inputs.queries, inputs.keys, inputs.global_tokens);
    std::vector<int> times(static_cast<std::size_t>(inputs.queries));
    for (std::ptrdiff_t group = 0; group < order.groups(); group++) {
      CHECK(order.lanes(group) > 0);
      CHECK(order.lanes(group) <= kLanes);
      for (int lane = 0; lane < order.lanes(group); lane++) {
        std::ptrdiff_t const query = order.queries(group)[lane], index = query + inputs.keys - inputs.queries;
        REQUIRE(query >= 0);
        REQUIRE(query < inputs.queries);
        times[static_cast<std::size_t>(query)]++;
        bool const is_global = std::binary_search(inputs.global_tokens.begin(), inputs.global_tokens.end(), index);
        CHECK(is_global == (group < order.global_groups));
      }
    }
    CHECK(std::count(times.begin(), times.end(), 1) == inputs.queries);
  }
}

TEST_CASE("queries with no wish are grouped as they come, and lanes are mostly filled where they have one") {
  for (std::ptrdiff_t queries : {0, 1, 63, 64, 65, 200, 640})
    for (std::ptrdiff_t stride : {1, 2, 7, 64, 100}) {
      CAPTURE(queries);
      CAPTURE(stride);
      QueryOrder const order = make_query_order(Grouping::classes(stride), queries, queries + 5, {});
      std::ptrdiff_t const least = (queries + kLanes - 1) / kLanes;
      CHECK(order.groups() >= least);
      CHECK(order.groups() <= (stride == 1 ? least : 2 * least + stride));
      for (std::ptrdiff_t i = 0; i < queries && stride == 1; i++) CHECK(order.query[static_cast<std::size_t>(i)] == i);
    }
}

}  // namespace headspan
