// SPDX-License-Identifier: BSD-3-Clause
// Attention weights for selected rows and columns, optionally pooled, as for pictures. Needs only memory for the
// result.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/array_view.h"
#include "base/parallel.h"
#include "base/tile.h"
#include "group_run.h"
#include "kernel/interface.h"
#include "query_group.h"
#include "request.h"
#include "schedule/group_key_range.h"
#include "schedule/group_schedule.h"
#include "schedule/tile_list.h"

namespace headspan {

namespace {

template <class T>
class WeightMap {
 public:
  WeightMap(const Request<T>& request, const Selection& selection, const ArrayView<T, 4>& weights)
      : request_(request),
        selection_(selection),
        weights_(weights),
        kernel_(active_kernel<T>()),
        plan_(request.patterns, request.heads(), request.queries(), request.keys()),
        rows_(selection.rows.shape[0]) {
    // A task computes whole rows of the result, for about one group of queries.
    std::ptrdiff_t const pools = std::max<std::ptrdiff_t>(1, kLanes / selection.pool_rows);
    rows_per_task_ = std::min(rows_, pools * selection.pool_rows);
    for (std::ptrdiff_t col = 1; col < selection.cols.shape[0]; col++)
      ascending_ = ascending_ && *selection.cols.at(col - 1) <= *selection.cols.at(col);
  }

  void run(const Control& control) const {
    if (rows_ == 0 || selection_.cols.shape[0] == 0) return;
    std::ptrdiff_t const tasks = (rows_ + rows_per_task_ - 1) / rows_per_task_;
    parallel_for(
        request_.batch() * request_.heads() * tasks, useful_threads(request_, control), control.interrupted,
        [&](std::ptrdiff_t task, const StopCheck& stop) {
          std::ptrdiff_t const batch = task / tasks / request_.heads(), head = task / tasks % request_.heads();
          std::ptrdiff_t const first = task % tasks * rows_per_task_, last = std::min(rows_, first + rows_per_task_);
          for (std::ptrdiff_t row = first / selection_.pool_rows; row <= (last - 1) / selection_.pool_rows; row++)
            std::fill_n(weights_.at(batch, head, row), weights_.shape[3], T(0));
          for (std::ptrdiff_t row = first; row < last; row += kLanes)
            if (!run_group(batch, head, row, static_cast<int>(std::min<std::ptrdiff_t>(kLanes, last - row)), stop))
              return;
        });
  }

 private:
  bool run_group(std::ptrdiff_t batch, std::ptrdiff_t head, std::ptrdiff_t first_row, int lanes,
                 const StopCheck& stop) const {
    GroupQueries chosen;
    chosen.lanes = lanes;
    for (int lane = 0; lane < kLanes; lane++) {
      chosen.query[lane] = *selection_.rows.at(first_row + (lane < lanes ? lane : 0));
      chosen.span[lane] = request_.span_of(batch, head, chosen.query[lane]);
    }
    QueryGroup<T> queries(request_, plan_, batch, head, plan_.single_stage(batch, head), chosen, true);
    VisibleKeys const keys = queries.schedule.visible_keys();
    // First compute the sum over all keys, without values.
    queries.group.value_dim = 0;
    ThreadWorkspace<T> const workspace(kernel_, request_.head_dim(), 0);
    ForwardRows<T> rows;
    rows.past_caches = false;
    T nothing[1];
    for (T*& out : rows.out) out = nothing;
    if (!run_forward(kernel_, request_, queries, keys, rows, workspace, stop)) return false;

    kernel_.weights_begin(queries.group, workspace.kernel);
    PooledRows const pooled(*this, batch, head, first_row, lanes);
    auto const [first_col, last_col] = columns_of(keys.span_exempt ? *keys.span_exempt : keys.in_span);
    TileList const tiles = queries.schedule.tiles(keys);
    for (std::ptrdiff_t col = first_col; col < last_col; col += kTileKeys) {
      if (stop()) return false;
      int const count = static_cast<int>(std::min<std::ptrdiff_t>(kTileKeys, last_col - col));
      std::int64_t indices[kTileKeys];
      for (int r = 0; r < count; r++) indices[r] = *selection_.cols.at(col + r);
      for (bool const exempt : {false, true}) {
        if (exempt && !keys.span_exempt) continue;
        std::optional<Tile> const tile = tiles.gathered(indices, count, exempt, workspace.tiles->lane_masks[0]);
        if (!tile) continue;
        T weights[kTileKeys * kLanes];
        kernel_.weights_tile(queries.group, *tile, rows, weights, workspace.kernel);
        pooled.add(weights, col, count);
      }
    }
    return true;
  }

  // The columns that may hold keys of a group: all, if the columns are in any order.
  std::pair<std::ptrdiff_t, std::ptrdiff_t> columns_of(const GroupKeyRange& keys) const {
    if (keys.empty()) return {0, 0};
    if (!ascending_) return {0, selection_.cols.shape[0]};
    return {first_column(keys.first()), first_column(keys.last())};
  }

  // The first of the ascending columns at or after the key.
  std::ptrdiff_t first_column(std::ptrdiff_t key) const {
    std::ptrdiff_t low = 0, high = selection_.cols.shape[0];
    while (low < high) {
      std::ptrdiff_t const middle = low + (high - low) / 2;
      if (*selection_.cols.at(middle) < key)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }

  // The rows of the result to which the queries of a group belong.
  class PooledRows {
   public:
    PooledRows(const WeightMap& map, std::ptrdiff_t batch, std::ptrdiff_t head, std::ptrdiff_t first_row, int lanes)
        : pool_cols_(map.selection_.pool_cols), step_(map.weights_.stride[3]) {
      std::ptrdiff_t const pool_rows = map.selection_.pool_rows;
      for (int lane = 0; lane < lanes;) {
        std::ptrdiff_t const row = (first_row + lane) / pool_rows;
        std::ptrdiff_t const left = (row + 1) * pool_rows - (first_row + lane);
        lane = static_cast<int>(std::min<std::ptrdiff_t>(lanes, lane + left));
        std::ptrdiff_t const size = std::min(pool_rows, map.rows_ - row * pool_rows);
        rows_[count_++] = {lane, map.weights_.at(batch, head, row), T(1) / static_cast<T>(size)};
      }
    }

    void add(const T* weights, std::ptrdiff_t first_col, int count) const {
      for (int r = 0; r < count;) {
        std::ptrdiff_t const col = (first_col + r) / pool_cols_;
        int const end = static_cast<int>(std::min<std::ptrdiff_t>(count, (col + 1) * pool_cols_ - first_col));
        T sums[kLanes];  // over the keys first: the queries of a key are adjacent
        std::copy_n(weights + r * kLanes, kLanes, sums);
        for (r++; r < end; r++)
          for (int lane = 0; lane < kLanes; lane++) sums[lane] += weights[r * kLanes + lane];
        add_column(sums, col);
      }
    }

   private:
    void add_column(const T* sums, std::ptrdiff_t col) const {
      for (int i = 0, lane = 0; i < count_; i++) {
        T total = 0;
        for (; lane < rows_[i].end; lane++) total += sums[lane];
        rows_[i].weights[col * step_] += total * rows_[i].share;
      }
    }

    struct Row {
      int end;     // one past its last lane
      T* weights;  // in the result
      T share;     // of one query in the mean over a row
    };
    Row rows_[kLanes];
    int count_ = 0;
    std::ptrdiff_t pool_cols_, step_;
  };

  const Request<T>& request_;
  const Selection& selection_;
  const ArrayView<T, 4>& weights_;
  Kernel<T> const kernel_;
  Plan const plan_;
  std::ptrdiff_t const rows_;
  std::ptrdiff_t rows_per_task_;
  bool ascending_ = true;
};

}  // namespace

template <class T>
void attention_weights(const Request<T>& request, const Selection& selection, const ArrayView<T, 4>& weights,
                       const Control& control) {
  WeightMap<T>(request, selection, weights).run(control);
}

template void attention_weights(const Request<float>&, const Selection&, const ArrayView<float, 4>&, const Control&);
template void attention_weights(const Request<double>&, const Selection&, const ArrayView<double, 4>&, const Control&);

}  // namespace headspan
