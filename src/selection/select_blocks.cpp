// SPDX-License-Identifier: BSD-3-Clause
#include "select_blocks.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/array_view.h"
#include "base/buffer_pool.h"
#include "base/parallel.h"
#include "base/tile.h"
#include "kernel/dispatch.h"
#include "kernel/interface.h"
#include "kernel/rows/row_source.h"

namespace headspan {

namespace {

constexpr std::ptrdiff_t kNeighbours = 16;  // blocks per neighbourhood

// The blocks with the largest scores so far; the earlier one wins a tie. NaN is not larger than any number.
template <class T>
class Best {
 public:
  explicit Best(std::ptrdiff_t most) : scores_(static_cast<std::size_t>(most)), blocks_(scores_.size()) {
    if (most == 0) least_ = std::numeric_limits<T>::infinity();
  }

  T least() const { return least_; }  // what a score must exceed
  void add(T score, std::int64_t block) {
    std::size_t at = count_ < scores_.size() ? count_++ : count_ - 1;
    for (; at > 0 && scores_[at - 1] < score; at--) {
      scores_[at] = scores_[at - 1];
      blocks_[at] = blocks_[at - 1];
    }
    scores_[at] = score;
    blocks_[at] = block;
    if (count_ == scores_.size()) least_ = scores_.back();
  }
  std::int64_t* begin() { return blocks_.data(); }
  std::int64_t* end() { return blocks_.data() + count_; }

 private:
  std::vector<T> scores_;
  std::vector<std::int64_t> blocks_;
  std::size_t count_ = 0;
  T least_ = -std::numeric_limits<T>::infinity();
};

// Blocks first .. last - 1, twice.
struct Ranges {
  std::ptrdiff_t first[2], last[2];

  bool has(std::ptrdiff_t block) const {
    return (block >= first[0] && block < last[0]) || (block >= first[1] && block < last[1]);
  }
  std::ptrdiff_t count() const { return last[0] - first[0] + last[1] - first[1]; }
  // One past the last block; an empty range may be anywhere.
  std::ptrdiff_t end() const {
    std::ptrdiff_t end = 0;
    for (int i = 0; i < 2; i++)
      if (first[i] < last[i]) end = std::max(end, last[i]);
    return end;
  }
  // The neighbourhoods that are entirely within the ranges.
  Ranges neighbourhoods() const {
    Ranges result;
    for (int i = 0; i < 2; i++) {
      result.first[i] = (first[i] + kNeighbours - 1) / kNeighbours;
      result.last[i] = std::max(result.first[i], last[i] / kNeighbours);
    }
    return result;
  }
};

// The means of some blocks of queries as a group of the kernel, and those of keys as its keys.
template <class T>
Group<T> group_of_means(const ArrayView<const T, 4>& query, const ArrayView<const T, 4>& key, std::ptrdiff_t batch,
                        std::ptrdiff_t head, std::ptrdiff_t row, int lanes) {
  Group<T> group{};
  group.lanes = lanes;
  group.head_dim = static_cast<int>(query.shape[3]);
  group.key = array_rows(key.at(batch, head / (query.shape[1] / key.shape[1])), key.stride[2]);
  group.value = group.key;
  for (int lane = 0; lane < kLanes; lane++) {
    group.query[lane] = query.at(batch, head, row + (lane < lanes ? lane : 0));
    group.scale[lane] = 1;
    group.span[lane] = std::numeric_limits<T>::infinity();
    group.sink[lane] = -std::numeric_limits<T>::infinity();
  }
  return group;
}

template <class T>
class BlockSelection {
 public:
  BlockSelection(const ArrayView<const T, 4>& query, const ArrayView<const T, 4>& key, const BlockChoice& choice,
                 const ArrayView<std::int64_t, 4>& chosen)
      : query_(query), key_(key), choice_(choice), chosen_(chosen), kernel_(active_kernel<T>()) {}

  void run(const Control& control) {
    std::ptrdiff_t const heads = query_.shape[1], rows = query_.shape[2], tasks = (rows + kLanes - 1) / kLanes;
    if (key_.shape[2] > choice_.shortlist) find_neighbourhoods(control);
    parallel_for(query_.shape[0] * heads * tasks, control.threads, control.interrupted,
                 [&](std::ptrdiff_t task, const StopCheck& stop) {
                   std::ptrdiff_t const first = task % tasks * kLanes;
                   run_rows(task / tasks / heads, task / tasks % heads, first,
                            static_cast<int>(std::min<std::ptrdiff_t>(rows - first, kLanes)), stop);
                 });
  }

 private:
  void find_neighbourhoods(const Control& control) {
    std::ptrdiff_t const batch = key_.shape[0], heads = key_.shape[1], count = key_.shape[2] / kNeighbours,
                         dims = key_.shape[3];
    means_ =
        Buffer<T>(checked_product(static_cast<std::size_t>(batch * heads), static_cast<std::size_t>(count * dims)));
    ArrayView<T, 4> const means{
        means_.data(), {batch, heads, count, dims}, {heads * count * dims, count * dims, dims, 1}};
    block_means(key_, kNeighbours, 0, means, control);
    neighbourhoods_.data = means.data;
    std::copy_n(means.shape, 4, neighbourhoods_.shape);
    std::copy_n(means.stride, 4, neighbourhoods_.stride);
  }

  Ranges allowed(std::ptrdiff_t row) const {
    auto const end = [&](int which) { return *choice_.allowed.at(row, which); };
    return {{end(0), end(2)}, {end(1), end(3)}};
  }

  void run_rows(std::ptrdiff_t batch, std::ptrdiff_t head, std::ptrdiff_t first, int lanes,
                const StopCheck& stop) const {
    void* const workspace = thread_scratch(kernel_.workspace_bytes(static_cast<int>(query_.shape[3]), 0));
    Ranges blocks[kLanes], neighbourhoods[kLanes];
    bool is_long[kLanes];
    for (int lane = 0; lane < lanes; lane++) {
      Ranges const ranges = allowed(first + lane);
      is_long[lane] = ranges.count() > choice_.shortlist;
      blocks[lane] = is_long[lane] ? Ranges{} : ranges;
      neighbourhoods[lane] = is_long[lane] ? ranges.neighbourhoods() : Ranges{};
    }
    std::vector<Best<T>> of_blocks(kLanes, Best<T>(chosen_.shape[3]));
    std::ptrdiff_t const shortlist = std::min(choice_.shortlist, key_.shape[2]);
    std::vector<Best<T>> around(kLanes, Best<T>(std::max<std::ptrdiff_t>(shortlist / kNeighbours, 1)));
    compare(key_, batch, head, first, lanes, blocks, of_blocks, workspace);
    compare(neighbourhoods_, batch, head, first, lanes, neighbourhoods, around, workspace);
    for (int lane = 0; lane < lanes && !stop(); lane++) {
      if (is_long[lane])
        look_around(batch, head, first + lane, around[static_cast<std::size_t>(lane)],
                    of_blocks[static_cast<std::size_t>(lane)], workspace);
      Best<T>& best = of_blocks[static_cast<std::size_t>(lane)];
      std::sort(best.begin(), best.end());
      std::int64_t* const to = chosen_.at(batch, head, first + lane);
      std::fill(std::copy(best.begin(), best.end(), to), to + chosen_.shape[3], -1);
    }
  }

  // The best allowed blocks of each lane, for some rows at a time.
  void compare(const ArrayView<const T, 4>& means, std::ptrdiff_t batch, std::ptrdiff_t head, std::ptrdiff_t first,
               int lanes, const Ranges* ranges, std::vector<Best<T>>& best, void* workspace) const {
    std::ptrdiff_t last = 0;
    T least[kLanes];
    for (int lane = 0; lane < lanes; lane++) {
      last = std::max(last, ranges[lane].end());
      least[lane] = best[static_cast<std::size_t>(lane)].least();
    }
    if (last == 0) return;
    Group<T> const group = group_of_means(query_, means, batch, head, first, lanes);
    kernel_.forward_begin(group, workspace);
    for (std::ptrdiff_t at = 0; at < last; at += kTileKeys) {
      int const count = static_cast<int>(std::min<std::ptrdiff_t>(last - at, kTileKeys));
      T products[kTileKeys * kLanes];
      kernel_.products_tile(group, {at, 1, nullptr, nullptr, count, false}, products, workspace);
      for (int r = 0; r < count; r++)
        for (int lane = 0; lane < lanes; lane++) {
          T const score = products[r * lanes + lane];
          if (!(score > least[lane]) || !ranges[lane].has(at + r)) continue;
          Best<T>& of_lane = best[static_cast<std::size_t>(lane)];
          of_lane.add(score, at + r);
          least[lane] = of_lane.least();
        }
    }
  }

  // The best blocks of the best neighbourhoods and of those that are not entirely allowed.
  void look_around(std::ptrdiff_t batch, std::ptrdiff_t head, std::ptrdiff_t row, Best<T>& around, Best<T>& best,
                   void* workspace) const {
    std::vector<std::int64_t> candidates;
    candidates.reserve(static_cast<std::size_t>(choice_.shortlist + 5 * kNeighbours));  // fewer than all blocks
    auto const add = [&](std::ptrdiff_t first, std::ptrdiff_t last) {
      for (; first < last; first++) candidates.push_back(first);
    };
    Ranges const ranges = allowed(row), neighbourhoods = ranges.neighbourhoods();
    std::sort(around.begin(), around.end());
    const std::int64_t* at = around.begin();
    for (int i = 0; i < 2; i++) {
      add(ranges.first[i], std::min(ranges.last[i], neighbourhoods.first[i] * kNeighbours));
      for (; at != around.end() && *at < neighbourhoods.last[i]; ++at) add(*at * kNeighbours, (*at + 1) * kNeighbours);
      add(std::max(ranges.first[i], neighbourhoods.last[i] * kNeighbours), ranges.last[i]);
    }
    Group<T> const group = group_of_means(query_, key_, batch, head, row, 1);
    kernel_.forward_begin(group, workspace);
    std::ptrdiff_t const count = static_cast<std::ptrdiff_t>(candidates.size());
    for (std::ptrdiff_t first = 0; first < count; first += kTileKeys) {
      const std::int64_t* const of_tile = candidates.data() + first;
      T products[kTileKeys];
      int const keys = static_cast<int>(std::min<std::ptrdiff_t>(count - first, kTileKeys));
      kernel_.products_tile(group, {0, 1, of_tile, nullptr, keys, false}, products, workspace);
      for (int r = 0; r < keys; r++)
        if (products[r] > best.least()) best.add(products[r], of_tile[r]);
    }
  }

  const ArrayView<const T, 4>&query_, &key_;
  const BlockChoice& choice_;
  const ArrayView<std::int64_t, 4>& chosen_;
  Kernel<T> const kernel_;
  ArrayView<const T, 4> neighbourhoods_;
  Buffer<T> means_;
};

}  // namespace

template <class T>
void block_means(const ArrayView<const T, 4>& rows, std::ptrdiff_t size, std::ptrdiff_t before,
                 const ArrayView<T, 4>& means, const Control& control) {
  std::ptrdiff_t const tokens = rows.shape[2], dims = rows.shape[3], blocks = means.shape[2], heads = rows.shape[1];
  constexpr std::ptrdiff_t ahead = 16, line = 64 / sizeof(T);  // memory bandwidth is the limit
  std::ptrdiff_t const at_a_time = std::max<std::ptrdiff_t>(1024 / size, 1);
  std::ptrdiff_t const tasks = (blocks + at_a_time - 1) / at_a_time;
  parallel_for(rows.shape[0] * heads * tasks, control.threads, control.interrupted,
               [&](std::ptrdiff_t task, const StopCheck&) {
                 std::ptrdiff_t const row = task / tasks, from = task % tasks * at_a_time;
                 for (std::ptrdiff_t block = from; block < std::min(blocks, from + at_a_time); block++) {
                   std::ptrdiff_t const first = std::max<std::ptrdiff_t>(block * size - before, 0),
                                        last = std::min(tokens, (block + 1) * size - before);
                   T* const mean = means.at(row / heads, row % heads, block);
                   std::fill_n(mean, dims, T(0));
                   for (std::ptrdiff_t token = first; token < last; token++) {
                     const T* const now = rows.at(row / heads, row % heads, token);
                     if (token + ahead < tokens) {
                       const T* const later = rows.at(row / heads, row % heads, token + ahead);
                       for (std::ptrdiff_t d = 0; d < dims; d += line) __builtin_prefetch(later + d);
                     }
                     for (std::ptrdiff_t d = 0; d < dims; d++) mean[d] += now[d];
                   }
                   T const share = T(1) / static_cast<T>(std::max<std::ptrdiff_t>(last - first, 1));
                   for (std::ptrdiff_t d = 0; d < dims; d++) mean[d] *= share;
                 }
               });
}

template <class T>
void select_blocks(const ArrayView<const T, 4>& query, const ArrayView<const T, 4>& key, const BlockChoice& choice,
                   const ArrayView<std::int64_t, 4>& chosen, const Control& control) {
  BlockSelection<T>(query, key, choice, chosen).run(control);
}

template void block_means(const ArrayView<const float, 4>&, std::ptrdiff_t, std::ptrdiff_t, const ArrayView<float, 4>&,
                          const Control&);
template void block_means(const ArrayView<const double, 4>&, std::ptrdiff_t, std::ptrdiff_t,
                          const ArrayView<double, 4>&, const Control&);
template void select_blocks(const ArrayView<const float, 4>&, const ArrayView<const float, 4>&, const BlockChoice&,
                            const ArrayView<std::int64_t, 4>&, const Control&);
template void select_blocks(const ArrayView<const double, 4>&, const ArrayView<const double, 4>&, const BlockChoice&,
                            const ArrayView<std::int64_t, 4>&, const Control&);

}  // namespace headspan
