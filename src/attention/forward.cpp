// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "request.h"
#include "tasks.h"

namespace headspan {

namespace {

// A row over some of its keys.
template <class T>
struct Partial {
  T* out;
  T maximum;
  double sum;
};

// One call's state, so that its parts need not pass a dozen arguments. Groups are taken head by head, so that the keys
// and values of one head, or of a few in turn, stay in the cache; long rows first, so that no thread ends late.
template <class T>
class ForwardPass {
 public:
  ForwardPass(const Problem<T>& problem, const ForwardViews<T>& results)
      : problem_(problem),
        results_(results),
        kernel_(active_kernel<T>()),
        plan_(problem.patterns, problem.queries(), problem.keys()),
        past_caches_(plan_.passes() == 1 && past_caches(kernel_, results.out)) {}

  void run(const Control& control) {
    // A later pass adds to what the earlier ones found, and needs their statistics.
    if (plan_.passes() > 1 && !results_.statistics) keep_statistics();
    for (std::ptrdiff_t pass = 0; pass < plan_.passes(); pass++) {
      if (Parts parts = few_queries(pass); parts.each > 1) {
        run_in_parts(pass, parts, control);
      } else {
        Parts riding = apart_queries(pass);
        run_whole(pass, riding, control);
      }
    }
  }

 private:
  std::ptrdiff_t heads() const { return problem_.batch() * problem_.heads(); }

  void keep_statistics() {
    std::ptrdiff_t const tokens = problem_.queries();
    statistics_ = Buffer<T>(checked_product(static_cast<std::size_t>(heads() * tokens), 2));
    results_.statistics = {statistics_.data(),
                           {problem_.batch(), problem_.heads(), tokens, 2},
                           {problem_.heads() * tokens * 2, tokens * 2, 2, 1}};
  }

  // Of every head the first groups, at most so many, each over several shares of its keys, to be merged. How many
  // shares depends on shapes only, so that the sums come out the same for every number of threads.
  struct Parts {
    std::ptrdiff_t groups = 0, each = 0, lanes = 0;
    Buffer<T> outs{};
    std::vector<Partial<T>> rows{};  // (heads, groups, each, lanes)
  };
  Parts make_parts(std::ptrdiff_t groups, std::ptrdiff_t lanes, std::ptrdiff_t each) const {
    if (groups == 0 || each <= 1) return {};
    std::size_t const rows = static_cast<std::size_t>(heads() * groups * each * lanes),
                      row = static_cast<std::size_t>(problem_.value_dim());
    Parts parts{groups, each, lanes, Buffer<T>(checked_product(rows, row)), std::vector<Partial<T>>(rows)};
    for (std::size_t i = 0; i < rows; i++) parts.rows[i].out = parts.outs.data() + i * row;
    return parts;
  }
  // All groups where there are too few to be tasks.
  Parts few_queries(std::ptrdiff_t pass) const {
    constexpr std::ptrdiff_t tasks_wanted = 64, least_keys = 2048;
    std::ptrdiff_t const most = plan_.most_groups(pass), groups = std::max<std::ptrdiff_t>(heads() * most, 1);
    return make_parts(most, std::min<std::ptrdiff_t>(kLanes, problem_.queries()),
                      std::min(tasks_wanted / groups, problem_.keys() / least_keys));
  }
  // Those apart, in shares that ride with other groups; all heads have as many shares, or none.
  Parts apart_queries(std::ptrdiff_t pass) const {
    constexpr std::ptrdiff_t most_in_all = 1024;
    std::ptrdiff_t most = 0, each = 1, lanes = 0;
    for (std::ptrdiff_t head = 0; head < problem_.heads(); head++) {
      if (apart(pass, head) == 0) continue;
      Order const& order = plan_.pass(head, pass)->order;
      most = std::max(most, order.apart);
      lanes = std::max<std::ptrdiff_t>(lanes, order.lanes(0));
      each = Shares(order, problem_.keys()).each;
    }
    return heads() * most * each <= most_in_all ? make_parts(most, lanes, each) : Parts{};
  }
  std::ptrdiff_t apart(std::ptrdiff_t pass, std::ptrdiff_t head) const {
    const Pass* const of_head = plan_.pass(head % problem_.heads(), pass);
    return of_head ? of_head->order.apart : 0;
  }

  QueryGroup<T> group(std::ptrdiff_t pass, std::ptrdiff_t head, std::ptrdiff_t index) const {
    return group_of(problem_, plan_, head / problem_.heads(), head % problem_.heads(), pass, index);
  }
  std::ptrdiff_t groups(std::ptrdiff_t pass, std::ptrdiff_t head) const {
    return plan_.groups(head % problem_.heads(), pass);
  }

  static constexpr std::ptrdiff_t kNone = -1;
  struct GroupNumber {
    std::ptrdiff_t head, index;  // of all batch items' heads; kNone: no group
  };

  using Task = typename Tasks<T>::Task;

  void run_whole(std::ptrdiff_t pass, Parts& riding, const Control& control) const {
    int const threads = useful_threads(problem_, control);
    Tasks<T> const tasks(problem_, plan_, pass, threads);
    parallel_for(tasks.count(), threads, control.interrupted,
                 [&](std::ptrdiff_t number, const StopCheck& stop) { run_task(pass, tasks.at(number), riding, stop); });
    if (riding.each > 0) merge_parts(pass, riding, control, [&](std::ptrdiff_t head) { return apart(pass, head); });
  }

  // The groups of a task, for each index from the last one on those of all its heads, so that each can fetch the next
  // one's rows; and the parts that ride with them.
  void run_task(std::ptrdiff_t pass, const Task& task, Parts& riding, const StopCheck& stop) const {
    const Pass* const its_pass = plan_.pass(task.first_head % problem_.heads(), pass);
    std::size_t const a_head = ClassRows<T>::elements(problem_, its_pass, task.classes),
                      in_turn = static_cast<std::size_t>(task.end_head - task.first_head);
    Scratch<T> const scratch(kernel_, problem_.head_dim(), problem_.value_dim(), a_head * in_turn);
    std::vector<ClassRows<T>> copies;
    for (std::ptrdiff_t head = task.first_head; head < task.end_head; head++)
      copies.emplace_back(problem_, its_pass, head / problem_.heads(),
                          head % problem_.heads() / problem_.heads_per_key_head(), task.classes,
                          scratch.copies + copies.size() * a_head);
    KeptTiles tiles(*scratch.tiles);
    std::ptrdiff_t const least = riding.each > 0 ? apart(pass, task.first_head) : 0;
    for (std::ptrdiff_t index = task.last - 1; index >= task.first; index--) {
      tiles.forget();
      for (std::ptrdiff_t head = task.first_head; head < task.end_head && index >= least && !stop(); head++) {
        bool const same_index = head + 1 < task.end_head;
        std::ptrdiff_t const below = index > std::max(task.first, least) ? index - 1 : kNone;
        GroupNumber const next{same_index ? head + 1 : task.first_head, same_index ? index : below};
        run_group(pass, {head, index}, next, copies[static_cast<std::size_t>(head - task.first_head)], tiles, scratch,
                  stop);
      }
      if (least > 0) run_riding(pass, task.first_head, task.end_head, index, riding, stop);
    }
  }

  // The parts that ride with the groups number `index` of some heads.
  void run_riding(std::ptrdiff_t pass, std::ptrdiff_t first_head, std::ptrdiff_t end_head, std::ptrdiff_t index,
                  Parts& riding, const StopCheck& stop) const {
    Order const& order = plan_.pass(first_head % problem_.heads(), pass)->order;
    Shares const shares(order, problem_.keys());
    for (std::ptrdiff_t share = shares.begun_before(index); share < shares.begun_before(index + 1); share++)
      for (std::ptrdiff_t head = first_head; head < end_head; head++)
        for (std::ptrdiff_t i = 0; i < order.apart && !stop(); i++) run_part(pass, riding, {head, i}, share, stop);
  }

  void run_group(std::ptrdiff_t pass, GroupNumber number, GroupNumber next, ClassRows<T>& copies, KeptTiles& tiles,
                 const Scratch<T>& scratch, const StopCheck& stop) const {
    QueryGroup<T> queries = group(pass, number.head, number.index);
    copies.redirect(queries);
    ForwardRows<T> rows;
    rows.past_caches = past_caches_;
    std::vector<T> later(static_cast<std::size_t>(pass == 0 ? 0 : kLanes * problem_.value_dim()));
    for (int lane = 0; lane < queries.group.lanes; lane++)
      rows.out[lane] = pass == 0 ? out_row(queries, lane) : later.data() + lane * problem_.value_dim();
    auto const for_each_tiles = [&](auto step) {
      return tiles.for_each(queries, stop, [&](const Tile* some, int count) {
        if (pass == 0 && next.index != kNone) fetch_next(queries, number, next, some, count);
        return step(some, count);
      });
    };
    if (!run_forward(kernel_, queries, rows, scratch, for_each_tiles)) return;
    if (pass == 0) return store_statistics(queries, rows);
    store_merged(pass, queries, 1, [&](std::ptrdiff_t, int lane) {
      return Partial<T>{rows.out[lane], rows.maximum[lane], rows.sum[lane]};
    });
  }

  // What the next group will be the first to need, while this one meets its tiles.
  void fetch_next(QueryGroup<T>& queries, GroupNumber number, GroupNumber next, const Tile* tiles, int count) const {
    static_assert(kAhead >= 4, "as many arrays as here");
    Ahead<T>* const ahead = queries.group.ahead;
    const Pass* const pass = queries.choice().pass;
    std::ptrdiff_t const batch = queries.batch, head = next.head % problem_.heads(),
                         key_head = head / problem_.heads_per_key_head();
    ahead[0] = rows_ahead(problem_.query, pass, batch, head, next.index);
    if (queries.group.key.step > 1) return;  // its keys are copies
    if (!past_caches_) ahead[1] = rows_ahead(results_.out, pass, batch, head, next.index);
    const Tile* const whole =
        std::find_if(tiles, tiles + count, [](const Tile& tile) { return !tile.indices && tile.count == kTileKeys; });
    std::ptrdiff_t const back = next.index < number.index ? kLanes : 0,
                         first = whole < tiles + count ? whole->first - back : problem_.keys();
    ahead[2] = new_keys_ahead(problem_.key, pass, batch, key_head, next.index, first);
    ahead[3] = new_keys_ahead(problem_.value, pass, batch, key_head, next.index, first);
  }

  void run_in_parts(std::ptrdiff_t pass, Parts& parts, const Control& control) const {
    std::ptrdiff_t const of_head = parts.groups * parts.each;
    int const threads = useful_threads(problem_, control);
    parallel_for(heads() * of_head, threads, control.interrupted, [&](std::ptrdiff_t task, const StopCheck& stop) {
      GroupNumber const number{task / of_head, task % of_head / parts.each};
      if (number.index < groups(pass, number.head)) run_part(pass, parts, number, task % parts.each, stop);
    });
    merge_parts(pass, parts, control, [&](std::ptrdiff_t head) { return groups(pass, head); });
  }

  Partial<T>* rows_of(Parts& parts, GroupNumber number, std::ptrdiff_t share) const {
    std::ptrdiff_t const part = (number.head * parts.groups + number.index) * parts.each + share;
    return &parts.rows[static_cast<std::size_t>(part * parts.lanes)];
  }

  void run_part(std::ptrdiff_t pass, Parts& parts, GroupNumber number, std::ptrdiff_t share,
                const StopCheck& stop) const {
    QueryGroup<T> queries = group(pass, number.head, number.index);
    Reach reach = queries.reach();
    reach.clip_to_share(share, parts.each);
    Scratch<T> const scratch(kernel_, problem_.head_dim(), problem_.value_dim());
    Partial<T>* const partial = rows_of(parts, number, share);
    ForwardRows<T> rows;
    rows.past_caches = false;
    for (int lane = 0; lane < queries.group.lanes; lane++) rows.out[lane] = partial[lane].out;
    if (!run_forward(kernel_, queries, reach, rows, scratch, stop)) return;
    for (int lane = 0; lane < queries.group.lanes; lane++) {
      partial[lane].maximum = rows.maximum[lane];
      partial[lane].sum = rows.sum[lane];
    }
  }

  template <class CountOf>
  void merge_parts(std::ptrdiff_t pass, Parts& parts, const Control& control, CountOf count_of) const {
    parallel_for(heads() * parts.groups, 1, control.interrupted, [&](std::ptrdiff_t task, const StopCheck&) {
      GroupNumber const number{task / parts.groups, task % parts.groups};
      if (number.index < count_of(number.head))
        store_merged(pass, group(pass, number.head, number.index), parts.each,
                     [&](std::ptrdiff_t share, int lane) { return rows_of(parts, number, share)[lane]; });
    });
  }

  // A group's rows from parts of its keys, part_of(i, lane), after what the earlier passes found.
  template <class PartOf>
  void store_merged(std::ptrdiff_t pass, const QueryGroup<T>& queries, std::ptrdiff_t count, PartOf part_of) const {
    std::vector<T> before(static_cast<std::size_t>(problem_.value_dim()));
    std::vector<Partial<T>> row;
    ForwardRows<T> whole;
    for (int lane = 0; lane < queries.group.lanes; lane++) {
      row.clear();
      if (pass > 0) row.push_back(earlier(queries, lane, before.data()));
      for (std::ptrdiff_t i = 0; i < count; i++) row.push_back(part_of(i, lane));
      whole.out[lane] = out_row(queries, lane);
      merge(row, lane, whole);
    }
    store_statistics(queries, whole);
  }

  // What the earlier passes found, its row copied to `copy`.
  Partial<T> earlier(const QueryGroup<T>& queries, int lane, T* copy) const {
    std::copy_n(out_row(queries, lane), problem_.value_dim(), copy);
    const T* const statistics = results_.statistics.at(queries.batch, queries.head, queries.query[lane]);
    return {copy, statistics[0], statistics[1] == 0 ? 0 : 1 / static_cast<double>(statistics[1])};
  }

  // A row over all keys from its parts: out = sum of part.out * share, share = part.sum / sum of the sums, under one
  // maximum.
  void merge(const std::vector<Partial<T>>& parts, int lane, ForwardRows<T>& whole) const {
    T maximum = -std::numeric_limits<T>::infinity();
    for (const Partial<T>& part : parts)
      if (part.maximum > maximum || std::isnan(part.maximum)) maximum = part.maximum;  // a NaN stays
    auto const sum_of = [&](const Partial<T>& part) {
      return part.sum == 0 ? 0 : part.sum * std::exp2(static_cast<double>(part.maximum - maximum));
    };
    double sum = 0;
    for (const Partial<T>& part : parts) sum += sum_of(part);
    whole.maximum[lane] = maximum;
    whole.sum[lane] = sum;
    whole.inverse_sum[lane] = sum == 0 ? T(0) : static_cast<T>(1 / sum);
    std::fill_n(whole.out[lane], problem_.value_dim(), T(0));
    for (const Partial<T>& part : parts) {
      if (part.sum == 0) continue;
      T const share = static_cast<T>(sum_of(part) / sum);
      for (int d = 0; d < problem_.value_dim(); d++) whole.out[lane][d] += part.out[d] * share;
    }
  }

  T* out_row(const QueryGroup<T>& queries, int lane) const {
    return results_.out.at(queries.batch, queries.head, queries.query[lane]);
  }

  void store_statistics(const QueryGroup<T>& queries, const ForwardRows<T>& rows) const {
    if (!results_.lse && !results_.statistics) return;
    for (int lane = 0; lane < queries.group.lanes; lane++) {
      std::ptrdiff_t const i = queries.query[lane];
      if (results_.lse) *results_.lse.at(queries.batch, queries.head, i) = log_sum_exp(rows, lane);
      if (!results_.statistics) continue;
      *results_.statistics.at(queries.batch, queries.head, i, 0) = rows.maximum[lane];
      *results_.statistics.at(queries.batch, queries.head, i, 1) = rows.inverse_sum[lane];
    }
  }

  const Problem<T>& problem_;
  ForwardViews<T> results_;
  Kernel<T> const kernel_;
  Plan const plan_;
  bool const past_caches_;  // where no later pass reads its rows
  Buffer<T> statistics_;
};

}  // namespace

template <class T>
void attention_forward(const Problem<T>& problem, const ForwardViews<T>& results, const Control& control) {
  ForwardPass<T>(problem, results).run(control);
}

template void attention_forward(const Problem<float>&, const ForwardViews<float>&, const Control&);
template void attention_forward(const Problem<double>&, const ForwardViews<double>&, const Control&);

}  // namespace headspan
