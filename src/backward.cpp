// SPDX-License-Identifier: BSD-3-Clause
// Gradients. Every query's gradient belongs to its group, but a key's is a sum over all groups that see it. A head's
// groups are cut into chunks, in ascending order. A chunk owns the keys that no earlier chunk sees and writes their
// gradients in place; for the others it has a private buffer, and these are added afterwards, chunk by chunk. The cut
// depends on shapes and spans only, so that the sums come out the same for every number of threads.
#include <algorithm>
#include <vector>

#include "attention.h"
#include "group.h"

namespace headspan {

namespace {

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
std::vector<GroupExtent> group_extents(const Problem<T>& problem, std::ptrdiff_t batch, std::ptrdiff_t key_head) {
  std::vector<GroupExtent> extents;
  for (std::ptrdiff_t g = 0; g < problem.groups(); g++) {
    GroupExtent e{PTRDIFF_MAX, 0, 1};
    for (std::ptrdiff_t h = 0; h < problem.heads_per_key_head(); h++) {
      GroupKeys const keys =
          neighbours(problem, batch, key_head * problem.heads_per_key_head() + h, g).keys(problem.band());
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
std::vector<Chunk> cut(const std::vector<GroupExtent>& extents, std::ptrdiff_t count, std::ptrdiff_t keys) {
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

// Enough chunks for many threads, as long as the private buffers stay below about two heads' gradients in all.
template <class T>
std::vector<Chunk> plan_chunks(const Problem<T>& problem, std::size_t* private_rows) {
  constexpr std::ptrdiff_t tasks_wanted = 16;
  std::ptrdiff_t const heads = problem.batch() * problem.key_heads();
  double const room = 2.1 * static_cast<double>(problem.keys()) / static_cast<double>(heads);
  std::vector<Chunk> plan;
  *private_rows = 0;
  for (std::ptrdiff_t head = 0; head < heads; head++) {
    std::ptrdiff_t const batch = head / problem.key_heads(), key_head = head % problem.key_heads();
    std::ptrdiff_t count = std::clamp<std::ptrdiff_t>((tasks_wanted + heads - 1) / heads, 1,
                                                      std::max<std::ptrdiff_t>(problem.groups(), 1));
    // One chunk needs to know nothing about its groups.
    std::vector<Chunk> chunks{{0, 0, 0, problem.groups(), 0, 0, problem.keys(), 0}};
    if (count > 1) {
      std::vector<GroupExtent> const extents = group_extents(problem, batch, key_head);
      for (; count > 1; count--) {
        std::vector<Chunk> candidate = cut(extents, count, problem.keys());
        double rows = 0;
        for (const Chunk& chunk : candidate) rows += static_cast<double>(chunk.private_count());
        if (rows > room) continue;
        chunks = std::move(candidate);
        break;
      }
    }
    for (Chunk& chunk : chunks) {
      chunk.batch = batch;
      chunk.key_head = key_head;
      chunk.private_row = *private_rows;
      *private_rows += static_cast<std::size_t>(chunk.private_count());
      plan.push_back(chunk);
    }
  }
  return plan;
}

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
        chunks_(plan_chunks(problem, &private_rows_)) {
    private_key_ = Buffer<T>(checked_product(private_rows_, static_cast<std::size_t>(problem.head_dim())));
    private_value_ = Buffer<T>(checked_product(private_rows_, static_cast<std::size_t>(problem.value_dim())));
  }

  void run(const Control& control) {
    int const threads = useful_threads(problem_, control);
    parallel_for(
        static_cast<std::ptrdiff_t>(chunks_.size()), threads, control.interrupted,
        [&](std::ptrdiff_t task, const StopCheck& stop) { run_chunk(chunks_[static_cast<std::size_t>(task)], stop); });
    if (private_rows_ == 0) return;
    std::ptrdiff_t const heads = problem_.batch() * problem_.key_heads();
    parallel_for(heads * kSlices, threads, control.interrupted, [&](std::ptrdiff_t task, const StopCheck&) {
      std::ptrdiff_t const slice = task % kSlices, keys = problem_.keys();
      add_private_rows(task / kSlices, keys * slice / kSlices, keys * (slice + 1) / kSlices);
    });
  }

 private:
  static constexpr std::ptrdiff_t kSlices = 16;  // of a head's keys, for adding the private rows

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
        if (!run_group(chunk.batch, head, queries, keys, key_rows, scratch, stop)) return;
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

  bool run_group(std::ptrdiff_t batch, std::ptrdiff_t head, const QueryGroup<T>& queries, const GroupKeys& keys,
                 const KeyGradients<T>& key_rows, const Scratch<T>& scratch, const StopCheck& stop) const {
    Group<T> const& group = queries.group;
    BackwardRows<T> rows;
    for (int lane = 0; lane < group.lanes; lane++) {
      std::ptrdiff_t const i = queries.query[lane];
      rows.out[lane] = upstream_.out.at(batch, head, i);
      rows.grad_out[lane] = upstream_.grad_out.at(batch, head, i);
      rows.grad_query[lane] = gradients_.query.at(batch, head, i);
      rows.maximum[lane] = *upstream_.statistics.at(batch, head, i, 0);
      rows.inverse_sum[lane] = *upstream_.statistics.at(batch, head, i, 1);
      rows.grad_lse[lane] = upstream_.grad_lse ? *upstream_.grad_lse.at(batch, head, i) : T(0);
    }
    kernel_.backward_begin(group, rows, scratch.kernel);
    auto const step = [&](const Tile* tiles, int count) {
      kernel_.backward_step(group, rows, key_rows, tiles, count, scratch.kernel);
    };
    if (!for_each_batch(keys, *scratch.tiles, stop, step)) return false;
    kernel_.backward_end(group, rows, scratch.kernel);
    for (int lane = 0; lane < group.lanes; lane++) store_parameters(batch, head, queries, rows, lane);
    return true;
  }

  void store_parameters(std::ptrdiff_t batch, std::ptrdiff_t head, const QueryGroup<T>& queries,
                        const BackwardRows<T>& rows, int lane) const {
    std::ptrdiff_t const i = queries.query[lane];
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
  std::size_t private_rows_ = 0;
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
