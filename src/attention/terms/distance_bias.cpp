// SPDX-License-Identifier: BSD-3-Clause
// A number for every distance, from a table with or without buckets; on a grid, one for every offset along the axes.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/array_view.h"
#include "base/tile.h"
#include "kernel/interface.h"
#include "score_term.h"

namespace headspan {

namespace {

// The table is expanded by offset, so that no pair needs a bucket lookup. On a line it runs from the farthest key ahead
// to the farthest back, and repeats the numbers of both ends kLanes times. Neighbouring queries then find their numbers
// for a key next to each other, and nothing is copied.
//
//     offset query - key   ... -L-1  -L  ...  0  ...  L  L+1 ...
//     values                    a    a   ...  b  ...  c   c         a row of lanes begins at (first query) - key
template <class T>
class DistanceBias : public ScoreTerm<T> {
 public:
  // numbers: the table, (1, 1, heads or 1, entries). integers: the entry of each offset key - query in row-major order,
  // and the odd number of offsets along each axis.
  explicit DistanceBias(const TermArrays<T>& arrays) : lengths_(arrays.integers.at(1)) {
    ArrayView<const T, 4> const table = arrays.numbers.at(0);
    ArrayView<const std::int64_t, 1> const entries = arrays.integers.at(0);
    entry_count_ = table.shape[3];
    heads_ = table.shape[2];
    std::ptrdiff_t const offsets = entries.shape[0];
    bool const line = lengths_.shape[0] == 1;
    std::ptrdiff_t const beyond = line ? kLanes : 0;
    for (std::ptrdiff_t i = -beyond; i < offsets + beyond; i++) {
      std::ptrdiff_t const inside = std::clamp<std::ptrdiff_t>(i, 0, offsets - 1);
      entry_.push_back(*entries.at(line ? offsets - 1 - inside : inside));
    }
    for (std::ptrdiff_t head = 0; head < heads_; head++)
      for (std::int64_t const entry : entry_) values_.push_back(static_cast<T>(*table.at(0, 0, head, entry) * kLog2e));
  }

  void rows(const GroupPlace<T>& place, const Tile& tile, T* room, const T** rows) const override {
    const T* const values = values_.data() + (heads_ == 1 ? 0 : place.head) * size();
    if (in_line(*place.group) && stand_on_integers(*place.group, tile)) {
      for (int r = 0; r < tile.count; r++) rows[r] = values + row_start(place, tile, r);
      return;
    }
    for (int r = 0; r < tile.count; r++) rows[r] = room + r * kLanes;
    for_each_pair(*place.group, tile, kLanes, [&](int at, std::ptrdiff_t index) { room[at] = values[index]; });
  }

  bool removes() const override { return false; }

  std::ptrdiff_t gradient_size() const override { return entry_count_; }
  bool groups_share() const override { return true; }
  void add_gradient(const GroupPlace<T>& place, const Tile& tile, const T* ds, double* gradient) const override {
    int const lanes = place.group->lanes;
    if (!in_line(*place.group) || !stand_in_line(*place.group, tile)) {
      for_each_pair(*place.group, tile, lanes, [&](int at, std::ptrdiff_t index) {
        gradient[entry_[static_cast<std::size_t>(index)]] += static_cast<double>(ds[at]);
      });
      return;
    }
    // Sum along the diagonals of the tile first: all pairs of a diagonal have the same offset.
    T diagonal[kTileKeys + kLanes] = {};
    for (int r = 0; r < tile.count; r++) {
      T* const to = diagonal + kTileKeys - 1 - r;
      const T* const from = ds + r * kLanes;
      for (int lane = 0; lane < lanes; lane++) to[lane] += from[lane];
    }
    std::ptrdiff_t const first = offset(place, tile, 0) - (kTileKeys - 1);
    for (int i = 0; i < kTileKeys + lanes - 1; i++)
      gradient[entry_[static_cast<std::size_t>(clamped(first + i))]] += static_cast<double>(diagonal[i]);
  }

 private:
  std::ptrdiff_t size() const { return static_cast<std::ptrdiff_t>(entry_.size()); }
  std::ptrdiff_t clamped(std::ptrdiff_t index) const { return std::clamp<std::ptrdiff_t>(index, 0, size() - 1); }

  // Whether neighbouring lanes have neighbouring positions.
  static bool in_line(const Group<T>& group) {
    if (group.axes > 1) return false;
    const double* const position = group.query_position[0];
    for (int lane = 1; lane < group.lanes; lane++)
      if (position[lane] != position[0] + lane) return false;
    return std::floor(position[0]) == position[0];
  }

  // Whether keys have integer positions. The integer parts of the distances of neighbouring lanes then differ by one,
  // except where a distance changes its sign, because they are rounded towards 0.
  static bool stand_on_integers(const Group<T>& group, const Tile& tile) {
    for (int r = 0; r < tile.count && group.key_position[0]; r++) {
      double const key = key_position(group, 0, key_index(tile, r));
      if (std::floor(key) != key) return false;
    }
    return true;
  }
  // Whether neighbouring keys have neighbouring integer positions.
  static bool stand_in_line(const Group<T>& group, const Tile& tile) {
    if (tile.indices || tile.step != 1 || !stand_on_integers(group, tile)) return false;
    double const first = key_position(group, 0, key_index(tile, 0));
    for (int r = 1; r < tile.count && group.key_position[0]; r++)
      if (key_position(group, 0, key_index(tile, r)) != first + r) return false;
    return true;
  }

  // The index of the value for lane 0 and key r of a tile, which may be outside the table.
  std::ptrdiff_t offset(const GroupPlace<T>& place, const Tile& tile, int r) const {
    return index_of(place.group->query_position[0][0] - key_position(*place.group, 0, key_index(tile, r)));
  }
  // ... and the row of lanes that starts there.
  std::ptrdiff_t row_start(const GroupPlace<T>& place, const Tile& tile, int r) const {
    return std::clamp<std::ptrdiff_t>(offset(place, tile, r), 0, size() - kLanes);
  }
  // The integer part of a distance, rounded towards 0, on a line.
  std::ptrdiff_t index_of(double distance) const {
    double const furthest = static_cast<double>(size());
    return static_cast<std::ptrdiff_t>(std::clamp(distance, -furthest, furthest)) + (size() - 1) / 2;
  }

  // Calls work(r * kLanes + lane, index of the value) for the pairs of a tile with the first `lanes` lanes.
  template <class Work>
  void for_each_pair(const Group<T>& group, const Tile& tile, int lanes, Work work) const {
    if (group.axes == 1) {
      for (int r = 0; r < tile.count; r++) {
        double const key = key_position(group, 0, key_index(tile, r));
        for (int lane = 0; lane < lanes; lane++)
          work(r * kLanes + lane, clamped(index_of(group.query_position[0][lane] - key)));
      }
      return;
    }
    // On a grid every offset has a value, and an index is that of the key minus that of the query.
    auto const place_of = [&](auto position) {
      std::ptrdiff_t index = 0;
      for (int axis = 0; axis < group.axes; axis++)
        index = index * *lengths_.at(axis) + static_cast<std::ptrdiff_t>(position(axis));
      return index;
    };
    std::ptrdiff_t const middle = place_of([&](int axis) { return (*lengths_.at(axis) - 1) / 2; });
    std::ptrdiff_t of_lane[kLanes];
    for (int lane = 0; lane < lanes; lane++)
      of_lane[lane] = middle - place_of([&](int axis) { return group.query_position[axis][lane]; });
    for (int r = 0; r < tile.count; r++) {
      std::ptrdiff_t const key = key_index(tile, r),
                           of_key = place_of([&](int axis) { return key_position(group, axis, key); });
      for (int lane = 0; lane < lanes; lane++) work(r * kLanes + lane, clamped(of_key + of_lane[lane]));
    }
  }

  ArrayView<const std::int64_t, 1> const lengths_;
  std::ptrdiff_t heads_, entry_count_;
  std::vector<std::int64_t> entry_;  // entry of each offset
  std::vector<T> values_;            // values of each head and offset
};

}  // namespace

template <class T>
std::unique_ptr<ScoreTerm<T>> make_distance_bias(const TermArrays<T>& arrays) {
  return std::make_unique<DistanceBias<T>>(arrays);
}
template std::unique_ptr<ScoreTerm<float>> make_distance_bias(const TermArrays<float>&);
template std::unique_ptr<ScoreTerm<double>> make_distance_bias(const TermArrays<double>&);

}  // namespace headspan
