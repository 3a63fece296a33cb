// SPDX-License-Identifier: BSD-3-Clause
// Gradients. Every query's gradient belongs to its group, but a key's is a sum over all groups that see it. How these
// sums are shared among threads depends on shapes and spans only, so that they come out the same for every number of
// threads. Where spans are short a head's groups are cut into chunks, in ascending order. A chunk owns the keys that no
// earlier chunk sees and writes their gradients in place; for the others it has a private buffer, and these are added
// afterwards, chunk by chunk. Where such buffers would be large a head is one task, or its groups add to the same rows
// in turn. A pattern may take several stages, each of which adds to what the ones before have found.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/parallel.h"
#include "base/tile.h"
#include "class_rows.h"
#include "group_run.h"
#include "kernel/interface.h"
#include "patterns/intervals.h"
#include "prefetch.h"
#include "query_group.h"
#include "request.h"
#include "schedule/stage.h"
#include "schedule/tile_list.h"
#include "sums/key_chunks.h"
#include "sums/key_gradient_rows.h"
#include "sums/ordered_accumulator.h"
#include "sums/parameter_gradients.h"
#include "sums/shared_sums.h"

namespace headspan {

namespace {

// One call's state, so that its parts need not pass a dozen arguments.
template <class T>
class BackwardPass {
 public:
  BackwardPass(const Request<T>& request, const Upstream<T>& upstream, const GradientViews<T>& gradients)
      : request_(request),
        upstream_(upstream),
        gradients_(gradients),
        kernel_(active_kernel<T>()),
        plan_(request.patterns, request.heads(), request.queries(), request.keys()),
        past_caches_(plan_.stages() == 1 && !gradients.temperature && past_caches(kernel_, gradients.query)),
        in_order_(gradients.key || gradients.value || gradients.key_bias || SharedSums<T>::any(request, gradients)),
        chunks_(in_order_ ? plan_chunks(request, plan_) : std::vector<Chunk>()),
        key_rows_(request, gradients, chunks_),
        shared_(request, gradients, chunks_) {}

  void run(const Control& control) {
    int const threads = useful_threads(request_, control);
    if (!chunks_.empty()) return run_chunks(threads, control);
    for (std::ptrdiff_t stage = 0; stage < plan_.stages(); stage++)
      in_order_ ? run_heads(stage, threads, control) : run_groups(stage, threads, control);
  }

 private:
  static constexpr std::ptrdiff_t kSlices = 16;  // of a head's keys, for clearing and adding

  std::ptrdiff_t heads() const { return request_.batch() * request_.key_heads(); }

  void run_chunks(int threads, const Control& control) {
    parallel_for(static_cast<std::ptrdiff_t>(chunks_.size()), threads, control.interrupted,
                 [&](std::ptrdiff_t task, const StopCheck& stop) {
                   run_chunk(chunks_[static_cast<std::size_t>(task)], 0, stop);
                 });
    for_each_slice(threads, control, [&](std::ptrdiff_t head, std::ptrdiff_t first, std::ptrdiff_t last) {
      for (const Chunk& chunk : chunks_)  // in their order
        if (chunk.batch * request_.key_heads() + chunk.key_head == head) key_rows_.add_private(chunk, first, last);
    });
    shared_.add_chunks();
  }

  // Where groups add to nothing in common.
  void run_groups(std::ptrdiff_t stage, int threads, const Control& control) const {
    std::ptrdiff_t const groups = plan_.most_groups(stage);
    parallel_for(request_.batch() * request_.heads() * groups, threads, control.interrupted,
                 [&](std::ptrdiff_t task, const StopCheck& stop) {
                   std::ptrdiff_t const head = task / groups, in_item = head % request_.heads(),
                                        index = groups - 1 - task % groups;  // long rows first
                   if (index >= plan_.groups(head / request_.heads(), in_item, stage)) return;
                   auto const queries = group_of(request_, plan_, head / request_.heads(), in_item, stage, index);
                   auto const run_batch = [](auto run, const Tile* tiles, int count) {
                     run(KeyGradients<T>{}, tiles, count);
                     return true;
                   };
                   GroupSums<T> sums(request_, gradients_, shared_, queries);
                   run_group(stage, queries, sums, stop, run_batch, [] { return true; });
                 });
  }

  // The first heads are a task each. Of the others every group is one, so that threads which are not equally fast, or
  // not equally many as the heads, end together; the sums are the same.
  void run_heads(std::ptrdiff_t stage, int threads, const Control& control) const {
    std::ptrdiff_t const whole = whole_heads(stage, threads),
                         chain = std::max<std::ptrdiff_t>(plan_.most_groups(stage) * request_.heads_per_key_head(), 1);
    OrderedAccumulator order((heads() - whole) * chain, chain);
    std::vector<std::atomic<std::ptrdiff_t>> cleared(static_cast<std::size_t>(heads() - whole));
    parallel_for(whole + order.tasks(), threads, control.interrupted, [&](std::ptrdiff_t task, const StopCheck& stop) {
      if (task < whole) return run_chunk(whole_head(task, stage), stage, stop);
      std::ptrdiff_t const number = task - whole;
      run_in_turn(whole_head(whole + number / chain, stage), stage, number, order,
                  cleared[static_cast<std::size_t>(number / chain)], stop);
    });
  }

  std::ptrdiff_t whole_heads(std::ptrdiff_t stage, int threads) const {
    if (threads == 1 || heads() == 0) return heads();
    if (std::ptrdiff_t const left = heads() % threads) return heads() - left;
    // Not where a whole head copies its classes, or where all groups add to the same few keys, those of global tokens.
    const PatternStage* const of_last = plan_.stage(request_.batch() - 1, request_.heads() - 1, stage);
    return of_last && (!of_last->along_tokens() || of_last->order.global_groups > 0) ? heads() : heads() - 1;
  }

  // One group of a head, a few tiles at a time when it is their turn. `cleared`: the head's rows below have been. It
  // may be behind only for a group that has none before it at work, as these clear up to where they leave, and past all
  // keys that come before their place: global tokens, which the group itself may not see.
  void run_in_turn(const Chunk& all, std::ptrdiff_t stage, std::ptrdiff_t task, OrderedAccumulator& order,
                   std::atomic<std::ptrdiff_t>& cleared, const StopCheck& stop) const {
    constexpr int tiles_at_a_time = 2;
    std::ptrdiff_t const shared = request_.heads_per_key_head(), number = order.place(task),
                         head = all.key_head * shared + number % shared, index = number / shared;
    auto const clear_until = [&](std::ptrdiff_t until) {
      std::ptrdiff_t const first = cleared.load(std::memory_order_relaxed);
      if (stage == 0 && first < until) cleared.store(key_rows_.clear_own(all, first, until), std::memory_order_relaxed);
    };
    if (index < plan_.groups(all.batch, head, stage)) {
      QueryGroup<T> const queries = group_of(request_, plan_, all.batch, head, stage, index);
      KeyGradients<T> const key_rows = key_rows_.of(all, number % shared);
      bool const ascends = queries.schedule.ascends() && one_order(all);
      if (!ascends && !order.await(task, PTRDIFF_MAX, stop)) return;
      auto const run_batch = [&](auto run, const Tile* tiles, int count) {
        for (int i = 0; i < count; i += tiles_at_a_time) {
          int const n = std::min(tiles_at_a_time, count - i);
          std::ptrdiff_t const rank = queries.schedule.rank_after(tiles[i + n - 1]);
          if (!order.await(task, rank, stop)) return false;
          clear_until(std::max(keys_end(tiles + i, n), queries.schedule.exempt_end()));
          run(key_rows, tiles + i, n);
          if (ascends) order.publish(task, rank);
        }
        return true;
      };
      auto const may_add = [&] { return order.await(task, PTRDIFF_MAX, stop); };
      GroupSums<T> sums(request_, gradients_, shared_, queries);
      if (!run_group(stage, queries, sums, stop, run_batch, may_add)) return;
      if (SharedSums<T>::any(request_, gradients_) && !may_add()) return;
      sums.add_to([&](std::size_t i) { return shared_.of_head(i, all.batch, head); });
    }
    if (!order.await(task, PTRDIFF_MAX, stop)) return;
    if (order.is_last(task)) clear_until(all.own_last);
    order.publish(task, PTRDIFF_MAX);
  }

  // Whether all heads that share a key head go through its keys in one order: where spans are limited, keys that are
  // global tokens come first.
  bool one_order(const Chunk& all) const {
    if (!request_.span || request_.patterns.size() <= 1) return true;
    std::ptrdiff_t const first = all.key_head * request_.heads_per_key_head();
    std::vector<std::int64_t> const& tokens = plan_.pattern(all.batch, first)->global_tokens();
    for (std::ptrdiff_t head = first + 1; head < first + request_.heads_per_key_head(); head++)
      if (plan_.pattern(all.batch, head)->global_tokens() != tokens) return false;
    return true;
  }

  // Calls work(head, first, last) for slices of every head's keys.
  template <class Work>
  void for_each_slice(int threads, const Control& control, Work work) const {
    parallel_for(heads() * kSlices, threads, control.interrupted, [&](std::ptrdiff_t task, const StopCheck&) {
      std::ptrdiff_t const slice = task % kSlices, keys = request_.keys();
      work(task / kSlices, keys * slice / kSlices, keys * (slice + 1) / kSlices);
    });
  }

  Chunk whole_head(std::ptrdiff_t head, std::ptrdiff_t stage) const {
    return {head / request_.key_heads(),
            head % request_.key_heads(),
            0,
            plan_.most_groups(stage),
            0,
            0,
            request_.keys(),
            0};
  }

  void run_chunk(const Chunk& chunk, std::ptrdiff_t stage, const StopCheck& stop) const {
    key_rows_.clear_private(chunk);
    std::ptrdiff_t const shared = request_.heads_per_key_head();
    std::ptrdiff_t cleared = stage == 0 ? chunk.own_first : chunk.own_last;
    std::ptrdiff_t const first_head = chunk.key_head * shared;
    const PatternStage* const its_stage = plan_.stage(chunk.batch, first_head, stage);
    std::ptrdiff_t classes = classes_at_a_time(request_, its_stage);
    for (std::ptrdiff_t head = first_head; head < first_head + shared; head++)
      if (plan_.stage(chunk.batch, head, stage) != its_stage) classes = 0;
    ThreadWorkspace<T> const workspace(kernel_, request_.head_dim(), request_.value_dim(),
                                       ClassRows<T>::elements(request_, its_stage, classes));
    ClassRows<T> copies(request_, its_stage, chunk.batch, chunk.key_head, classes, workspace.copies);
    for (std::ptrdiff_t n = chunk.first_group; n < chunk.last_group; n++)
      for (std::ptrdiff_t h = 0; h < shared; h++) {
        std::ptrdiff_t const head = chunk.key_head * shared + h;
        if (n >= plan_.groups(chunk.batch, head, stage)) continue;
        QueryGroup<T> queries = group_of(request_, plan_, chunk.batch, head, stage, n);
        bool const same_group = h + 1 < shared;
        std::ptrdiff_t const next_head = same_group ? head + 1 : chunk.key_head * shared, next = same_group ? n : n + 1;
        bool const has_next = next < std::min(chunk.last_group, plan_.groups(chunk.batch, next_head, stage));
        KeyGradients<T> const key_rows = key_rows_.of(chunk, h);
        copies.redirect(queries);
        auto const run_batch = [&](auto run, const Tile* tiles, int count) {
          std::ptrdiff_t const end = keys_end(tiles, count);
          cleared = key_rows_.clear_own(chunk, cleared, std::min(end, chunk.own_last));
          if (has_next)
            fetch_next(queries.group, plan_.stage(chunk.batch, next_head, stage), chunk.batch, next_head, next, end);
          run(key_rows, tiles, count);
          return true;
        };
        GroupSums<T> sums(request_, gradients_, shared_, queries);
        if (!run_group(stage, queries, sums, stop, run_batch, [] { return true; })) return;
        sums.add_to([&](std::size_t i) {
          return chunks_.empty() ? shared_.of_head(i, chunk.batch, head) : shared_.of_chunk(i, chunk, head);
        });
      }
    key_rows_.clear_own(chunk, cleared, chunk.own_last);
  }

  // Past the last key of some tiles.
  static std::ptrdiff_t keys_end(const Tile* tiles, int count) {
    std::ptrdiff_t end = 0;
    for (const Tile* tile = tiles; tile < tiles + count; tile++) end = std::max(end, key_interval(*tile).last);
    return end;
  }

  // What group number `index` will be the first to need; `end` is past the keys of the one before it.
  void fetch_next(Group<T>& group, const PatternStage* stage, std::ptrdiff_t batch, std::ptrdiff_t head,
                  std::ptrdiff_t index, std::ptrdiff_t end) const {
    static_assert(kPrefetchArrays >= 8, "as many arrays as here");
    PrefetchArray<T>* const arrays = group.prefetch;
    arrays[0] = prefetch_group(request_.query, stage, batch, head, index);
    arrays[1] = prefetch_group(upstream_.out, stage, batch, head, index);
    arrays[2] = prefetch_group(upstream_.grad_out, stage, batch, head, index);
    if (!past_caches_ && gradients_.query) arrays[3] = prefetch_group(gradients_.query, stage, batch, head, index);
    if (group.key.step > 1) return;  // its keys are copies, and gradients so far apart push each other out
    std::ptrdiff_t const key_head = head / request_.heads_per_key_head();
    arrays[4] = prefetch_new_keys(request_.key, stage, batch, key_head, index, end);
    arrays[5] = prefetch_new_keys(request_.value, stage, batch, key_head, index, end);
    if (gradients_.key) arrays[6] = prefetch_new_keys(gradients_.key, stage, batch, key_head, index, end);
    if (gradients_.value) arrays[7] = prefetch_new_keys(gradients_.value, stage, batch, key_head, index, end);
  }

  // The gradients of one group. run_batch(run, tiles, count) is to call run(key_rows, tiles, count) for all its tiles;
  // may_add() is asked before something is added to what the stages before have found for these queries.
  template <class RunBatch, class MayAdd>
  bool run_group(std::ptrdiff_t stage, const QueryGroup<T>& queries, GroupSums<T>& sums, const StopCheck& stop,
                 RunBatch run_batch, MayAdd may_add) const {
    bool const adds = stage > 0;
    VisibleKeys keys = queries.schedule.visible_keys();
    Group<T> const& group = queries.group;
    ThreadWorkspace<T> const workspace(kernel_, request_.head_dim(), request_.value_dim());
    BackwardRows<T> rows;
    rows.past_caches = past_caches_;
    rows.pair_gradient = sums.listener();
    // Rows of the query's gradient that are added later, or from which that of the temperature is made and nothing
    // else.
    bool const aside = adds || !gradients_.query;
    rows.needs_query = gradients_.query || gradients_.temperature;
    std::vector<T> later(static_cast<std::size_t>(aside && rows.needs_query ? kLanes * request_.head_dim() : 0));
    for (int lane = 0; lane < group.lanes; lane++) {
      std::ptrdiff_t const batch = queries.batch, head = queries.head, i = queries.schedule.query(lane);
      rows.out[lane] = upstream_.out.at(batch, head, i);
      rows.grad_out[lane] = upstream_.grad_out.at(batch, head, i);
      rows.grad_query[lane] = aside ? later.data() + lane * request_.head_dim() : gradients_.query.at(batch, head, i);
      rows.maximum[lane] = *upstream_.statistics.at(batch, head, i, 0);
      rows.inverse_sum[lane] = *upstream_.statistics.at(batch, head, i, 1);
      rows.grad_lse[lane] = upstream_.grad_lse ? *upstream_.grad_lse.at(batch, head, i) : T(0);
    }
    kernel_.backward_begin(group, rows, workspace.kernel);
    auto const run = [&](const KeyGradients<T>& key_rows, const Tile* tiles, int count) {
      kernel_.backward_step(group, rows, key_rows, tiles, count, workspace.kernel);
    };
    auto const run_tiles = [&](const Tile* tiles, int count) { return run_batch(run, tiles, count); };
    if (!for_each_batch(queries.schedule.tiles(keys), *workspace.tiles, stop, run_tiles)) return false;
    rows.pair_gradient = {};  // of keys only
    queries.for_each_memory_tile(request_, [&](const Group<T>& with_memory, const Tile& tile) {
      kernel_.backward_step(with_memory, rows, sums.memory_rows(), &tile, 1, workspace.kernel);
    });
    if (adds && !may_add()) return false;
    kernel_.backward_end(group, rows, workspace.kernel);
    for (int lane = 0; lane < group.lanes; lane++) {
      store_parameters(request_, gradients_, adds, queries, rows, lane);
      if (adds && gradients_.query)
        add(rows.grad_query[lane], request_.head_dim(),
            gradients_.query.at(queries.batch, queries.head, queries.schedule.query(lane)));
    }
    return true;
  }

  const Request<T>& request_;
  const Upstream<T>& upstream_;
  const GradientViews<T>& gradients_;
  Kernel<T> const kernel_;
  Plan const plan_;
  bool const past_caches_;  // of the queries' gradients, where nobody reads them here
  bool const in_order_;     // whether groups add to something in common
  std::vector<Chunk> const chunks_;
  KeyGradientRows<T> const key_rows_;
  SharedSums<T> const shared_;
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
