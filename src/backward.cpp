// SPDX-License-Identifier: BSD-3-Clause
// Gradients. Every query's gradient belongs to its group, but a key's is a sum over all groups that see it. How these
// sums are shared among threads depends on shapes and spans only, so that they come out the same for every number of
// threads. Where spans are short a head's groups are cut into chunks, in ascending order. A chunk owns the keys that no
// earlier chunk sees and writes their gradients in place; for the others it has a private buffer, and these are added
// afterwards, chunk by chunk. Where such buffers would be large, groups add to the same rows in turn.
#include <algorithm>
#include <vector>

#include "attention.h"
#include "chunks.h"
#include "group.h"
#include "turns.h"

namespace headspan {

namespace {

// One call's state, so that its parts need not pass a dozen arguments.
template <class T>
class BackwardPass {
 public:
  BackwardPass(const Problem<T>& problem, const Upstream<T>& upstream, const GradientViews<T>& gradients)
      : problem_(problem),
        upstream_(upstream),
        gradients_(gradients),
        kernel_(active_kernel<T>()),
        band_(problem.band()),
        chunks_(plan_chunks(problem)) {}

  void run(const Control& control) {
    int const threads = useful_threads(problem_, control);
    if (!chunks_.empty())
      run_chunks(threads, control);
    else if (threads == 1 || heads() % threads == 0 || heads() >= 4 * threads)
      run_heads(threads, control);
    else
      run_in_turn(threads, control);
  }

 private:
  static constexpr std::ptrdiff_t kSlices = 16;  // of a head's keys, for clearing and adding

  std::ptrdiff_t heads() const { return problem_.batch() * problem_.key_heads(); }

  void run_chunks(int threads, const Control& control) {
    std::size_t const private_rows =
        chunks_.back().private_row + static_cast<std::size_t>(chunks_.back().private_count());
    private_key_ = Buffer<T>(checked_product(private_rows, static_cast<std::size_t>(problem_.head_dim())));
    private_value_ = Buffer<T>(checked_product(private_rows, static_cast<std::size_t>(problem_.value_dim())));
    parallel_for(
        static_cast<std::ptrdiff_t>(chunks_.size()), threads, control.interrupted,
        [&](std::ptrdiff_t task, const StopCheck& stop) { run_chunk(chunks_[static_cast<std::size_t>(task)], stop); });
    for_each_slice(threads, control, [&](std::ptrdiff_t head, std::ptrdiff_t first, std::ptrdiff_t last) {
      add_private_rows(head, first, last);
    });
  }

  // Every head is a task. Its sums are those of run_in_turn.
  void run_heads(int threads, const Control& control) const {
    parallel_for(heads(), threads, control.interrupted,
                 [&](std::ptrdiff_t head, const StopCheck& stop) { run_chunk(whole_head(head), stop); });
  }

  // Every group is a task; a few tiles at a time wait for their turn.
  void run_in_turn(int threads, const Control& control) const {
    constexpr int tiles_in_turn = 2;
    for_each_slice(threads, control, [&](std::ptrdiff_t head, std::ptrdiff_t first, std::ptrdiff_t last) {
      KeyGradients<T> const key_rows = key_gradients(whole_head(head));
      clear_own(key_rows, &first, last);
    });
    std::ptrdiff_t const shared = problem_.heads_per_key_head(), chain = problem_.groups() * shared;
    Turns turns(heads() * chain, chain);
    parallel_for(heads() * chain, threads, control.interrupted, [&](std::ptrdiff_t task, const StopCheck& stop) {
      Chunk const all = whole_head(task / chain);
      QueryGroup<T> const queries =
          neighbours(problem_, all.batch, all.key_head * shared + task % shared, task % chain / shared);
      Scratch<T> const scratch(kernel_, problem_.head_dim(), problem_.value_dim());
      KeyGradients<T> const key_rows = key_gradients(all);
      bool const finished =
          run_group(queries, queries.keys(band_), scratch, stop, [&](auto step, const Tile* tiles, int count) {
            for (int i = 0; i < count; i += tiles_in_turn) {
              int const n = std::min(tiles_in_turn, count - i);
              std::ptrdiff_t const end = tiles[i + n - 1].first + tiles[i + n - 1].count;
              if (!turns.wait(task, end, stop)) return false;
              step(key_rows, tiles + i, n);
              turns.leave(task, end);
            }
            return true;
          });
      if (finished && turns.wait(task, PTRDIFF_MAX, stop)) turns.leave(task, PTRDIFF_MAX);
    });
  }

  // Calls work(head, first, last) for slices of every head's keys.
  template <class Work>
  void for_each_slice(int threads, const Control& control, Work work) const {
    parallel_for(heads() * kSlices, threads, control.interrupted, [&](std::ptrdiff_t task, const StopCheck&) {
      std::ptrdiff_t const slice = task % kSlices, keys = problem_.keys();
      work(task / kSlices, keys * slice / kSlices, keys * (slice + 1) / kSlices);
    });
  }

  Chunk whole_head(std::ptrdiff_t head) const {
    return {head / problem_.key_heads(), head % problem_.key_heads(), 0, problem_.groups(), 0, 0, problem_.keys(), 0};
  }

  KeyGradients<T> key_gradients(const Chunk& chunk) const {
    Rows<T> const key{gradients_.key.at(chunk.batch, chunk.key_head), gradients_.key.stride[2]};
    Rows<T> const value{gradients_.value.at(chunk.batch, chunk.key_head), gradients_.value.stride[2]};
    Rows<T> const private_key{private_key_.data() + chunk.private_row * static_cast<std::size_t>(problem_.head_dim()),
                              problem_.head_dim()};
    Rows<T> const private_value{
        private_value_.data() + chunk.private_row * static_cast<std::size_t>(problem_.value_dim()),
        problem_.value_dim()};
    return {key, value, private_key, private_value, chunk.private_first, chunk.own_first};
  }

  // Zeros for the chunk's own rows, just before their first use, so that they are still in the cache then.
  void clear_own(const KeyGradients<T>& rows, std::ptrdiff_t* cleared, std::ptrdiff_t until) const {
    for (; *cleared < until; ++*cleared) {
      std::fill_n(rows.key.row(*cleared), problem_.head_dim(), T(0));
      std::fill_n(rows.value.row(*cleared), problem_.value_dim(), T(0));
    }
  }

  void run_chunk(const Chunk& chunk, const StopCheck& stop) const {
    KeyGradients<T> const key_rows = key_gradients(chunk);
    std::fill_n(key_rows.private_key.data, chunk.private_count() * problem_.head_dim(), T(0));
    std::fill_n(key_rows.private_value.data, chunk.private_count() * problem_.value_dim(), T(0));
    Scratch<T> const scratch(kernel_, problem_.head_dim(), problem_.value_dim());
    std::ptrdiff_t const shared = problem_.heads_per_key_head();
    std::ptrdiff_t cleared = chunk.own_first;
    for (std::ptrdiff_t g = chunk.first_group; g < chunk.last_group; g++)
      for (std::ptrdiff_t h = 0; h < shared; h++) {
        std::ptrdiff_t const head = chunk.key_head * shared + h;
        QueryGroup<T> queries = neighbours(problem_, chunk.batch, head, g);
        bool const same_group = h + 1 < shared;
        if (same_group || g + 1 < chunk.last_group)
          fetch_next(queries.group.ahead, chunk.batch, same_group ? head + 1 : chunk.key_head * shared,
                     same_group ? g : g + 1);
        GroupKeys const keys = queries.keys(band_);
        clear_own(key_rows, &cleared, keys.last());
        bool const finished = run_group(queries, keys, scratch, stop, [&](auto step, const Tile* tiles, int count) {
          step(key_rows, tiles, count);
          return true;
        });
        if (!finished) return;
      }
    clear_own(key_rows, &cleared, chunk.own_last);
  }

  void fetch_next(Ahead<T>* ahead, std::ptrdiff_t batch, std::ptrdiff_t head, std::ptrdiff_t index) const {
    static_assert(kAhead >= 4, "as many arrays as here");
    ahead[0] = rows_ahead(problem_.query, batch, head, index);
    ahead[1] = rows_ahead(upstream_.out, batch, head, index);
    ahead[2] = rows_ahead(upstream_.grad_out, batch, head, index);
    ahead[3] = rows_ahead(gradients_.query, batch, head, index);
  }

  // The gradients of one group; run(step, tiles, count) is to call step(key_rows, tiles, count) for all its tiles.
  template <class Run>
  bool run_group(const QueryGroup<T>& queries, const GroupKeys& keys, const Scratch<T>& scratch, const StopCheck& stop,
                 Run run) const {
    Group<T> const& group = queries.group;
    BackwardRows<T> rows;
    for (int lane = 0; lane < group.lanes; lane++) {
      std::ptrdiff_t const batch = queries.batch, head = queries.head, i = queries.query[lane];
      rows.out[lane] = upstream_.out.at(batch, head, i);
      rows.grad_out[lane] = upstream_.grad_out.at(batch, head, i);
      rows.grad_query[lane] = gradients_.query.at(batch, head, i);
      rows.maximum[lane] = *upstream_.statistics.at(batch, head, i, 0);
      rows.inverse_sum[lane] = *upstream_.statistics.at(batch, head, i, 1);
      rows.grad_lse[lane] = upstream_.grad_lse ? *upstream_.grad_lse.at(batch, head, i) : T(0);
    }
    kernel_.backward_begin(group, rows, scratch.kernel);
    auto const step = [&](const KeyGradients<T>& key_rows, const Tile* tiles, int count) {
      kernel_.backward_step(group, rows, key_rows, tiles, count, scratch.kernel);
    };
    auto const run_batch = [&](const Tile* tiles, int count) { return run(step, tiles, count); };
    if (!for_each_batch(keys, *scratch.tiles, stop, run_batch)) return false;
    kernel_.backward_end(group, rows, scratch.kernel);
    for (int lane = 0; lane < group.lanes; lane++) store_parameters(queries, rows, lane);
    return true;
  }

  void store_parameters(const QueryGroup<T>& queries, const BackwardRows<T>& rows, int lane) const {
    std::ptrdiff_t const batch = queries.batch, head = queries.head, i = queries.query[lane];
    if (gradients_.span)
      *gradients_.span.at(batch, head, i) = problem_.ramp > 0 ? rows.grad_span[lane] / problem_.ramp : 0;
    if (gradients_.slopes) *gradients_.slopes.at(batch, head, i) = rows.grad_slope[lane];
    if (!gradients_.temperature) return;
    double& gradient = *gradients_.temperature.at(batch, head, i);
    gradient = 0;
    if (rows.inverse_sum[lane] == 0) return;  // no key: a query of NaN must not come in
    // s = scale / temperature * query . key: the sum of ds * s over the keys is query . grad_query
    double sum = 0;
    for (int d = 0; d < problem_.head_dim(); d++)
      sum += static_cast<double>(queries.group.query[lane][d]) * static_cast<double>(rows.grad_query[lane][d]);
    gradient = -sum / static_cast<double>(*problem_.temperature.at(batch, head, i));
  }

  // The private rows of keys first .. last - 1 of one head, in the order of the chunks.
  void add_private_rows(std::ptrdiff_t head, std::ptrdiff_t first, std::ptrdiff_t last) const {
    for (const Chunk& chunk : chunks_) {
      if (chunk.batch * problem_.key_heads() + chunk.key_head != head) continue;
      KeyGradients<T> const rows = key_gradients(chunk);
      for (std::ptrdiff_t j = std::max(first, chunk.private_first); j < std::min(last, chunk.own_first); j++) {
        add(rows.private_key.row(j - chunk.private_first), problem_.head_dim(), rows.key.row(j));
        add(rows.private_value.row(j - chunk.private_first), problem_.value_dim(), rows.value.row(j));
      }
    }
  }

  static void add(const T* from, int n, T* to) {
    for (int d = 0; d < n; d++) to[d] += from[d];
  }

  const Problem<T>& problem_;
  const Upstream<T>& upstream_;
  const GradientViews<T>& gradients_;
  Kernel<T> const kernel_;
  Band const band_;
  std::vector<Chunk> const chunks_;
  Buffer<T> private_key_, private_value_;
};

}  // namespace

template <class T>
void attention_backward(const Problem<T>& problem, const Upstream<T>& upstream, const GradientViews<T>& gradients,
                        const Control& control) {
  BackwardPass<T>(problem, upstream, gradients).run(control);
}

template void attention_backward(const Problem<float>&, const Upstream<float>&, const GradientViews<float>&,
                                 const Control&);
template void attention_backward(const Problem<double>&, const Upstream<double>&, const GradientViews<double>&,
                                 const Control&);

}  // namespace headspan
