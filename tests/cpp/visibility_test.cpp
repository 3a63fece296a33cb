// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/visibility.h"

#include <doctest.h>

#include <cstddef>

#include "random_cases.h"
#include "visibility_cases.h"

namespace headspan {

TEST_CASE("the keys of a query are those in its reach, by causality, prefix, span, position, padding and range") {
  for (int seed = 0; seed < 1000; seed++) {
    CAPTURE(seed);
    Random random(seed);
    std::ptrdiff_t const queries = random.between(1, 60), keys = random.between(1, 80);
    SomeVisibility const some(random, queries, keys);
    Visibility const& v = some.visibility;
    for (std::ptrdiff_t query = 0; query < queries; query++) {
      double const span = some_span(random, keys);
      KeyRange const range = key_range(v, query, span_reach(v, span));
      std::ptrdiff_t count = 0;
      bool same = true;
      for (std::ptrdiff_t key = 0; key < keys; key++) {
        bool const in_range =
            key >= range.first && key < range.last && !(key >= range.self_first && key < range.self_last);
        same = same && in_range == may_see(v, query, key, span);
        count += in_range;
      }
      CHECK(same);
      CHECK(range.count() == count);
    }
  }
}

}  // namespace headspan
