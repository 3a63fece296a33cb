// SPDX-License-Identifier: BSD-3-Clause
// Where rows are: each source has rows of one number, the index of the row.
#include "kernel/rows/row_source.h"

#include <doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace headspan {
namespace {

double number_of(const RowSource& source, std::ptrdiff_t row) {
  return *reinterpret_cast<const double*>(source.row(row));
}
const Byte* bytes_of(const std::vector<double>& numbers) { return reinterpret_cast<const Byte*>(numbers.data()); }

constexpr std::ptrdiff_t size = sizeof(double);

TEST_CASE("an array has a row for every step-th index") {
  std::vector<double> const numbers{1, -1, 4, -1, 7, -1};
  RowSource const source = array_rows(numbers.data(), 2, 3);
  CHECK(!source.in_cache());
  for (std::ptrdiff_t row : {1, 4, 7}) CHECK(number_of(source, row) == static_cast<double>(row));
}

TEST_CASE("a ring has the last rows, the kept ones, and those that follow") {
  constexpr std::ptrdiff_t capacity = 7, count = 23, more = 5;
  std::vector<std::int64_t> const kept{0, 2, 11, 19};
  std::vector<double> ring(capacity + kept.size()), following(2 * more);
  for (std::ptrdiff_t row = 0; row < count; row++) {
    ring[static_cast<std::size_t>(row % capacity)] = static_cast<double>(row);
    auto const token = std::find(kept.begin(), kept.end(), row);
    if (token != kept.end())
      ring[static_cast<std::size_t>(capacity + (token - kept.begin()))] = static_cast<double>(row);
  }
  for (std::size_t i = 0; i < more; i++) following[2 * i] = static_cast<double>(count) + static_cast<double>(i);
  RowPlaces const places{count - capacity, count, capacity, kept.data(), static_cast<std::ptrdiff_t>(kept.size())};
  RowSource const source{
      Storage::same, bytes_of(ring), size, 1, places, nullptr, bytes_of(following), 2 * size,
  };
  CHECK(source.in_cache());
  for (std::ptrdiff_t row : kept) CHECK(number_of(source, row) == static_cast<double>(row));
  for (std::ptrdiff_t row = count - capacity; row < count + more; row++)
    CHECK(number_of(source, row) == static_cast<double>(row));
  // A dropped row has the place of another one.
  for (std::ptrdiff_t row = 0; row < count; row++) {
    CHECK(places.of(row) >= 0);
    CHECK(places.of(row) < static_cast<std::ptrdiff_t>(ring.size()));
  }
}

TEST_CASE("pages have all rows, in any order of pages") {
  constexpr std::ptrdiff_t count = 2 * kPageRows + 3;
  std::vector<double> pages(3 * kPageRows), following{static_cast<double>(count)};
  std::vector<void*> const order{&pages[kPageRows], &pages[2 * kPageRows], &pages[0]};
  for (std::ptrdiff_t row = 0; row < count; row++)
    static_cast<double*>(order[static_cast<std::size_t>(row / kPageRows)])[row % kPageRows] = static_cast<double>(row);
  RowSource const source{Storage::same,       nullptr, size, 1, {0, count, 3 * kPageRows, nullptr, 0}, order.data(),
                         bytes_of(following), size};
  for (std::ptrdiff_t row = 0; row <= count; row++) CHECK(number_of(source, row) == static_cast<double>(row));
}

}  // namespace
}  // namespace headspan
