// SPDX-License-Identifier: BSD-3-Clause
// Queries of one head gathered into a group for the kernel; shared by the drivers of forward, backward and maps.
#pragma once

#include <algorithm>
#include <limits>

#include "kernel/interface.h"
#include "request.h"
#include "schedule/group_schedule.h"

namespace headspan {

template <class T>
class QueryGroup {
 public:
  Group<T> group;  // for the kernel
  std::ptrdiff_t const batch, head;
  GroupSchedule const schedule;

  QueryGroup(const Request<T>& request, const Plan& plan, std::ptrdiff_t its_batch, std::ptrdiff_t its_head,
             const PatternStage* stage, const GroupQueries& queries, bool is_first)
      : batch(its_batch),
        head(its_head),
        schedule(request.visibility(its_batch), plan.pattern(its_batch, its_head), stage, queries,
                 static_cast<bool>(request.span), request.removed ? request.removed.at(its_batch, its_head) : nullptr,
                 tiles_at_once(request)) {
    group.lanes = schedule.lanes();
    set_rows(request);
    set_positions(request, plan);
    set_parameters(request);
    set_terms(request);
    if (!is_first || !request.sinks) leave_out_sink();
  }

  // A sink counts once: where the keys of a query are met in several passes or parts, in the first of them.
  void leave_out_sink() { std::fill_n(group.sink, kLanes, -std::numeric_limits<T>::infinity()); }

  GroupPlace<T> place() const { return {batch, head, schedule.queries(), &group}; }

 private:
  // Long rows take long, all the more as they leave the caches, and between steps one asks whether to go on.
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
    group.key = {request.key.at(batch, key_head), request.key.stride[2]};
    group.value = {request.value.at(batch, key_head), request.value.stride[2]};
    group.key_bias = {nullptr, 0};
    if (request.key_bias) group.key_bias = {request.key_bias.at(batch, head), request.key_bias.stride[2]};
    Rows<const T> const rows{request.query.at(batch, head), request.query.stride[2]};
    for (int lane = 0; lane < kLanes; lane++) group.query[lane] = rows.row(schedule.query(lane));
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
    group.pair_bias = {request.terms.empty() ? nullptr : this,
                       [](const void* self, const Tile& tile, T* room, const T** rows) {
                         static_cast<const QueryGroup*>(self)->add_up_terms(tile, room, rows);
                       }};
  }

  void add_up_terms(const Tile& tile, T* room, const T** rows) const {
    terms_->front()->rows(place(), tile, room, rows);
    for (std::size_t i = 1; i < terms_->size(); i++) {
      T room_of_next[kTileKeys * kLanes];
      const T* next[kTileKeys];
      (*terms_)[i]->rows(place(), tile, room_of_next, next);
      for (int r = 0; r < tile.count; r++) {
        for (int lane = 0; lane < kLanes; lane++) room[r * kLanes + lane] = rows[r][lane] + next[r][lane];
        rows[r] = room + r * kLanes;
      }
    }
  }

  void set_parameters(const Request<T>& request) {
    T const slope = request.slopes ? *request.slopes.at(batch, head) : T(0);
    group.biased = static_cast<bool>(request.slopes);
    group.ramp = static_cast<T>(request.span ? request.ramp : 0);
    group.softcap = static_cast<T>(request.softcap);
    if (request.sinks) std::fill_n(group.sink, kLanes, *request.sinks.at(batch, head));
    for (int lane = 0; lane < kLanes; lane++) {
      group.span[lane] = static_cast<T>(schedule.span(lane));
      group.scale[lane] = static_cast<T>(request.scale);
      group.slope[lane] = slope;
    }
    for (int lane = 0; lane < kLanes && request.temperature; lane++)
      group.scale[lane] = static_cast<T>(
          request.scale / static_cast<double>(*request.temperature.at(batch, head, schedule.query(lane))));
  }

  const std::vector<std::shared_ptr<const ScoreTerm<T>>>* terms_;
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

}  // namespace headspan
