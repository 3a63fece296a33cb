// SPDX-License-Identifier: BSD-3-Clause
// Chunks of a head's groups for the backward pass: who owns the gradient of which key.
#pragma once

#include <stdint.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "attention/group_run.h"
#include "attention/request.h"
#include "schedule/group_key_range.h"
#include "schedule/plan.h"

namespace headspan {

struct Chunk {
  std::ptrdiff_t batch, key_head;
  std::ptrdiff_t first_group, last_group;
  std::ptrdiff_t private_first;  // private rows: keys private_first .. own_first - 1
  std::ptrdiff_t own_first, own_last;
  std::size_t private_row;  // where they start in the buffer
  std::ptrdiff_t private_count() const { return own_first - private_first; }
};

struct GroupExtent {
  std::ptrdiff_t first, last;  // keys
  double work;
};

// The keys that each group meets, over all heads that share the key head.
template <class T>
std::vector<GroupExtent> group_extents(const Request<T>& request, const Plan& plan, std::ptrdiff_t batch,
                                       std::ptrdiff_t key_head) {
  std::vector<GroupExtent> extents;
  for (std::ptrdiff_t g = 0; g < plan.most_groups(0); g++) {
    GroupExtent e{PTRDIFF_MAX, 0, 1};
    for (std::ptrdiff_t h = 0; h < request.heads_per_key_head(); h++) {
      GroupKeyRange const keys = group_of(request, plan, batch, key_head * request.heads_per_key_head() + h, 0, g)
                                     .schedule.visible_keys()
                                     .in_span;
      if (keys.empty()) continue;
      e.first = std::min(e.first, keys.first());
      e.last = std::max(e.last, keys.last());
      e.work += static_cast<double>(keys.last() - keys.first());
    }
    extents.push_back(e);
  }
  return extents;
}

// `count` chunks of about equal work.
inline std::vector<Chunk> cut(const std::vector<GroupExtent>& extents, std::ptrdiff_t count, std::ptrdiff_t keys) {
  double total = 0, done = 0;
  for (const GroupExtent& e : extents) total += e.work;
  std::vector<Chunk> chunks;
  std::ptrdiff_t const groups = static_cast<std::ptrdiff_t>(extents.size());
  std::ptrdiff_t seen = 0;  // keys before this one were met by earlier chunks
  for (std::ptrdiff_t g = 0; g < groups;) {
    Chunk chunk{0, 0, g, g, seen, seen, seen, 0};
    std::ptrdiff_t const number = static_cast<std::ptrdiff_t>(chunks.size()) + 1;
    double const until = total * static_cast<double>(number) / static_cast<double>(count);
    do {
      done += extents[static_cast<std::size_t>(g)].work;
      chunk.private_first = std::min(chunk.private_first, extents[static_cast<std::size_t>(g)].first);
      chunk.own_last = std::max(chunk.own_last, extents[static_cast<std::size_t>(g)].last);
      g++;
    } while (g < groups && (number == count || done < until));
    chunk.last_group = g;
    seen = chunk.own_last;
    chunks.push_back(chunk);
  }
  chunks.back().own_last = keys;  // keys that nobody sees get their zeros from the last one
  return chunks;
}

// Chunks for many threads, as many as leave the private buffers below a quarter of the gradients' own memory; none if
// there are enough heads, or if a few would take more. Patterns do without: their groups may meet keys anywhere.
template <class T>
std::vector<Chunk> plan_chunks(const Request<T>& request, const Plan& plan) {
  constexpr std::ptrdiff_t tasks_wanted = 16, fewest_tasks = 4;
  std::ptrdiff_t const heads = request.batch() * request.key_heads();
  if (!request.patterns.empty() || heads == 0 || heads >= tasks_wanted) return {};
  double const key_dims = request.head_dim() + request.value_dim(),
               query_rows = static_cast<double>(request.queries() * request.heads_per_key_head()) * request.head_dim() /
                            key_dims,
               room = 0.25 * (static_cast<double>(request.keys()) + query_rows);
  std::vector<std::vector<GroupExtent>> extents;  // of the heads that were asked for
  auto const chunks_of_each = [&](std::ptrdiff_t count) {
    std::vector<Chunk> chunks;
    std::size_t private_rows = 0;
    for (std::ptrdiff_t head = 0; head < heads; head++) {
      std::ptrdiff_t const batch = head / request.key_heads(), key_head = head % request.key_heads();
      if (head == static_cast<std::ptrdiff_t>(extents.size()))
        extents.push_back(group_extents(request, plan, batch, key_head));
      for (Chunk& chunk : cut(extents[static_cast<std::size_t>(head)], count, request.keys())) {
        chunk.batch = batch;
        chunk.key_head = key_head;
        chunk.private_row = private_rows;
        private_rows += static_cast<std::size_t>(chunk.private_count());
        chunks.push_back(chunk);
      }
      if (static_cast<double>(private_rows) > room * static_cast<double>(head + 1)) return std::vector<Chunk>();
    }
    return chunks;
  };
  std::ptrdiff_t count = std::min((tasks_wanted + heads - 1) / heads, plan.most_groups(0));
  for (; count > 1 && heads * count >= fewest_tasks; count /= 2)
    if (std::vector<Chunk> chunks = chunks_of_each(count); !chunks.empty()) return chunks;
  return {};
}

}  // namespace headspan
