// SPDX-License-Identifier: BSD-3-Clause
// A separate number for every pair, which is read when the pair is computed.
#include <cstddef>
#include <memory>

#include "base/tile.h"
#include "kernel/interface.h"
#include "score_term.h"

namespace headspan {

namespace {

template <class T>
class BiasOfPairs : public ScoreTerm<T> {
 public:
  // numbers: (batch or 1, heads or 1, queries, keys)
  explicit BiasOfPairs(const TermArrays<T>& arrays) : bias_(arrays.numbers.at(0)) {
    for (int axis = 0; axis < 2; axis++)
      if (bias_.shape[axis] == 1) bias_.stride[axis] = 0;
  }

  void rows(const GroupPlace<T>& place, const Tile& tile, T* room, const T** rows) const override {
    for (int r = 0; r < tile.count; r++) rows[r] = room + r * kLanes;
    for (int lane = 0; lane < kLanes; lane++) {
      const T* const row = bias_.at(place.batch, place.head, place.query[lane]);
      for (int r = 0; r < tile.count; r++)
        room[r * kLanes + lane] = static_cast<T>(row[key_index(tile, r) * bias_.stride[3]] * kLog2e);
    }
  }

  bool removes() const override { return true; }

  std::ptrdiff_t gradient_size() const override { return bias_.shape[2] * bias_.shape[3]; }
  bool groups_share() const override { return false; }
  void add_gradient(const GroupPlace<T>& place, const Tile& tile, const T* ds, double* gradient) const override {
    for (int lane = 0; lane < place.group->lanes; lane++) {
      double* const row = gradient + place.query[lane] * bias_.shape[3];
      for (int r = 0; r < tile.count; r++) row[key_index(tile, r)] += static_cast<double>(ds[r * kLanes + lane]);
    }
  }

 private:
  ArrayView<const T, 4> bias_;
};

}  // namespace

template <class T>
std::unique_ptr<ScoreTerm<T>> make_pair_bias(const TermArrays<T>& arrays) {
  return std::make_unique<BiasOfPairs<T>>(arrays);
}
template std::unique_ptr<ScoreTerm<float>> make_pair_bias(const TermArrays<float>&);
template std::unique_ptr<ScoreTerm<double>> make_pair_bias(const TermArrays<double>&);

}  // namespace headspan
