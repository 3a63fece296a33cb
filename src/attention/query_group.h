// SPDX-License-Identifier: BSD-3-Clause
// Queries of one head gathered into a group for the kernel; shared by the drivers of forward, backward and weights.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "base/buffer_pool.h"
#include "base/span_mask.h"
#include "kernel/dispatch.h"
#include "request.h"
#include "schedule/plan.h"
#include "schedule/tile_list.h"

namespace headspan {

template <class T>
class QueryGroup {
 public:
  Group<T> group;
  std::ptrdiff_t batch, head;
  std::ptrdiff_t query[kLanes];

  // The group of a head's queries query_at(0) .. query_at(lanes - 1), which see what a pass of the plan lets them see.
  template <class QueryAt>
  QueryGroup(const Problem<T>& problem, const Plan& plan, std::ptrdiff_t its_batch, std::ptrdiff_t its_head,
             const Pass* pass, int lanes, QueryAt query_at)
      : batch(its_batch), head(its_head), band_(problem.band(its_batch)), pattern_(plan.pattern(its_head)) {
    for (int lane = 0; lane < kLanes; lane++) {  // lanes without a query repeat the first one, unseen
      query[lane] = query_at(lane < lanes ? lane : 0);
      index_[lane] = band_.index(query[lane]);
    }
    group.lanes = lanes;
    set_rows(problem);
    set_positions(plan);
    set_parameters(problem);
    set_choice(problem, pass);
  }

  QueryGroup(const QueryGroup&) = delete;  // parts of it point to others
  QueryGroup& operator=(const QueryGroup&) = delete;

  Reach reach() const {
    T unlimited[kLanes];
    std::fill_n(unlimited, kLanes, std::numeric_limits<T>::infinity());
    Reach reach{GroupKeys(band_, query, group.lanes, choice_.grid ? unlimited : group.span), {}};
    if (choice_.free_keys) reach.free.emplace(band_, query, group.lanes, unlimited);
    return reach;
  }
  TileList tiles(const Reach& reach) const { return TileList(reach, {index_, group.lanes}, choice_); }

  // A number by which the tiles of all groups of a pass ascend that have the same global tokens: keys below it are done
  // with after this tile.
  std::ptrdiff_t rank_after(const Tile& tile) const {
    std::ptrdiff_t const free_keys = choice_.free_keys ? static_cast<std::ptrdiff_t>(choice_.free_keys->size()) : 0;
    if (free_keys && tile.indices >= choice_.free_keys->data() && tile.indices < choice_.free_keys->data() + free_keys)
      return tile.indices + tile.count - choice_.free_keys->data();
    return free_keys + key_index(tile, tile.count - 1) + 1;
  }
  // False for a group of several classes, which takes their keys class by class.
  bool ascends() const {
    std::ptrdiff_t const stride = choice_.pass ? choice_.pass->stride : 1;
    return std::all_of(index_, index_ + group.lanes, [&](std::ptrdiff_t i) { return (i - index_[0]) % stride == 0; });
  }
  const Choice& choice() const { return choice_; }

 private:
  void set_rows(const Problem<T>& problem) {
    std::ptrdiff_t const key_head = head / problem.heads_per_key_head();
    for (Ahead<T>& ahead : group.ahead) ahead.rows = 0;
    group.head_dim = problem.head_dim();
    group.value_dim = problem.value_dim();
    group.careful = false;
    group.key = {problem.key.at(batch, key_head), problem.key.stride[2]};
    group.value = {problem.value.at(batch, key_head), problem.value.stride[2]};
    group.key_bias = {nullptr, 0};
    if (problem.key_bias) group.key_bias = {problem.key_bias.at(batch, head), problem.key_bias.stride[2]};
    Rows<const T> const rows{problem.query.at(batch, head), problem.query.stride[2]};
    for (int lane = 0; lane < kLanes; lane++) group.query[lane] = rows.row(query[lane]);
  }

  void set_positions(const Plan& plan) {
    std::fill_n(group.key_position, kAxes, nullptr);
    if (pattern_ && pattern_->grid().axes) {
      group.axes = pattern_->grid().axes;
      for (int axis = 0; axis < group.axes; axis++) group.key_position[axis] = plan.coordinates(head, axis);
      for (int lane = 0; lane < kLanes; lane++)
        for (int axis = 0; axis < group.axes; axis++)
          group.query_position[axis][lane] = group.key_position[axis][index_[lane]];
      return;
    }
    group.axes = 1;
    group.key_position[0] = band_.key_position;
    for (int lane = 0; lane < kLanes; lane++) group.query_position[0][lane] = band_.position(query[lane]);
  }

  void set_parameters(const Problem<T>& problem) {
    T const slope = problem.slopes ? *problem.slopes.at(batch, head) : T(0);
    group.biased = static_cast<bool>(problem.slopes);
    group.ramp = static_cast<T>(problem.span ? problem.ramp : 0);
    for (int lane = 0; lane < kLanes; lane++) {
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

  void set_choice(const Problem<T>& problem, const Pass* pass) {
    choice_.pass = pass;
    choice_.keys = problem.keys();
    // Long rows take long, all the more as they leave the caches, and between steps one asks whether to go on.
    constexpr std::ptrdiff_t short_row = 256;
    std::ptrdiff_t const times =
        (std::max<std::ptrdiff_t>({problem.head_dim(), problem.value_dim(), 1}) + short_row - 1) / short_row;
    choice_.tiles_at_once = static_cast<int>(std::max<std::ptrdiff_t>(kBatchTiles / (times * times), 1));
    if (problem.removed) choice_.removed = problem.removed.at(batch, head);
    if (!pattern_ || !problem.span) return;
    std::vector<std::int64_t> const& tokens = pattern_->global_tokens();
    if (!tokens.empty()) choice_.free_keys = &tokens;
    for (int lane = 0; lane < kLanes && !tokens.empty(); lane++)
      if (std::binary_search(tokens.begin(), tokens.end(), index_[lane]))
        group.span[lane] = std::numeric_limits<T>::infinity();
    if (!pattern_->grid().axes) return;
    choice_.grid = &pattern_->grid();
    for (int lane = 0; lane < kLanes; lane++) grid_reach_[lane] = extent(band_, group.span[lane]).reach;
    choice_.grid_reach = grid_reach_;
  }

  Band const band_;
  const Pattern* const pattern_;
  std::ptrdiff_t index_[kLanes];
  std::ptrdiff_t grid_reach_[kLanes];
  Choice choice_;
};

// Group number `index` of a pass of a head. Where each of neighbouring queries has a span of its own they are sorted by
// the first key they see, so that the lanes of a vector have most of their keys in common.
template <class T>
QueryGroup<T> group_of(const Problem<T>& problem, const Plan& plan, std::ptrdiff_t batch, std::ptrdiff_t head,
                       std::ptrdiff_t pass_number, std::ptrdiff_t index) {
  const Pass* const pass = plan.pass(head, pass_number);
  std::ptrdiff_t const first = index * kLanes, left = problem.queries() - first;
  int const lanes = pass ? pass->order.lanes(index) : static_cast<int>(left < kLanes ? left : kLanes);
  const std::ptrdiff_t* const chosen = pass ? pass->order.queries(index) : nullptr;
  auto const query_at = [&](int lane) { return chosen ? chosen[lane] : first + lane; };
  bool const along_tokens = !pass || (pass->stride == 1 && !plan.coordinates(head, 0));
  if (!problem.span || problem.span.stride[2] == 0 || !along_tokens)
    return QueryGroup<T>(problem, plan, batch, head, pass, lanes, query_at);
  // A key in the upper bits, the lane in the lower ones, since plain numbers are sorted faster.
  constexpr double furthest = 1e15;
  std::int64_t order[kLanes];
  for (int lane = 0; lane < lanes; lane++) {
    std::ptrdiff_t const query = query_at(lane);
    double const span = static_cast<double>(*problem.span.at(batch, head, query));
    order[lane] = static_cast<std::int64_t>(static_cast<double>(query) - std::min(span, furthest)) * kLanes + lane;
  }
  std::sort(order, order + lanes);
  return QueryGroup<T>(problem, plan, batch, head, pass, lanes,
                       [&](int lane) { return query_at(static_cast<int>(order[lane] & (kLanes - 1))); });
}

// kLanes rows from `first` on of an array of (batch, heads, tokens, ...), less those that it does not have.
template <class T>
Ahead<std::remove_const_t<T>> rows_from(const ArrayView<T, 4>& array, std::ptrdiff_t batch, std::ptrdiff_t head,
                                        std::ptrdiff_t first) {
  std::ptrdiff_t const last = std::min(first + kLanes, array.shape[2]);
  first = std::max<std::ptrdiff_t>(first, 0);
  if (first >= last) return {};
  return {array.at(batch, head, first), array.stride[2], nullptr, static_cast<int>(last - first),
          static_cast<int>(array.shape[3])};
}

// The rows of group number `index` of a pass.
template <class T>
Ahead<std::remove_const_t<T>> rows_ahead(const ArrayView<T, 4>& array, const Pass* pass, std::ptrdiff_t batch,
                                         std::ptrdiff_t head, std::ptrdiff_t index) {
  if (!pass) return rows_from(array, batch, head, index * kLanes);
  return {array.at(batch, head), array.stride[2], pass->order.queries(index), pass->order.lanes(index),
          static_cast<int>(array.shape[3])};
}

// The rows of keys that group number `index` of a pass will be the first to need. Neighbours have most of their keys in
// common: new are those from `first` on. Where the queries of a group are far apart its keys are new ones, and most
// often those of its own tokens.
template <class T>
Ahead<std::remove_const_t<T>> new_keys_ahead(const ArrayView<T, 4>& array, const Pass* pass, std::ptrdiff_t batch,
                                             std::ptrdiff_t key_head, std::ptrdiff_t index, std::ptrdiff_t first) {
  if (!pass || pass->plain()) return rows_from(array, batch, key_head, first);
  bool const same_tokens = static_cast<std::ptrdiff_t>(pass->order.query.size()) == array.shape[2];
  return same_tokens ? rows_ahead(array, pass, batch, key_head, index) : Ahead<std::remove_const_t<T>>{};
}

// Whether the rows of a result should be written past the caches: whole lines of an array that outgrows them, which
// they would have to read before they change it.
template <class T>
bool past_caches(const Kernel<T>& kernel, const ArrayView<T, 4>& result) {
  constexpr std::size_t line = 64, least = std::size_t(4) << 20;
  std::size_t bytes = sizeof(T), odd = reinterpret_cast<std::uintptr_t>(result.data);
  for (std::ptrdiff_t length : result.shape) bytes *= static_cast<std::size_t>(length);
  for (int axis = 0; axis < 3; axis++) odd |= static_cast<std::size_t>(result.stride[axis]) * sizeof(T);
  odd |= static_cast<std::size_t>(result.shape[3]) * sizeof(T);
  return kernel.stores_past_caches && bytes >= least && odd % line == 0;
}

// Scratch of one thread: the kernel's, a batch of tiles, and room for so many numbers.
template <class T>
struct Scratch {
  TileBatch* tiles;
  void* kernel;

  T* copies;

  Scratch(const Kernel<T>& k, int head_dim, int value_dim, std::size_t copied = 0) {
    static_assert(sizeof(TileBatch) % 64 == 0, "the kernel's part stays aligned");
    std::size_t const kernel_bytes = (k.scratch_bytes(head_dim, value_dim) + 63) / 64 * 64;
    char* const base = thread_scratch(sizeof(TileBatch) + kernel_bytes + copied * sizeof(T));
    tiles = reinterpret_cast<TileBatch*>(base);
    kernel = base + sizeof(TileBatch);
    copies = reinterpret_cast<T*>(base + sizeof(TileBatch) + kernel_bytes);
  }
};

// Runs step(tiles, count) over all tiles; false if it was stopped, or if a step says so.
template <class Step>
bool for_each_batch(TileList tiles, TileBatch& batch, const StopCheck& stop, Step step) {
  for (int count; (count = tiles.next(batch)) > 0;) {
    if (stop() || !step(batch.tiles, count)) return false;
    if (count < tiles.at_once()) return true;
  }
  return true;
}

// The forward pass of a group, done again with care when a masked pair may have spoilt it; false if it was stopped.
// for_each_tiles(step) is to call step(tiles, count) for all its tiles and to return false if it was stopped.
template <class T, class ForEachTiles>
bool run_forward(const Kernel<T>& kernel, QueryGroup<T>& queries, ForwardRows<T>& rows, const Scratch<T>& scratch,
                 ForEachTiles for_each_tiles) {
  for (queries.group.careful = false;; queries.group.careful = true) {
    kernel.forward_begin(queries.group, scratch.kernel);
    auto const step = [&](const Tile* tiles, int count) {
      kernel.forward_step(queries.group, tiles, count, scratch.kernel);
      return true;
    };
    if (!for_each_tiles(step)) return false;
    if (kernel.forward_end(queries.group, rows, scratch.kernel) || queries.group.careful) return true;
  }
}

template <class T>
bool run_forward(const Kernel<T>& kernel, QueryGroup<T>& queries, const Reach& reach, ForwardRows<T>& rows,
                 const Scratch<T>& scratch, const StopCheck& stop) {
  return run_forward(kernel, queries, rows, scratch,
                     [&](auto step) { return for_each_batch(queries.tiles(reach), *scratch.tiles, stop, step); });
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
