// SPDX-License-Identifier: BSD-3-Clause
// Gradients. The gradient of a query belongs to one group, but that of a key is a sum over all groups that see it.
// Groups form chunks, which add to the keys in an order that depends on shapes only (see sums/chunk_queue.h), so the
// sums are the same for every number of threads. A pattern may have several stages; each adds to the results of the
// previous ones.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/parallel.h"
#include "base/tile.h"
#include "class_rows.h"
#include "group_run.h"
#include "kernel/interface.h"
#include "patterns/intervals.h"
#include "patterns/lane_set.h"
#include "prefetch.h"
#include "query_group.h"
#include "request.h"
#include "schedule/group_key_range.h"
#include "schedule/plan.h"
#include "schedule/stage.h"
#include "schedule/tile_list.h"
#include "sums/chunk_queue.h"
#include "sums/key_gradient_rows.h"
#include "sums/parameter_gradients.h"
#include "sums/shared_sums.h"

namespace headspan {

namespace {

// The state of one call, which would otherwise be a dozen arguments.
template <class T>
class BackwardPass {
 public:
  BackwardPass(const Request<T>& request, const Upstream<T>& upstream, const GradientViews<T>& gradients)
      : request_(request),
        upstream_(upstream),
        gradients_(gradients),
        kernel_(active_kernel<T>()),
        plan_(request.patterns, request.heads(), request.queries(), request.keys()),
        shared_(request, gradients),
        past_caches_(plan_.stages() == 1 && !gradients.temperature && past_caches(kernel_, gradients.query)) {}

  void run(const Control& control) const {
    for (std::ptrdiff_t stage = 0; stage < plan_.stages(); stage++) run_stage(stage, control);
  }

 private:
  // The queries of the heads that share a key head, in one stage. The heads alternate: group number n is group n /
  // heads of head n % heads.
  struct KeyHead {
    std::ptrdiff_t batch, first_head, stage, groups, range_keys;
    std::ptrdiff_t classes;  // number of classes whose keys are copied at a time, see class_rows.h
    KeyGradientRows<T> key_rows;
    // If chunks have no key in common, as those of classes: the first group of each chunk, and one more entry for the
    // end. If empty, chunks are kChunkGroups successive groups.
    std::vector<std::ptrdiff_t> apart;

    std::ptrdiff_t chunks() const {
      return apart.empty() ? std::max<std::ptrdiff_t>((groups + kChunkGroups - 1) / kChunkGroups, 1)
                           : static_cast<std::ptrdiff_t>(apart.size()) - 1;
    }
    std::ptrdiff_t begin(std::ptrdiff_t chunk) const {
      return apart.empty() ? std::min(chunk * kChunkGroups, groups) : apart[static_cast<std::size_t>(chunk)];
    }
  };

  void run_stage(std::ptrdiff_t stage, const Control& control) const {
    std::vector<KeyHead> heads;
    std::vector<ChunkQueue::OfHead> chunks;
    heads.reserve(static_cast<std::size_t>(request_.batch() * request_.key_heads()));
    for (std::ptrdiff_t n = 0; n < request_.batch() * request_.key_heads(); n++) {
      heads.push_back(key_head(n / request_.key_heads(), n % request_.key_heads(), stage));
      chunks.push_back(chunks_of(heads.back()));
    }
    ChunkQueue queue(chunks);
    int const threads = static_cast<int>(std::min<std::ptrdiff_t>(useful_threads(request_, control), queue.chunks()));
    parallel_for(threads, threads, control.interrupted, [&](std::ptrdiff_t, const StopCheck& stop) {
      std::optional<ChunkQueue::Place> place;
      while (!stop() && (place = queue.next(place)))
        if (!run_chunk(heads[static_cast<std::size_t>(place->head)], *place, queue, stop)) return;
    });
  }

  KeyHead key_head(std::ptrdiff_t batch, std::ptrdiff_t key_head, std::ptrdiff_t stage) const {
    std::ptrdiff_t const shared = request_.heads_per_key_head(), first_head = key_head * shared,
                         groups = plan_.most_groups(stage) * shared;
    const PatternStage* const of_head = plan_.stage(batch, first_head, stage);
    bool along_tokens = true, same_stage = true;
    for (std::ptrdiff_t head = first_head; head < first_head + shared; head++) {
      const PatternStage* const other = plan_.stage(batch, head, stage);
      along_tokens = along_tokens && (!other || other->along_tokens());
      same_stage = same_stage && other == of_head;
    }
    std::ptrdiff_t const classes = same_stage ? classes_at_a_time(request_, of_head) : 0;
    std::ptrdiff_t step = 1, range_keys = kRangeKeys;
    // A group of few queries has few pairs in a range, but computes its keys in every range like any other.
    if (!request_.patterns.empty()) {
      std::ptrdiff_t const lanes = request_.queries() / std::max<std::ptrdiff_t>(plan_.most_groups(stage), 1);
      range_keys = kPatternRangeKeys * kLanes / std::clamp<std::ptrdiff_t>(lanes, 1, kLanes);
    }
    std::vector<std::ptrdiff_t> apart;
    if (!along_tokens) {
      range_keys = request_.keys();
      bool const by_class = same_stage && of_head->order.global_groups == 0;
      apart = by_class ? class_cuts(*of_head, std::max<std::ptrdiff_t>(classes, 1))
                       : std::vector<std::ptrdiff_t>{0, groups};
      if (by_class) {  // each class has its own queries and its own keys
        step = of_head->stride;
        for (std::ptrdiff_t& group : apart) group *= shared;
      }
    }
    range_keys = std::clamp<std::ptrdiff_t>(range_keys, 1, std::max<std::ptrdiff_t>(request_.keys(), 1));
    KeyGradientRows<T> key_rows(request_, gradients_, batch, key_head, range_keys, step);
    if (stage > 0) key_rows.keep_all();
    return {batch, first_head, stage, groups, range_keys, classes, key_rows, apart};
  }

  // The work is estimated from the number of keys of a few of the groups.
  ChunkQueue::OfHead chunks_of(const KeyHead& head) const {
    constexpr std::ptrdiff_t samples = 4;
    ChunkQueue::OfHead chunks{head.chunks(), 0};
    for (std::ptrdiff_t i = 0; i < samples && chunks.chunks > 1; i++) {
      std::ptrdiff_t const n = head.groups * (2 * i + 1) / (2 * samples);
      if (has_group(head, n)) chunks.work += static_cast<double>(group(head, n).schedule.visible_keys().count());
    }
    return chunks;
  }

  bool has_group(const KeyHead& head, std::ptrdiff_t n) const {
    std::ptrdiff_t const shared = request_.heads_per_key_head();
    return n / shared < plan_.groups(head.batch, head.first_head + n % shared, head.stage);
  }
  QueryGroup<T> group(const KeyHead& head, std::ptrdiff_t n) const {
    std::ptrdiff_t const shared = request_.heads_per_key_head();
    return group_of(request_, plan_, head.batch, head.first_head + n % shared, head.stage, n / shared);
  }

  bool run_chunk(KeyHead& head, const ChunkQueue::Place& place, ChunkQueue& queue, const StopCheck& stop) const {
    std::ptrdiff_t const shared = request_.heads_per_key_head(), first = head.begin(place.chunk),
                         last = head.begin(place.chunk + 1);
    const PatternStage* const stage = plan_.stage(head.batch, head.first_head, head.stage);
    ThreadWorkspace<T> const workspace(kernel_, request_.head_dim(), request_.value_dim(),
                                       ClassRows<T>::elements(request_, stage, head.classes), kChunkGroups);
    ClassRows<T> copies(request_, stage, head.batch, head.first_head / shared, head.classes, workspace.copies);
    ChunkSums<T> sums(shared_, shared);
    bool const follows = head.apart.empty();
    std::ptrdiff_t const together = follows ? kChunkGroups : 1;
    for (std::ptrdiff_t n = first; n < last; n += together) {
      std::optional<GroupRun> runs[kChunkGroups];
      std::ptrdiff_t top = 0, bottom = PTRDIFF_MAX;
      for (std::ptrdiff_t i = 0; i < together && n + i < last; i++) {
        if (!has_group(head, n + i)) continue;
        GroupRun& run = runs[i].emplace(*this, head, n + i, sums, workspace.kernel_at(static_cast<std::size_t>(i)));
        copies.redirect(run.queries);
        fetch_next(run, head);
        if (run.keys.empty()) continue;
        top = std::max(top, (run.keys.last() - 1) / head.range_keys);
        bottom = std::min(bottom, run.keys.first() / head.range_keys);
      }
      if (follows) queue.leave(place, top + 1);
      for (std::ptrdiff_t range = top; range >= bottom; range--) {
        if (follows && !queue.await(place, range, stop)) return false;
        for (std::optional<GroupRun>& run : runs)
          if (run && !run_range(*run, head, range, *workspace.tiles, stop)) return false;
        if (follows) queue.leave(place, range);
      }
      for (std::optional<GroupRun>& run : runs)
        if (run) finish(*run);
    }
    if (shared_.any() || place.is_last)
      if (!queue.await(place, ChunkQueue::kDone, stop)) return false;
    sums.add_to_head(head.batch, head.first_head, shared);
    if (place.is_last) head.key_rows.clear_rest();
    queue.leave(place, ChunkQueue::kDone);
    return true;
  }

  // The computation of one group, from start to end.
  struct GroupRun {
    QueryGroup<T> queries;
    VisibleKeys const keys;
    GroupSums<T> sums;
    BackwardRows<T> rows;
    KeyGradients<T> const key_rows;
    void* const workspace;
    bool const adds;       // whether to add to the results of earlier stages
    std::vector<T> later;  // rows of the query gradient that are added at the end, or that only other rows need
    std::ptrdiff_t const number;

    GroupRun(const BackwardPass& pass, const KeyHead& head, std::ptrdiff_t n, ChunkSums<T>& chunk_sums, void* memory)
        : queries(pass.group(head, n)),
          keys(queries.schedule.visible_keys()),
          sums(pass.request_, pass.gradients_, chunk_sums, n % pass.request_.heads_per_key_head(), queries),
          key_rows(head.key_rows.of(n % pass.request_.heads_per_key_head())),
          workspace(memory),
          adds(head.stage > 0),
          number(n) {
      Upstream<T> const& upstream = pass.upstream_;
      int const dims = pass.request_.head_dim();
      bool const aside = adds || !pass.gradients_.query;
      rows.past_caches = pass.past_caches_;
      rows.pair_gradient = sums.listener();
      rows.needs_query = pass.gradients_.query || pass.gradients_.temperature;
      if (aside && rows.needs_query) later.resize(static_cast<std::size_t>(kLanes * dims));
      for (int lane = 0; lane < queries.group.lanes; lane++) {
        std::ptrdiff_t const batch = queries.batch, of = queries.head, i = queries.schedule.query(lane);
        rows.out[lane] = upstream.out.at(batch, of, i);
        rows.grad_out[lane] = upstream.grad_out.at(batch, of, i);
        rows.grad_query[lane] = aside ? later.data() + lane * dims : pass.gradients_.query.at(batch, of, i);
        rows.maximum[lane] = *upstream.statistics.at(batch, of, i, 0);
        rows.inverse_sum[lane] = *upstream.statistics.at(batch, of, i, 1);
        rows.grad_lse[lane] = upstream.grad_lse ? *upstream.grad_lse.at(batch, of, i) : T(0);
      }
      pass.kernel_.backward_begin(queries.group, rows, workspace);
    }
  };

  bool run_range(GroupRun& run, KeyHead& head, std::ptrdiff_t range, TileBatch& batch, const StopCheck& stop) const {
    std::ptrdiff_t const first = range * head.range_keys, last = first + head.range_keys;
    if (run.keys.empty() || run.keys.first() >= last || run.keys.last() <= first) return true;
    std::optional<VisibleKeys> part;
    if (run.keys.first() < first || run.keys.last() > last) part.emplace(run.keys).clip(first, last);
    VisibleKeys const& keys = part ? *part : run.keys;
    return for_each_batch(run.queries.schedule.tiles(keys), batch, stop, [&](const Tile* tiles, int count) {
      std::ptrdiff_t end = 0;
      for (const Tile* tile = tiles; tile < tiles + count; tile++) end = std::max(end, key_interval(*tile).last);
      clear(head, run, range, end);
      kernel_.backward_step(run.queries.group, run.rows, run.key_rows, tiles, count, run.workspace);
      return true;
    });
  }

  // Clears the gradients of the next keys of the group, up to `end`.
  static void clear(KeyHead& head, const GroupRun& run, std::ptrdiff_t range, std::ptrdiff_t end) {
    if (head.key_rows.step() == 1) return head.key_rows.clear(range, end);
    for (int lane = 0; lane < run.queries.schedule.lanes(); lane++)
      head.key_rows.clear(floor_mod(run.queries.schedule.index(lane), head.key_rows.step()), end);
  }

  void finish(GroupRun& run) const {
    QueryGroup<T> const& queries = run.queries;
    run.rows.pair_gradient = {};  // of keys only
    queries.for_each_persistent_tile(request_, [&](const Group<T>& with_persistent, const Tile& tile) {
      kernel_.backward_step(with_persistent, run.rows, run.sums.persistent_rows(), &tile, 1, run.workspace);
    });
    run.sums.add_persistent();
    kernel_.backward_end(queries.group, run.rows, run.workspace);
    for (int lane = 0; lane < queries.group.lanes; lane++) {
      store_parameters(request_, gradients_, run.adds, queries, run.rows, lane);
      if (run.adds && gradients_.query)
        add(run.rows.grad_query[lane], request_.head_dim(), queries.at(gradients_.query, lane));
    }
  }

  // The rows that an upcoming group needs first, to be prefetched during the first tiles of this group.
  void fetch_next(GroupRun& run, const KeyHead& head) const {
    static_assert(kPrefetchArrays >= 8, "as many arrays as here");
    PrefetchArray<T>* const arrays = run.queries.group.prefetch;
    std::ptrdiff_t const next = run.number + (head.apart.empty() ? kChunkGroups : 1);
    if (next >= head.groups || !has_group(head, next)) return;
    std::ptrdiff_t const shared = request_.heads_per_key_head(), of_head = head.first_head + next % shared,
                         index = next / shared, key_head = head.first_head / shared, first_key = run.keys.last();
    const PatternStage* const stage = plan_.stage(head.batch, of_head, head.stage);
    arrays[0] = prefetch_group(request_.query, stage, head.batch, of_head, index);
    arrays[1] = prefetch_group(upstream_.out, stage, head.batch, of_head, index);
    arrays[2] = prefetch_group(upstream_.grad_out, stage, head.batch, of_head, index);
    if (!past_caches_ && gradients_.query)
      arrays[3] = prefetch_group(gradients_.query, stage, head.batch, of_head, index);
    if (run.queries.group.key.step > 1) return;  // keys are copies, and gradients so far apart evict each other
    arrays[4] = prefetch_new_keys(request_.key, stage, head.batch, key_head, index, first_key);
    arrays[5] = prefetch_new_keys(request_.value, stage, head.batch, key_head, index, first_key);
    if (gradients_.key) arrays[6] = prefetch_new_keys(gradients_.key, stage, head.batch, key_head, index, first_key);
    if (gradients_.value)
      arrays[7] = prefetch_new_keys(gradients_.value, stage, head.batch, key_head, index, first_key);
  }

  const Request<T>& request_;
  const Upstream<T>& upstream_;
  const GradientViews<T>& gradients_;
  Kernel<T> const kernel_;
  Plan const plan_;
  SharedSums<T> const shared_;
  bool const past_caches_;  // of the query gradients, if nothing reads them here
};

}  // namespace

template <class T>
void attention_backward(const Request<T>& request, const Upstream<T>& upstream, const GradientViews<T>& gradients,
                        const Control& control) {
  BackwardPass<T>(request, upstream, gradients).run(control);
}

template void attention_backward(const Request<float>&, const Upstream<float>&, const GradientViews<float>&,
                                 const Control&);
template void attention_backward(const Request<double>&, const Upstream<double>&, const GradientViews<double>&,
                                 const Control&);

}  // namespace headspan
