// SPDX-License-Identifier: BSD-3-Clause
#include "query_order.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/tile.h"
#include "patterns/grid.h"
#include "patterns/lane_set.h"
#include "patterns/primitive.h"

namespace headspan {

namespace {

// Gathers queries into groups: whole sections share a group as long as they fit, unless they must be apart; larger ones
// are divided.
class Grouper {
 public:
  Grouper(QueryOrder& order, bool apart) : order_(order), apart_(apart) { order_.start.push_back(0); }

  void section(const std::vector<std::ptrdiff_t>& queries) {
    constexpr std::ptrdiff_t most = kLanes;
    std::ptrdiff_t const size = static_cast<std::ptrdiff_t>(queries.size());
    // A group of several sections leaves at most half of its lanes empty.
    if (open() + size > most) close();
    for (auto query = queries.begin(); query != queries.end();) {
      if (open() == most) close();
      auto const first = query;
      query += std::min(most - open(), queries.end() - query);
      order_.query.insert(order_.query.end(), first, query);
    }
    if (apart_ || size > most / 2) close();
  }
  void close() {
    if (open() > 0) order_.start.push_back(static_cast<std::ptrdiff_t>(order_.query.size()));
  }

 private:
  std::ptrdiff_t open() const { return static_cast<std::ptrdiff_t>(order_.query.size()) - order_.start.back(); }
  QueryOrder& order_;
  bool const apart_;
};

// Calls visit(coordinate) for the box first .. last - 1, the last axis fastest.
template <class Visit>
void for_each_in_box(const std::ptrdiff_t* first, const std::ptrdiff_t* last, Visit visit) {
  std::ptrdiff_t at[kGridAxes];
  for (at[0] = first[0]; at[0] < last[0]; at[0]++)
    for (at[1] = first[1]; at[1] < last[1]; at[1]++)
      for (at[2] = first[2]; at[2] < last[2]; at[2]++) visit(at);
}

// Sections are boxes of about 64 tokens of one class, because such queries have most of their neighbours in common. In
// a plane 16 lanes then form a square, and the keys of neighbouring squares begin and end row by row. Queries that
// share their keys stay together.
template <class Section>
void grid_sections(const Grouping& grouping, Section section) {
  constexpr std::ptrdiff_t edges[][kGridAxes] = {{kLanes, 1, 1}, {16, 4, 1}, {4, 4, 4}};
  std::ptrdiff_t edge[kGridAxes];
  for (int axis = 0; axis < kGridAxes; axis++) {
    std::ptrdiff_t const most = edges[grouping.grid.axes - 1][axis], together = grouping.sharing[axis];
    edge[axis] = std::max<std::ptrdiff_t>(most / together, 1) * together;
  }
  const std::ptrdiff_t *const shape = grouping.grid.shape, *const step = grouping.dilation;
  std::ptrdiff_t const zero[kGridAxes] = {};
  for_each_in_box(zero, step, [&](const std::ptrdiff_t* rest) {
    std::ptrdiff_t length[kGridAxes], blocks[kGridAxes];
    for (int axis = 0; axis < kGridAxes; axis++) {
      length[axis] = (shape[axis] - rest[axis] + step[axis] - 1) / step[axis];
      blocks[axis] = axis < grouping.grid.axes ? (length[axis] + edge[axis] - 1) / edge[axis] : 1;
    }
    std::vector<std::ptrdiff_t> tokens;
    for_each_in_box(zero, blocks, [&](const std::ptrdiff_t* block) {
      std::ptrdiff_t first[kGridAxes], last[kGridAxes];
      for (int axis = 0; axis < kGridAxes; axis++) {
        first[axis] = block[axis] * edge[axis];
        last[axis] = std::min(length[axis], first[axis] + edge[axis]);
      }
      tokens.clear();
      for_each_in_box(first, last, [&](const std::ptrdiff_t* at) {
        std::ptrdiff_t token = 0;
        for (int axis = 0; axis < grouping.grid.axes; axis++)
          token = token * shape[axis] + rest[axis] + step[axis] * at[axis];
        tokens.push_back(grouping.grid.first + token);
      });
      section(tokens);
    });
  });
}

}  // namespace

QueryOrder make_query_order(const Grouping& grouping, std::ptrdiff_t queries, std::ptrdiff_t keys,
                            const std::vector<std::int64_t>& global_tokens) {
  QueryOrder order;
  order.query.reserve(static_cast<std::size_t>(queries));
  order.start.reserve(static_cast<std::size_t>(queries / kLanes + 2));
  Grouper grouper(order, grouping.apart);
  std::ptrdiff_t const before = keys - queries;  // query = index - before
  std::vector<std::ptrdiff_t> section;
  for (auto token = global_tokens.begin(); token != global_tokens.end(); ++token)
    if (*token >= before && (token == global_tokens.begin() || *token != token[-1])) section.push_back(*token - before);
  std::vector<char> is_global(section.empty() ? 0 : static_cast<std::size_t>(queries));
  for (std::ptrdiff_t query : section) is_global[static_cast<std::size_t>(query)] = true;
  auto const add = [&](std::vector<std::ptrdiff_t>& queries_of_section) {
    if (!is_global.empty())
      queries_of_section.erase(
          std::remove_if(queries_of_section.begin(), queries_of_section.end(),
                         [&](std::ptrdiff_t query) { return is_global[static_cast<std::size_t>(query)]; }),
          queries_of_section.end());
    grouper.section(queries_of_section);
  };
  grouper.section(section);
  grouper.close();
  section.clear();
  order.global_groups = order.groups();
  if (grouping.grid.axes) {
    std::ptrdiff_t const first = grouping.grid.first, last = first + grouping.grid.tokens();
    for (std::ptrdiff_t index = before; index < first; index++) section.push_back(index - before);
    for (std::ptrdiff_t index = std::max(before, last); index < keys; index++) section.push_back(index - before);
    add(section);  // outside the grid
    grid_sections(grouping, [&](std::vector<std::ptrdiff_t>& tokens) {
      for (std::ptrdiff_t& token : tokens) token -= before;
      if (before > 0)
        tokens.erase(std::remove_if(tokens.begin(), tokens.end(), [](std::ptrdiff_t query) { return query < 0; }),
                     tokens.end());
      add(tokens);
    });
  } else {
    std::ptrdiff_t const stride = grouping.stride;
    for (std::ptrdiff_t c = 0; c < std::min(stride, queries); c++)
      for (std::ptrdiff_t query = c, end = queries; query < queries; end = queries) {
        if (grouping.section)
          end = std::min(end, (floor_div(query + before, grouping.section) + 1) * grouping.section - before);
        section.resize(static_cast<std::size_t>((end - query + stride - 1) / stride));
        for (std::ptrdiff_t& member : section) member = query, query += stride;
        add(section);
      }
  }
  grouper.close();
  return order;
}

}  // namespace headspan
