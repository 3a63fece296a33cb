// SPDX-License-Identifier: BSD-3-Clause
// Queries of one head as a group for the kernel, shared by the drivers of the forward pass, the backward pass and maps.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>

#include "base/array_view.h"
#include "base/pair_hash.h"
#include "base/tile.h"
#include "kernel/interface.h"
#include "kernel/rows/row_source.h"
#include "key_cache.h"
#include "patterns/expression.h"
#include "request.h"
#include "schedule/group_schedule.h"
#include "schedule/plan.h"
#include "schedule/stage.h"
#include "schedule/visibility.h"
#include "terms/score_term.h"

namespace headspan {

template <class T>
class QueryGroup {
 public:
  Group<T> group;                    // for the kernel
  std::ptrdiff_t const batch, head;  // of the first lane, and of all lanes unless heads are grouped together
  GroupSchedule const schedule;

  QueryGroup(const Request<T>& request, const Plan& plan, std::ptrdiff_t batch_index, std::ptrdiff_t head_index,
             const PatternStage* stage, const GroupQueries& queries, bool is_first)
      : batch(batch_index),
        head(head_index),
        schedule(request.visibility(batch_index), plan.pattern(batch_index, head_index), stage, queries,
                 static_cast<bool>(request.span),
                 request.removed ? request.removed.at(batch_index, head_index) : nullptr, tiles_at_once(request)) {
    group.lanes = schedule.lanes();
    set_rows(request);
    set_positions(request, plan);
    set_parameters(request);
    set_terms(request);
    set_dropout(request);
    if (is_first) persistent_keys_ = request.persistent_keys();
    if (!is_first || !request.sinks) leave_out_sink();
  }

  // Sinks and persistent keys count once: in the first stage or part in which a query meets keys.
  void leave_out_what_all_see() {
    leave_out_sink();
    persistent_keys_ = 0;
  }

  bool has_persistent() const { return persistent_keys_ > 0; }
  // The group for persistent keys, which have no distance and no index. Their tiles are the last ones. Calls
  // step(group, tile) for each.
  template <class Step>
  void for_each_persistent_tile(const Request<T>& request, Step step) const {
    if (!has_persistent()) return;
    Group<T> with_persistent = group;
    std::ptrdiff_t const key_head = head / request.heads_per_key_head();
    with_persistent.key = array_rows(request.persistent_key.at(key_head), request.persistent_key.stride[1]);
    with_persistent.value = array_rows(request.persistent_value.at(key_head), request.persistent_value.stride[1]);
    with_persistent.key_bias = {nullptr, 0};
    with_persistent.pair_bias = {nullptr, false, nullptr};
    with_persistent.ramp = 0;
    with_persistent.biased = false;
    with_persistent.axes = 0;
    with_persistent.dropout.first_key = uint32_t(1) << 31;  // their numbers differ from those of keys
    for (std::ptrdiff_t first = 0; first < persistent_keys_; first += kTileKeys)
      step(with_persistent,
           Tile{first, 1, nullptr, nullptr,
                static_cast<int>(std::min<std::ptrdiff_t>(persistent_keys_ - first, kTileKeys)), false});
  }

  std::ptrdiff_t head_of(int lane) const { return head + schedule.heads_on(lane); }
  // The lane's element or row of an array (batch, heads, tokens, ...).
  template <class View, class... Indices>
  auto at(const View& array, int lane, Indices... indices) const {
    return array.at(batch, head_of(lane), schedule.query(lane), indices...);
  }

  GroupPlace<T> place() const { return {batch, head, schedule.queries(), &group}; }

 private:
  void leave_out_sink() { std::fill_n(group.sink, kLanes, -std::numeric_limits<T>::infinity()); }

  // Long rows have few tiles per step: they take long, especially outside the caches, and requests to stop are checked
  // between steps.
  static int tiles_at_once(const Request<T>& request) {
    constexpr std::ptrdiff_t short_row = 256;
    std::ptrdiff_t const dims = std::max<std::ptrdiff_t>({request.head_dim(), request.value_dim(), 1}),
                         times = (dims + short_row - 1) / short_row;
    return static_cast<int>(std::max<std::ptrdiff_t>(kBatchTiles / (times * times), 1));
  }

  void set_rows(const Request<T>& request) {
    std::ptrdiff_t const key_head = head / request.heads_per_key_head();
    for (PrefetchArray<T>& array : group.prefetch) array.rows = 0;
    group.head_dim = request.head_dim();
    group.value_dim = request.value_dim();
    group.skip_masked = false;
    if (request.cache) {
      group.key = request.cache->keys(batch, key_head, request.new_key);
      group.value = request.cache->values(batch, key_head, request.new_value);
    } else {
      group.key = array_rows(request.key.at(batch, key_head), request.key.stride[2]);
      group.value = array_rows(request.value.at(batch, key_head), request.value.stride[2]);
    }
    group.key_bias = {nullptr, 0};
    if (request.key_bias) group.key_bias = {request.key_bias.at(batch, head), request.key_bias.stride[2]};
    for (int lane = 0; lane < kLanes; lane++) group.query[lane] = at(request.query, lane);
  }

  void set_positions(const Request<T>& request, const Plan& plan) {
    Visibility const visibility = request.visibility(batch);
    std::fill_n(group.key_position, kAxes, nullptr);
    const Pattern* const pattern = plan.pattern(batch, head);
    if (pattern && pattern->grid().axes) {
      group.axes = pattern->grid().axes;
      for (int axis = 0; axis < group.axes; axis++) group.key_position[axis] = plan.coordinates(batch, head, axis);
      for (int lane = 0; lane < kLanes; lane++)
        for (int axis = 0; axis < group.axes; axis++)
          group.query_position[axis][lane] = group.key_position[axis][schedule.index(lane)];
      return;
    }
    group.axes = 1;
    group.key_position[0] = visibility.key_position;
    for (int lane = 0; lane < kLanes; lane++) group.query_position[0][lane] = visibility.position(schedule.query(lane));
  }

  void set_terms(const Request<T>& request) {
    terms_ = &request.terms;
    bool removes = false;
    for (auto const& term : request.terms) removes |= term->removes();
    group.pair_bias = {request.terms.empty() ? nullptr : this, removes,
                       [](const void* self, const Tile& tile, T* room, const T** rows) {
                         static_cast<const QueryGroup*>(self)->add_up_terms(tile, room, rows);
                       }};
  }

  void set_dropout(const Request<T>& request) {
    Dropout<T>& dropout = group.dropout;
    dropout.threshold = static_cast<std::uint32_t>(std::min(std::round(request.dropout * 0x1p32), 0x1p32 - 1));
    dropout.kept = static_cast<T>(1 / (1 - request.dropout));
    dropout.first_key = 0;
    for (int lane = 0; lane < kLanes && dropout.threshold; lane++) {
      auto const index = static_cast<std::uint64_t>(schedule.index(lane));
      QueryWords const words = query_words(request.seed, static_cast<std::uint64_t>(batch),
                                           static_cast<std::uint64_t>(head_of(lane)), index);
      dropout.first[lane] = words.first, dropout.second[lane] = words.second;
    }
  }

  // A pair that one term removes stays removed, whatever other terms contain.
  static T sum(T a, T b) {
    constexpr T removed = -std::numeric_limits<T>::infinity();
    return a == removed || b == removed ? removed : a + b;
  }

  void add_up_terms(const Tile& tile, T* room, const T** rows) const {
    terms_->front()->rows(place(), tile, room, rows);
    for (std::size_t i = 1; i < terms_->size(); i++) {
      T room_of_next[kTileKeys * kLanes];
      const T* next[kTileKeys];
      (*terms_)[i]->rows(place(), tile, room_of_next, next);
      for (int r = 0; r < tile.count; r++) {
        for (int lane = 0; lane < kLanes; lane++) room[r * kLanes + lane] = sum(rows[r][lane], next[r][lane]);
        rows[r] = room + r * kLanes;
      }
    }
  }

  void set_parameters(const Request<T>& request) {
    group.biased = static_cast<bool>(request.slopes);
    group.ramp = static_cast<T>(request.span ? request.ramp : 0);
    group.softcap = static_cast<T>(request.softcap);
    for (int lane = 0; lane < kLanes; lane++) {
      group.span[lane] = static_cast<T>(schedule.span(lane));
      group.scale[lane] = static_cast<T>(request.scale);
      group.slope[lane] = request.slopes ? *request.slopes.at(batch, head_of(lane)) : T(0);
      if (request.sinks) group.sink[lane] = *request.sinks.at(batch, head_of(lane));
    }
    for (int lane = 0; lane < kLanes && request.temperature; lane++)
      group.scale[lane] = static_cast<T>(request.scale / static_cast<double>(*at(request.temperature, lane)));
  }

  const std::vector<std::shared_ptr<const ScoreTerm<T>>>* terms_;
  std::ptrdiff_t persistent_keys_ = 0;
};

// Group number `index` of a stage of a head.
template <class T>
QueryGroup<T> group_of(const Request<T>& request, const Plan& plan, std::ptrdiff_t batch, std::ptrdiff_t head,
                       std::ptrdiff_t stage_number, std::ptrdiff_t index) {
  bool const span_per_query = request.span && request.span.stride[2] != 0;
  auto const span_of = [&](std::ptrdiff_t query) { return request.span_of(batch, head, query); };
  return {request,
          plan,
          batch,
          head,
          plan.stage(batch, head, stage_number),
          group_queries(plan, batch, head, stage_number, index, span_per_query, span_of),
          stage_number == 0};
}

// All queries of the heads that share a key head.
template <class T>
QueryGroup<T> group_of_heads(const Request<T>& request, const Plan& plan, std::ptrdiff_t batch,
                             std::ptrdiff_t key_head) {
  std::ptrdiff_t const first = key_head * request.heads_per_key_head(), tokens = request.queries();
  GroupQueries queries;
  queries.lanes = static_cast<int>(request.heads_per_key_head() * tokens);
  queries.of_several_heads = true;
  for (int lane = 0; lane < kLanes; lane++) {
    std::ptrdiff_t const number = lane < queries.lanes ? lane : 0;
    queries.heads_on[lane] = number / tokens;
    queries.query[lane] = number % tokens;
    queries.span[lane] = request.span_of(batch, first + queries.heads_on[lane], queries.query[lane]);
  }
  return {request, plan, batch, first, plan.single_stage(batch, first), queries, true};
}

// Whether all queries of the heads that share a key head fit into one group and see the same keys.
template <class T>
bool takes_heads_together(const Request<T>& request, const Plan& plan) {
  std::ptrdiff_t const each = request.heads_per_key_head();
  if (each == 1 || request.queries() == 0 || request.queries() > kLanes / each) return false;
  if (!request.terms.empty() || request.key_bias) return false;
  for (std::ptrdiff_t batch = 0; batch < plan.items(); batch++)
    for (std::ptrdiff_t head = 0; head < request.heads(); head++)
      if (plan.pattern(batch, head) != plan.pattern(batch, head / each * each)) return false;
  return true;
}

}  // namespace headspan
