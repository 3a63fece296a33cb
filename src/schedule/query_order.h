// SPDX-License-Identifier: BSD-3-Clause
// Queries in the order of computation, divided into groups.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "patterns/primitive.h"

namespace headspan {

struct QueryOrder {
  std::vector<std::ptrdiff_t> query;
  std::vector<std::ptrdiff_t> start;  // of each group; one more for the end
  std::ptrdiff_t global_groups = 0;   // the first groups, of global tokens, which see far more keys than others

  std::ptrdiff_t groups() const { return static_cast<std::ptrdiff_t>(start.size()) - 1; }
  int lanes(std::ptrdiff_t group) const { return static_cast<int>(start_of(group + 1) - start_of(group)); }
  const std::ptrdiff_t* queries(std::ptrdiff_t group) const { return query.data() + start_of(group); }

 private:
  std::ptrdiff_t start_of(std::ptrdiff_t group) const { return start[static_cast<std::size_t>(group)]; }
};

// Global tokens come first, in groups of their own.
QueryOrder make_query_order(const Grouping& grouping, std::ptrdiff_t queries, std::ptrdiff_t keys,
                            const std::vector<std::int64_t>& global_tokens);

}  // namespace headspan
