// SPDX-License-Identifier: BSD-3-Clause
#include "base/span_mask.h"

#include <doctest.h>

#include <algorithm>
#include <cstddef>

#include "random_cases.h"

namespace headspan {

TEST_CASE("the soft mask is clip((R + z - x) / R, 0, 1)") {
  for (int seed = 0; seed < 500; seed++) {
    CAPTURE(seed);
    Random random(seed);
    double const ramp = random.number(0.1, 40), span = random.number(0, 100), floor = 1e-16;
    for (double x = 0; x < 150; x += 0.5) {
      double const m = std::clamp((ramp + span - x) / ramp, 0.0, 1.0);
      CHECK(in_reach(x, span, ramp) == (x < span + ramp));
      if (!in_reach(x, span, ramp)) continue;
      double const got = soft_mask(x, span, ramp, 1 / ramp, floor, 1.0);
      CHECK(got == doctest::Approx(m).epsilon(1e-12));
      CHECK(got > 0);
      CHECK((got == 1) == (x <= span));
    }
  }
}

TEST_CASE("a ramp of 0 is a hard window: a key at the span itself is seen") {
  CHECK(in_reach(3, 3, 0));
  CHECK_FALSE(in_reach(3.5, 3, 0));
  CHECK(in_reach(0, 0, 0));
}

TEST_CASE("a span reaches the distances with m > 0, and its ramp starts where x >= z") {
  for (int seed = 0; seed < 500; seed++) {
    CAPTURE(seed);
    Random random(seed);
    double const span = some_span(random, 100), ramp = random.one_of({0.0, 1.0, 2.5, random.number(0, 40)});
    std::ptrdiff_t const limit = 150;
    for (std::ptrdiff_t x = 0; x < limit; x++) {
      CHECK((x <= reach(span, ramp, limit)) == in_reach(static_cast<double>(x), span, ramp));
      CHECK((x >= ramp_start(span, limit)) == (static_cast<double>(x) >= span));
    }
    CHECK(reach(span, ramp, limit) <= limit);
    CHECK(ramp_start(span, limit) <= limit);
  }
}

}  // namespace headspan
