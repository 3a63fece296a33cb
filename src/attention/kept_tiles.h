// SPDX-License-Identifier: BSD-3-Clause
// Heads with one pattern: the tiles of a group, which only the pattern decides, are made for the first of them.
#pragma once

#include <algorithm>

#include "group_run.h"

namespace headspan {

// The tiles of a group, kept for the same group of another head that has the same ones, if they fit into one batch.
class KeptTiles {
 public:
  explicit KeptTiles(TileBatch& batch) : batch_(batch) {}
  void forget() { count_ = -1; }

  // As for_each_batch, over the kept tiles or, where there are none, those of `queries`.
  template <class T, class Step>
  bool for_each(const QueryGroup<T>& queries, const StopCheck& stop, Step step) {
    if (count_ >= 0) return count_ == 0 || (!stop() && step(batch_.tiles, count_));
    VisibleKeys const keys = queries.schedule.visible_keys();
    count_ = 0;
    bool const finished = for_each_batch(queries.schedule.tiles(keys), batch_, stop, [&](const Tile* tiles, int count) {
      count_ += count;
      return step(tiles, count);
    });
    if (!finished || count_ >= queries.schedule.rules().tiles_at_once) forget();
    return finished;
  }

 private:
  TileBatch& batch_;
  int count_ = -1;  // none are kept
};

// How many heads should take their groups in turn, so that the tiles of a group are made once for all of them: as many
// as have their keys in a second-level cache together, and as leave enough tasks for the threads.
template <class T>
std::ptrdiff_t heads_in_turn(const Request<T>& request, const Plan& plan, std::ptrdiff_t stage, int threads) {
  constexpr std::ptrdiff_t cache = 512 << 10, tasks_a_thread = 8;
  std::ptrdiff_t const groups = plan.groups(0, stage), heads = request.heads();
  bool const same_tiles = request.patterns.size() == 1 && (!request.span || request.span.stride[1] == 0) &&
                          (!request.removed || request.removed.stride[1] == 0);
  if (!same_tiles || groups == 0 || heads == 1 || request.batch() == 0) return 1;
  ThreadWorkspace<T> const workspace(active_kernel<T>(), request.head_dim(), request.value_dim());
  QueryGroup<T> const queries = group_of(request, plan, 0, 0, stage, groups / 2);  // as good as any
  VisibleKeys const keys = queries.schedule.visible_keys();
  std::ptrdiff_t const tiles = queries.schedule.tiles(keys).next(*workspace.tiles),
                       a_head = (request.head_dim() + request.value_dim()) * static_cast<std::ptrdiff_t>(sizeof(T)) *
                                kTileKeys * std::max<std::ptrdiff_t>(tiles, 1),
                       most = request.batch() * heads * groups / (tasks_a_thread * threads);
  return std::clamp<std::ptrdiff_t>(std::min(cache / a_head, most), 1, heads);
}

}  // namespace headspan
