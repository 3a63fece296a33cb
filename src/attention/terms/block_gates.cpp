// SPDX-License-Identifier: BSD-3-Clause
// A factor for all pairs of a block, whose logarithm is added to their scores.
#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>

#include "base/tile.h"
#include "kernel/interface.h"
#include "score_term.h"

namespace headspan {

namespace {

template <class T>
class BlockGates : public ScoreTerm<T> {
 public:
  // numbers: logarithms, (1, heads or 1, query blocks, key blocks). integers: the numbers of queries and of keys per
  // block, and the token of query 0.
  explicit BlockGates(const TermArrays<T>& arrays)
      : logs_(arrays.numbers.at(0)),
        query_block_(*arrays.integers.at(0).at(0)),
        key_block_(*arrays.integers.at(0).at(1)),
        first_(*arrays.integers.at(0).at(2)) {
    for (std::ptrdiff_t head = 0; head < logs_.shape[1]; head++)
      for (std::ptrdiff_t row = 0; row < logs_.shape[2]; row++)
        for (std::ptrdiff_t column = 0; column < logs_.shape[3]; column++)
          removes_ |= *logs_.at(0, head, row, column) == -std::numeric_limits<T>::infinity();
  }

  // Neighbouring keys of a block share their row, and neighbouring lanes of a block share their number.
  void rows(const GroupPlace<T>& place, const Tile& tile, T* room, const T** rows) const override {
    Runs const lanes = runs_of(kLanes, query_block_, [&](int lane) { return first_ + place.query[lane]; });
    Runs const keys = runs_of(tile.count, key_block_, [&](int r) { return key_index(tile, r); });
    for (int k = 0; k < keys.count; k++) {
      T* const row = room + keys.begin[k] * kLanes;
      for (int l = 0; l < lanes.count; l++) {
        T const log = *logs_.at(0, logs_.shape[1] == 1 ? 0 : place.head, lanes.block[l], keys.block[k]);
        std::fill(row + lanes.begin[l], row + lanes.begin[l + 1], static_cast<T>(log * kLog2e));
      }
      for (int r = keys.begin[k]; r < keys.begin[k + 1]; r++) rows[r] = row;
    }
  }

  bool removes() const override { return removes_; }

  std::ptrdiff_t gradient_size() const override { return logs_.shape[2] * logs_.shape[3]; }
  bool groups_share() const override { return true; }
  void add_gradient(const GroupPlace<T>& place, const Tile& tile, const T* ds, double* gradient) const override {
    Runs const lanes = runs_of(place.group->lanes, query_block_, [&](int lane) { return first_ + place.query[lane]; });
    Runs const keys = runs_of(tile.count, key_block_, [&](int r) { return key_index(tile, r); });
    for (int k = 0; k < keys.count; k++) {
      T sum[kLanes] = {};
      for (int r = keys.begin[k]; r < keys.begin[k + 1]; r++)
        for (int lane = 0; lane < kLanes; lane++) sum[lane] += ds[r * kLanes + lane];
      for (int l = 0; l < lanes.count; l++) {
        double& of_block = gradient[lanes.block[l] * logs_.shape[3] + keys.block[k]];
        for (int lane = lanes.begin[l]; lane < lanes.begin[l + 1]; lane++) of_block += static_cast<double>(sum[lane]);
      }
    }
  }

 private:
  // Neighbours in one block: run i is from begin[i] to before begin[i + 1].
  struct Runs {
    int count = 0;
    int begin[std::max(kLanes, kTileKeys) + 1];
    std::ptrdiff_t block[std::max(kLanes, kTileKeys)];
  };
  template <class Index>
  static Runs runs_of(int count, std::ptrdiff_t side, Index index) {
    Runs runs;
    for (int i = 0; i < count; runs.count++) {
      std::ptrdiff_t const block = index(i) / side, first = block * side;
      runs.begin[runs.count] = i;
      runs.block[runs.count] = block;
      while (i < count && index(i) >= first && index(i) < first + side) i++;
    }
    runs.begin[runs.count] = count;
    return runs;
  }

  ArrayView<const T, 4> const logs_;
  std::ptrdiff_t const query_block_, key_block_, first_;
  bool removes_ = false;  // whether a gate is 0
};

}  // namespace

template <class T>
std::unique_ptr<ScoreTerm<T>> make_block_gates(const TermArrays<T>& arrays) {
  return std::make_unique<BlockGates<T>>(arrays);
}
template std::unique_ptr<ScoreTerm<float>> make_block_gates(const TermArrays<float>&);
template std::unique_ptr<ScoreTerm<double>> make_block_gates(const TermArrays<double>&);

}  // namespace headspan
