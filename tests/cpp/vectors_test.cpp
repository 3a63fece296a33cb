// SPDX-License-Identifier: BSD-3-Clause
// The vectors of every instruction set that this machine has, compared with plain arithmetic.
#include <doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernel/dispatch.h"
#include "kernel/rows/row_source.h"
#include "random_cases.h"
#include "vector_functions.h"
#include "vector_isas.h"  // generated: compiled_vectors

namespace headspan {

namespace {

template <class T>
VectorFunctions<T> functions_of(const VectorIsa& isa) {
  if constexpr (sizeof(T) == 4)
    return isa.float32();
  else
    return isa.float64();
}

// Calls check(functions) for every instruction set of this machine.
template <class T, class Check>
void for_each_isa(Check check) {
  auto const here = available_variants();
  int checked = 0;
  for (const VectorIsa* isa : compiled_vectors) {
    if (std::find(here.begin(), here.end(), isa->name) == here.end()) continue;
    std::string const name = isa->name;
    CAPTURE(name);
    check(functions_of<T>(*isa), *isa);
    checked++;
  }
  CHECK(checked > 0);
}

template <class T>
struct alignas(64) Row {
  T x[kMostWidth] = {};
};

template <class T>
Row<T> some_row(Random& random, double least, double most) {
  Row<T> row;
  for (T& x : row.x) x = static_cast<T>(random.number(least, most));
  return row;
}

// exp2 of one number; the other lanes hold different numbers.
template <class T>
T exp2_of(const VectorFunctions<T>& f, T x, int lane = 0) {
  Row<T> row;
  for (int i = 0; i < kMostWidth; i++) row.x[i] = T(i);
  row.x[lane] = x;
  f.exp2(row.x, row.x);
  return row.x[lane];
}

template <class T>
double ulps(T got, double wanted) {
  double const ulp = std::ldexp(1.0, std::ilogb(wanted) - std::numeric_limits<T>::digits + 1);
  return std::fabs(static_cast<double>(got) - wanted) / ulp;
}

template <class T>
constexpr T kInfinite = std::numeric_limits<T>::infinity();

}  // namespace

TEST_CASE_TEMPLATE("exp2 is right to a few ulp, and exact for whole numbers", T, float, double) {
  for_each_isa<T>([](const VectorFunctions<T>& f, const VectorIsa&) {
    int const least = std::numeric_limits<T>::min_exponent;  // -125, -1021
    for (int power = least; power <= 100; power++)
      CHECK(exp2_of<T>(f, static_cast<T>(power)) == std::ldexp(T(1), power));
    Random random(1);
    double worst = 0;
    for (int i = 0; i < 200000; i++) {
      T const x = static_cast<T>(i % 2 ? random.number(-8, 1) : random.number(least, 100));
      worst = std::max(worst, ulps(exp2_of<T>(f, x, i % f.width), std::exp2(static_cast<double>(x))));
    }
    CHECK(worst < (sizeof(T) == 4 ? 3.5 : 1.5));
  });
}

TEST_CASE_TEMPLATE("exp2 is exactly 1 at 0, next to 1 beside it, 0 far below, and NaN for NaN", T, float, double) {
  for_each_isa<T>([](const VectorFunctions<T>& f, const VectorIsa&) {
    for (int lane = 0; lane < f.width; lane++) {
      CHECK(exp2_of<T>(f, T(0), lane) == 1);
      CHECK(exp2_of<T>(f, T(-0.0), lane) == 1);
      CHECK(exp2_of<T>(f, T(-1e-30), lane) == doctest::Approx(1).epsilon(3e-7));
      CHECK(exp2_of<T>(f, T(1e-30), lane) == 1);
      for (T x : {T(-1100), T(-1e6), T(-1e30), std::numeric_limits<T>::lowest(), -kInfinite<T>}) {
        CHECK(exp2_of<T>(f, x, lane) == 0);
        CHECK_FALSE(std::signbit(exp2_of<T>(f, x, lane)));
      }
      CHECK(std::isnan(exp2_of<T>(f, std::numeric_limits<T>::quiet_NaN(), lane)));
    }
  });
}

TEST_CASE_TEMPLATE("partial loads and stores touch the first n elements and no others", T, float, double) {
  for_each_isa<T>([](const VectorFunctions<T>& f, const VectorIsa&) {
    Random random(2);
    for (int n = 0; n < f.width; n++) {
      Row<T> const from = some_row<T>(random, 1, 2);
      std::vector<T> exact(from.x, from.x + n);  // the address sanitizer detects reads past it
      Row<T> to;
      std::fill_n(to.x, kMostWidth, T(9));
      f.load_first(exact.data(), n, to.x);
      for (int i = 0; i < f.width; i++) CHECK(to.x[i] == (i < n ? from.x[i] : T(0)));
      std::fill_n(to.x, kMostWidth, T(9));
      f.store_first(to.x, from.x, n);
      for (int i = 0; i < f.width; i++) CHECK(to.x[i] == (i < n ? from.x[i] : T(9)));
      f.store_past_caches(to.x, from.x);
      CHECK(std::equal(to.x, to.x + f.width, from.x));
    }
  });
}

TEST_CASE_TEMPLATE("maximum, select, absolute and all_zero are so lane by lane", T, float, double) {
  for_each_isa<T>([](const VectorFunctions<T>& f, const VectorIsa&) {
    T const nan = std::numeric_limits<T>::quiet_NaN();
    for (int seed = 0; seed < 200; seed++) {
      Random random(seed);
      Row<T> const a = some_row<T>(random, -3, 3), b = some_row<T>(random, -3, 3);
      Row<T> to;
      std::uint64_t const lanes = static_cast<std::uint64_t>(random.between(0, PTRDIFF_MAX - 1));
      f.maximum(a.x, b.x, to.x);
      for (int i = 0; i < f.width; i++) CHECK(to.x[i] == std::max(a.x[i], b.x[i]));
      f.select(lanes, a.x, b.x, to.x);
      for (int i = 0; i < f.width; i++) CHECK(to.x[i] == (lanes >> i & 1 ? a.x[i] : b.x[i]));
      f.absolute(a.x, to.x);
      for (int i = 0; i < f.width; i++) CHECK(to.x[i] == std::fabs(a.x[i]));

      int const lane = static_cast<int>(random.between(0, f.width - 1));
      Row<T> odd = a, zeros;
      odd.x[lane] = nan;
      f.maximum(odd.x, b.x, to.x);
      CHECK(to.x[lane] == b.x[lane]);
      f.maximum(b.x, odd.x, to.x);
      CHECK(std::isnan(to.x[lane]));
      CHECK(f.all_zero(zeros.x));
      zeros.x[lane] = T(-0.0);
      CHECK(f.all_zero(zeros.x));
      for (T x : {nan, std::numeric_limits<T>::denorm_min(), -kInfinite<T>}) {
        zeros.x[lane] = x;
        CHECK_FALSE(f.all_zero(zeros.x));
      }
    }
  });
}

TEST_CASE_TEMPLATE("fraction and scale_by_power take x apart as x - floor(x) and 2^floor(x)", T, float, double) {
  for_each_isa<T>([](const VectorFunctions<T>& f, const VectorIsa&) {
    for (int seed = 0; seed < 500; seed++) {
      Random random(seed);
      Row<T> x = some_row<T>(random, -120, 100), p = some_row<T>(random, 1, 2), to;
      for (int i = 0; i < kMostWidth; i += 3) x.x[i] = std::round(x.x[i]);
      f.fraction(x.x, to.x);
      for (int i = 0; i < f.width; i++) {
        T const nearest = x.x[i] - std::floor(x.x[i]);  // AVX-512 rounds the difference downwards
        CHECK((to.x[i] == nearest || to.x[i] == std::nextafter(nearest, T(0))));
      }
      f.scale_by_power(p.x, x.x, to.x);
      for (int i = 0; i < f.width; i++) CHECK(to.x[i] == std::ldexp(p.x[i], static_cast<int>(std::floor(x.x[i]))));
    }
  });
}

namespace {

// The value of 16 bits, by arithmetic.
double value_of(Storage storage, std::uint32_t bits) {
  int const fraction_bits = storage == Storage::float16 ? 10 : 7, exponent_bits = 15 - fraction_bits;
  int const most = (1 << exponent_bits) - 1, bias = most / 2;
  int const exponent = static_cast<int>(bits >> fraction_bits) & most;
  double const fraction = std::ldexp(static_cast<double>(bits & ((1u << fraction_bits) - 1)), -fraction_bits);
  double const sign = bits >> 15 ? -1 : 1;
  if (exponent == most) return fraction > 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  return sign * (exponent ? std::ldexp(1 + fraction, exponent - bias) : std::ldexp(fraction, 1 - bias));
}

bool is(float got, double wanted) {
  return std::isnan(wanted) ? std::isnan(got)
                            : got == static_cast<float>(wanted) && std::signbit(got) == std::signbit(wanted);
}

}  // namespace

TEST_CASE("numbers of fewer bytes are worth what their bits say") {
  for_each_isa<float>([](const VectorFunctions<float>& f, const VectorIsa& isa) {
    for (int kind = 0; kind < kWidenings; kind++) {
      Widening const& widening = isa.widenings[kind];
      bool const bytes = widening.storage == Storage::int8;
      int wrong = 0;
      for (int begin = 0; begin < (bytes ? 1 << 8 : 1 << 16); begin += f.width) {
        std::uint16_t halves[kMostWidth];
        std::int8_t small[kMostWidth];
        for (int i = 0; i < f.width; i++) {
          halves[i] = static_cast<std::uint16_t>(begin + i);
          small[i] = static_cast<std::int8_t>(begin + i);
        }
        const void* const from = bytes ? static_cast<const void*>(small) : halves;
        Row<float> all, first;
        widening.all(from, all.x);
        int const n = begin / f.width % f.width;
        widening.first(from, n, first.x);
        for (int i = 0; i < f.width; i++) {
          double const wanted = bytes ? small[i] : value_of(widening.storage, halves[i]);
          wrong += !is(all.x[i], wanted) + !is(first.x[i], i < n ? wanted : 0);
        }
      }
      CHECK(wrong == 0);
    }
  });
}

}  // namespace headspan
