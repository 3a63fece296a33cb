// SPDX-License-Identifier: BSD-3-Clause
// A factor of all pairs of a block, as its logarithm added to their scores.
#include "score_term.h"

namespace headspan {

namespace {

template <class T>
class BlockGates : public ScoreTerm<T> {
 public:
  // numbers: logarithms, (1, heads or 1, query blocks, key blocks). integers: how many queries and keys a block has,
  // and which token query 0 is.
  explicit BlockGates(const TermArrays<T>& arrays)
      : logs_(arrays.numbers.at(0)),
        query_block_(*arrays.integers.at(0).at(0)),
        key_block_(*arrays.integers.at(0).at(1)),
        first_(*arrays.integers.at(0).at(2)) {}

  // Neighbouring keys of a block share their row.
  void rows(const GroupPlace<T>& place, const Tile& tile, T* room, const T** rows) const override {
    const T* of_lane[kLanes];
    for (int lane = 0; lane < kLanes; lane++)
      of_lane[lane] = logs_.at(0, logs_.shape[1] == 1 ? 0 : place.head, block_of(place.query[lane]));
    for_each_run(tile, [&](int begin, int end, std::ptrdiff_t block) {
      T* const row = room + begin * kLanes;
      for (int lane = 0; lane < kLanes; lane++)
        row[lane] = static_cast<T>(of_lane[lane][block * logs_.stride[3]] * kLog2e);
      for (int r = begin; r < end; r++) rows[r] = row;
    });
  }

  std::ptrdiff_t gradient_size() const override { return logs_.shape[2] * logs_.shape[3]; }
  bool groups_share() const override { return true; }
  void add_gradient(const GroupPlace<T>& place, const Tile& tile, const T* ds, double* gradient) const override {
    for_each_run(tile, [&](int begin, int end, std::ptrdiff_t block) {
      T sum[kLanes] = {};
      for (int r = begin; r < end; r++)
        for (int lane = 0; lane < kLanes; lane++) sum[lane] += ds[r * kLanes + lane];
      for (int lane = 0; lane < place.group->lanes; lane++)
        gradient[block_of(place.query[lane]) * logs_.shape[3] + block] += static_cast<double>(sum[lane]);
    });
  }

 private:
  std::ptrdiff_t block_of(std::ptrdiff_t query) const { return (first_ + query) / query_block_; }

  // Calls work(begin, end, block) for the keys of a tile from `begin` to before `end`, which lie in one block.
  template <class Work>
  void for_each_run(const Tile& tile, Work work) const {
    for (int begin = 0, end = 0; begin < tile.count; begin = end) {
      std::ptrdiff_t const block = key_index(tile, begin) / key_block_, first = block * key_block_;
      for (end = begin + 1; end < tile.count; end++)
        if (std::ptrdiff_t const key = key_index(tile, end); key < first || key >= first + key_block_) break;
      work(begin, end, block);
    }
  }

  ArrayView<const T, 4> const logs_;
  std::ptrdiff_t const query_block_, key_block_, first_;
};

}  // namespace

template <class T>
std::unique_ptr<ScoreTerm<T>> make_block_gates(const TermArrays<T>& arrays) {
  return std::make_unique<BlockGates<T>>(arrays);
}
template std::unique_ptr<ScoreTerm<float>> make_block_gates(const TermArrays<float>&);
template std::unique_ptr<ScoreTerm<double>> make_block_gates(const TermArrays<double>&);

}  // namespace headspan
