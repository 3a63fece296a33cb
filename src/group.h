// SPDX-License-Identifier: BSD-3-Clause
// Queries of one head gathered into a group for the kernel; shared by the drivers of forward, backward and weights.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "attention.h"
#include "dispatch.h"
#include "memory.h"

namespace headspan {

template <class T>
struct QueryGroup {
  Group<T> group;
  std::ptrdiff_t batch, head;
  std::ptrdiff_t query[kLanes];

  // The group of a head's queries query_at(0) .. query_at(lanes - 1).
  template <class QueryAt>
  QueryGroup(const Problem<T>& problem, std::ptrdiff_t its_batch, std::ptrdiff_t its_head, int lanes, QueryAt query_at)
      : batch(its_batch), head(its_head) {
    std::ptrdiff_t const key_head = head / problem.heads_per_key_head();
    group.lanes = lanes;
    for (Ahead<T>& ahead : group.ahead) ahead.rows = 0;
    group.head_dim = problem.head_dim();
    group.value_dim = problem.value_dim();
    group.careful = false;
    group.ramp = static_cast<T>(problem.ramp);
    group.key = {problem.key.at(batch, key_head), problem.key.stride[2]};
    group.value = {problem.value.at(batch, key_head), problem.value.stride[2]};
    T const slope = problem.slopes ? *problem.slopes.at(batch, head) : T(0);
    group.biased = static_cast<bool>(problem.slopes);
    Band const band = problem.band();
    std::ptrdiff_t const origin = band.position(query_at(0));
    group.origin = static_cast<double>(origin);
    for (int lane = 0; lane < kLanes; lane++)  // lanes without a query repeat the first one, unseen
      query[lane] = query_at(lane < lanes ? lane : 0);
    for (int lane = 0; lane < kLanes; lane++) {
      group.query[lane] = problem.query.at(batch, head, query[lane]);
      group.position[lane] = static_cast<T>(band.position(query[lane]) - origin);
      group.span[lane] = std::numeric_limits<T>::infinity();
      group.scale[lane] = static_cast<T>(problem.scale);
      group.slope[lane] = slope;
    }
    for (int lane = 0; lane < kLanes && problem.span; lane++)
      group.span[lane] = *problem.span.at(batch, head, query[lane]);
    for (int lane = 0; lane < kLanes && problem.temperature; lane++)
      group.scale[lane] =
          static_cast<T>(problem.scale / static_cast<double>(*problem.temperature.at(batch, head, query[lane])));
  }

  GroupKeys keys(const Band& band) const { return GroupKeys(band, query, group.lanes, group.span); }
};

// Group number `index` of a head: neighbouring queries. Where each has a span of its own they are sorted by the first
// key they see, so that the lanes of a vector have most of their keys in common.
template <class T>
QueryGroup<T> neighbours(const Problem<T>& problem, std::ptrdiff_t batch, std::ptrdiff_t head, std::ptrdiff_t index) {
  std::ptrdiff_t const first = index * kLanes, left = problem.queries() - first;
  int const lanes = static_cast<int>(left < kLanes ? left : kLanes);
  if (!problem.span || problem.span.stride[2] == 0)
    return QueryGroup<T>(problem, batch, head, lanes, [first](int lane) { return first + lane; });
  struct Reach {
    double first_key;
    std::ptrdiff_t query;
  } order[kLanes];
  for (int lane = 0; lane < lanes; lane++)
    order[lane] = {static_cast<double>(lane) - static_cast<double>(*problem.span.at(batch, head, first + lane)),
                   first + lane};
  std::sort(order, order + lanes, [](const Reach& a, const Reach& b) {
    return a.first_key != b.first_key ? a.first_key < b.first_key : a.query < b.query;
  });
  return QueryGroup<T>(problem, batch, head, lanes, [&order](int lane) { return order[lane].query; });
}

// The rows of that group in an array of (batch, heads, tokens, ...).
template <class T>
Ahead<std::remove_const_t<T>> rows_ahead(const ArrayView<T, 4>& array, std::ptrdiff_t batch, std::ptrdiff_t head,
                                         std::ptrdiff_t index) {
  std::ptrdiff_t const first = index * kLanes, left = array.shape[2] - first;
  return {array.at(batch, head, first), array.stride[2], static_cast<int>(left < kLanes ? left : kLanes),
          static_cast<int>(array.shape[3])};
}

// Scratch of one thread: the kernel's, and a batch of tiles.
template <class T>
struct Scratch {
  TileBatch* tiles;
  void* kernel;

  Scratch(const Kernel<T>& k, int head_dim, int value_dim) {
    static_assert(sizeof(TileBatch) % 64 == 0, "the kernel's part stays aligned");
    char* const base = thread_scratch(sizeof(TileBatch) + k.scratch_bytes(head_dim, value_dim));
    tiles = reinterpret_cast<TileBatch*>(base);
    kernel = base + sizeof(TileBatch);
  }
};

// Runs step(tiles, count) over all tiles; false if it was stopped, or if a step says so.
template <class Step>
bool for_each_batch(const GroupKeys& keys, TileBatch& batch, const StopCheck& stop, Step step) {
  TileList list(keys);
  for (int count; (count = list.next(batch)) > 0;) {
    if (stop() || !step(batch.tiles, count)) return false;
  }
  return true;
}

// The forward pass of a group, done again with care when a masked pair may have spoilt it; false if it was stopped.
template <class T>
bool run_forward(const Kernel<T>& kernel, QueryGroup<T>& queries, const GroupKeys& keys, ForwardRows<T>& rows,
                 const Scratch<T>& scratch, const StopCheck& stop) {
  for (queries.group.careful = false;; queries.group.careful = true) {
    kernel.forward_begin(queries.group, scratch.kernel);
    auto const step = [&](const Tile* tiles, int count) {
      kernel.forward_step(queries.group, tiles, count, scratch.kernel);
      return true;
    };
    if (!for_each_batch(keys, *scratch.tiles, stop, step)) return false;
    if (kernel.forward_end(queries.group, rows, scratch.kernel) || queries.group.careful) return true;
  }
}

template <class T>
T log_sum_exp(const ForwardRows<T>& rows, int lane) {
  constexpr double ln2 = 0.69314718055994530942;
  if (rows.sum[lane] == 0) return -std::numeric_limits<T>::infinity();
  return static_cast<T>(static_cast<double>(rows.maximum[lane]) * ln2 + std::log(rows.sum[lane]));
}

// One thread for what is nearly done before a second one has woken up.
template <class T>
int useful_threads(const Problem<T>& problem, const Control& control) {
  double const lanes = static_cast<double>(std::max<std::ptrdiff_t>(problem.queries(), 16));  // a vector is the least
  double const flops = 4.0 * static_cast<double>(problem.batch() * problem.heads()) * lanes *
                       static_cast<double>(problem.keys()) * problem.head_dim();
  return flops < 1e7 ? 1 : control.threads;
}

}  // namespace headspan
