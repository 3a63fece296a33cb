// SPDX-License-Identifier: BSD-3-Clause
// The forward pass. Groups of queries are computed head by head, so that the keys and values of one head stay in the
// cache. If there are few groups with many keys, groups are split over their keys.
#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "base/buffer_pool.h"
#include "base/parallel.h"
#include "base/tile.h"
#include "class_rows.h"
#include "group_run.h"
#include "kernel/interface.h"
#include "prefetch.h"
#include "query_group.h"
#include "request.h"
#include "schedule/stage.h"
#include "schedule/tile_list.h"
#include "sums/split_keys.h"
#include "tasks.h"

namespace headspan {

namespace {

// The state of one call, which would otherwise be a dozen arguments.
template <class T>
class ForwardPass {
 public:
  ForwardPass(const Request<T>& request, const ForwardViews<T>& results)
      : request_(request),
        results_(results),
        kernel_(active_kernel<T>()),
        plan_(request.patterns, request.heads(), request.queries(), request.keys()),
        together_(takes_heads_together(request, plan_)),
        past_caches_(plan_.stages() == 1 && past_caches(kernel_, results.out)) {}

  void run(const Control& control) {
    if (together_) {
      SplitKeys<T> parts = split_keys(0);
      parallel_for(parts.count(), useful_threads(request_, control), control.interrupted,
                   [&](std::ptrdiff_t task, const StopCheck& stop) { run_part(0, parts, parts.at(task), stop); });
      return merge_parts(0, parts);
    }
    // A later stage adds to the results of earlier ones and needs their statistics.
    if (plan_.stages() > 1 && !results_.statistics) keep_statistics();
    for (std::ptrdiff_t stage = 0; stage < plan_.stages(); stage++) {
      SplitKeys<T> parts = split_keys(stage);
      run_stage(stage, parts, control);
      merge_parts(stage, parts);
    }
  }

 private:
  // The units that have groups of their own: heads, or the heads that share a key head.
  std::ptrdiff_t heads_of_item() const { return together_ ? request_.key_heads() : request_.heads(); }
  std::ptrdiff_t heads() const { return request_.batch() * heads_of_item(); }

  void keep_statistics() {
    std::ptrdiff_t const tokens = request_.queries();
    statistics_ = Buffer<T>(checked_product(static_cast<std::size_t>(heads() * tokens), 2));
    results_.statistics = {statistics_.data(),
                           {request_.batch(), request_.heads(), tokens, 2},
                           {request_.heads() * tokens * 2, tokens * 2, 2, 1}};
  }

  const PatternStage* stage_of(std::ptrdiff_t head, std::ptrdiff_t stage) const {
    return plan_.stage(head / request_.heads(), head % request_.heads(), stage);
  }
  QueryGroup<T> group(std::ptrdiff_t stage, std::ptrdiff_t head, std::ptrdiff_t index) const {
    std::ptrdiff_t const item = head / heads_of_item(), in_item = head % heads_of_item();
    return together_ ? group_of_heads(request_, plan_, item, in_item)
                     : group_of(request_, plan_, item, in_item, stage, index);
  }

  // Parts of groups and whole groups are separate tasks.
  void run_stage(std::ptrdiff_t stage, SplitKeys<T>& parts, const Control& control) const {
    int const threads = useful_threads(request_, control);
    std::optional<Tasks<T>> group_tasks;
    if (parts.groups() < plan_.most_groups(stage)) group_tasks.emplace(request_, plan_, stage, threads);
    parallel_for(parts.count() + (group_tasks ? group_tasks->count() : 0), threads, control.interrupted,
                 [&](std::ptrdiff_t task, const StopCheck& stop) {
                   task < parts.count() ? run_part(stage, parts, parts.at(task), stop)
                                        : run_task(stage, group_tasks->at(task - parts.count()), parts, stop);
                 });
  }

  // ---- groups split over their keys: all if there are too few to be tasks, otherwise those of global tokens

  SplitKeys<T> split_keys(std::ptrdiff_t stage) const {
    constexpr std::ptrdiff_t tasks_wanted = 64, least_keys = 2048;
    auto const splits_of = [&](std::ptrdiff_t groups) {
      return std::min(tasks_wanted / std::max<std::ptrdiff_t>(heads() * groups, 1), request_.keys() / least_keys);
    };
    if (together_) {
      std::vector<std::ptrdiff_t> one_each(static_cast<std::size_t>(request_.key_heads()), 1);
      std::ptrdiff_t const lanes = request_.queries() * request_.heads_per_key_head();
      return SplitKeys<T>(request_.batch(), std::move(one_each), std::max<std::ptrdiff_t>(splits_of(1), 1), lanes,
                          request_.value_dim());
    }
    bool const all = splits_of(plan_.most_groups(stage)) >= 2;
    std::vector<std::ptrdiff_t> groups;
    for (std::ptrdiff_t head = 0; head < plan_.items() * request_.heads(); head++) {
      const PatternStage* const stage_of_head = stage_of(head, stage);
      groups.push_back(all             ? plan_.groups(head / request_.heads(), head % request_.heads(), stage)
                       : stage_of_head ? stage_of_head->order.global_groups
                                       : 0);
    }
    std::ptrdiff_t const most = groups.empty() ? 0 : *std::max_element(groups.begin(), groups.end()),
                         splits = splits_of(most);
    if (splits < 2) groups.assign(groups.size(), 0);
    std::ptrdiff_t const lanes = std::min<std::ptrdiff_t>(kLanes, request_.queries());
    return SplitKeys<T>(request_.batch() / plan_.items(), std::move(groups), splits, lanes, request_.value_dim());
  }

  void run_part(std::ptrdiff_t stage, SplitKeys<T>& parts, const typename SplitKeys<T>::Part& part,
                const StopCheck& stop) const {
    QueryGroup<T> queries = group(stage, part.head, part.group);
    if (part.split > 0) queries.leave_out_what_all_see();
    VisibleKeys keys = queries.schedule.visible_keys();
    keys.clip_to_split(part.split, parts.splits());
    ThreadWorkspace<T> const workspace(kernel_, request_.head_dim(), request_.value_dim());
    PartialSoftmax<T>* const partial = parts.rows(part);
    ForwardRows<T> rows;
    rows.past_caches = false;
    for (int lane = 0; lane < queries.group.lanes; lane++) rows.out[lane] = partial[lane].out;
    if (!run_forward(kernel_, request_, queries, keys, rows, workspace, stop)) return;
    for (int lane = 0; lane < queries.group.lanes; lane++) {
      partial[lane].maximum = rows.maximum[lane];
      partial[lane].sum = rows.sum[lane];
    }
  }

  void merge_parts(std::ptrdiff_t stage, SplitKeys<T>& parts) const {
    for (std::ptrdiff_t task = 0; task < parts.count(); task += parts.splits()) {
      typename SplitKeys<T>::Part const first = parts.at(task);
      store_merged(stage, group(stage, first.head, first.group), parts.splits(),
                   [&](std::ptrdiff_t split, int lane) { return parts.rows({first.head, first.group, split})[lane]; });
    }
  }

  // ---- whole groups

  // The groups of a task except for split ones, in descending order. Each prefetches the rows of the next one.
  void run_task(std::ptrdiff_t stage, const typename Tasks<T>::Task& task, const SplitKeys<T>& parts,
                const StopCheck& stop) const {
    std::ptrdiff_t const first = std::max(task.first, parts.groups(task.head));
    if (first >= task.last) return;
    const PatternStage* const stage_of_head = stage_of(task.head, stage);
    ThreadWorkspace<T> const workspace(kernel_, request_.head_dim(), request_.value_dim(),
                                       ClassRows<T>::elements(request_, stage_of_head, task.classes));
    ClassRows<T> copies(request_, stage_of_head, task.head / request_.heads(),
                        task.head % request_.heads() / request_.heads_per_key_head(), task.classes, workspace.copies);
    for (std::ptrdiff_t index = task.last - 1; index >= first && !stop(); index--)
      run_group(stage, task.head, index, index > first, copies, workspace, stop);
  }

  void run_group(std::ptrdiff_t stage, std::ptrdiff_t head, std::ptrdiff_t index, bool has_next, ClassRows<T>& copies,
                 const ThreadWorkspace<T>& workspace, const StopCheck& stop) const {
    QueryGroup<T> queries = group(stage, head, index);
    copies.redirect(queries);
    ForwardRows<T> rows;
    rows.past_caches = past_caches_;
    std::vector<T> later(static_cast<std::size_t>(stage == 0 ? 0 : kLanes * request_.value_dim()));
    for (int lane = 0; lane < queries.group.lanes; lane++)
      rows.out[lane] = stage == 0 ? out_row(queries, lane) : later.data() + lane * request_.value_dim();
    VisibleKeys const keys = queries.schedule.visible_keys();
    auto const for_each_tiles = [&](auto step) {
      return for_each_batch(queries.schedule.tiles(keys), *workspace.tiles, stop, [&](const Tile* some, int count) {
        if (stage == 0 && has_next) fetch_next(queries, index - 1, some, count);
        return step(some, count);
      });
    };
    if (!run_forward(kernel_, request_, queries, rows, workspace, for_each_tiles)) return;
    if (stage == 0) {
      for (int lane = 0; lane < queries.group.lanes; lane++)
        store_statistics(queries, lane, rows.maximum[lane], rows.sum[lane]);
      return;
    }
    store_merged(stage, queries, 1, [&](std::ptrdiff_t, int lane) {
      return PartialSoftmax<T>{rows.out[lane], rows.maximum[lane], rows.sum[lane]};
    });
  }

  // The rows that group `next`, the preceding one, needs first, to be prefetched during the tiles of this group.
  void fetch_next(QueryGroup<T>& queries, std::ptrdiff_t next, const Tile* tiles, int count) const {
    static_assert(kPrefetchArrays >= 4, "as many arrays as here");
    PrefetchArray<T>* const arrays = queries.group.prefetch;
    const PatternStage* const stage = queries.schedule.rules().stage;
    std::ptrdiff_t const batch = queries.batch, head = queries.head, key_head = head / request_.heads_per_key_head();
    arrays[0] = prefetch_group(request_.query, stage, batch, head, next);
    if (queries.group.key.step > 1 || request_.cache) return;  // keys are copies, or rows of a cache in any place
    if (!past_caches_) arrays[1] = prefetch_group(results_.out, stage, batch, head, next);
    const Tile* const full_tile =
        std::find_if(tiles, tiles + count, [](const Tile& tile) { return !tile.indices && tile.count == kTileKeys; });
    std::ptrdiff_t const first = full_tile < tiles + count ? full_tile->first - kLanes : request_.keys();
    arrays[2] = prefetch_new_keys(request_.key, stage, batch, key_head, next, first);
    arrays[3] = prefetch_new_keys(request_.value, stage, batch, key_head, next, first);
  }

  // Merges the rows of a group from parts of its keys, part_of(i, lane), with the results of earlier stages.
  template <class PartOf>
  void store_merged(std::ptrdiff_t stage, const QueryGroup<T>& queries, std::ptrdiff_t count, PartOf part_of) const {
    std::vector<T> before(static_cast<std::size_t>(request_.value_dim()));
    std::vector<PartialSoftmax<T>> row;
    for (int lane = 0; lane < queries.group.lanes; lane++) {
      row.clear();
      if (stage > 0) row.push_back(earlier(queries, lane, before.data()));
      for (std::ptrdiff_t i = 0; i < count; i++) row.push_back(part_of(i, lane));
      PartialSoftmax<T> const total = merge(row, request_.value_dim(), out_row(queries, lane));
      store_statistics(queries, lane, total.maximum, total.sum);
    }
  }

  // The result of earlier stages, whose row is copied to `copy`.
  PartialSoftmax<T> earlier(const QueryGroup<T>& queries, int lane, T* copy) const {
    std::copy_n(out_row(queries, lane), request_.value_dim(), copy);
    const T* const statistics = queries.at(results_.statistics, lane);
    return {copy, statistics[0], statistics[1] == 0 ? 0 : 1 / static_cast<double>(statistics[1])};
  }

  T* out_row(const QueryGroup<T>& queries, int lane) const { return queries.at(results_.out, lane); }

  void store_statistics(const QueryGroup<T>& queries, int lane, T maximum, double sum) const {
    if (results_.lse) *queries.at(results_.lse, lane) = log_sum_exp(maximum, sum);
    if (!results_.statistics) return;
    *queries.at(results_.statistics, lane, 0) = maximum;
    *queries.at(results_.statistics, lane, 1) = sum == 0 ? T(0) : static_cast<T>(1 / sum);
  }

  const Request<T>& request_;
  ForwardViews<T> results_;
  Kernel<T> const kernel_;
  Plan const plan_;
  bool const together_;     // whether heads that share a key head form groups together
  bool const past_caches_;  // if no later stage reads the rows
  Buffer<T> statistics_;
};

}  // namespace

template <class T>
void attention_forward(const Request<T>& request, const ForwardViews<T>& results, const Control& control) {
  ForwardPass<T>(request, results).run(control);
}

template void attention_forward(const Request<float>&, const ForwardViews<float>&, const Control&);
template void attention_forward(const Request<double>&, const ForwardViews<double>&, const Control&);

}  // namespace headspan
