// SPDX-License-Identifier: BSD-3-Clause
// Every so manieth key: (p - j) mod stride = 0, or with an offset j mod stride = offset for all queries. Child et al.,
// "Generating Long Sequences with Sparse Transformers", 2019, section 4.3.
#include <algorithm>

#include "patterns/primitive.h"

namespace headspan {

namespace {

class Strided : public Primitive {
 public:
  explicit Strided(const Numbers& numbers) : stride_(numbers.at(0)), offset_(numbers.at(1)) {}

  Grouping grouping() const override { return Grouping::classes(relative() ? stride_ : 1); }
  bool sees_itself() const override { return relative(); }

  void intervals(const Lanes&, std::ptrdiff_t keys, Intervals& out) const override {
    if (relative()) return append(out, 0, keys, keys);
    for (std::ptrdiff_t key = offset_; key < keys; key += stride_) append(out, key, key + 1, keys);
  }

  void words(const Lanes& lanes, const Tile& tile, std::ptrdiff_t, std::uint64_t* words) const override {
    if (!relative())
      return words_of_keys(lanes, tile, words, [this](std::ptrdiff_t key) { return key % stride_ == offset_; });
    LaneClasses const classes = residues(lanes, stride_);
    if (!tile.indices && tile.step % stride_ == 0)  // keys of one class, as such a group asks for
      std::fill_n(words, tile.count, classes.word_of(tile.first % stride_));
    else
      for (int r = 0; r < tile.count; r++) words[r] = classes.word_of(key_index(tile, r) % stride_);
  }

 private:
  bool relative() const { return offset_ < 0; }
  std::ptrdiff_t stride_, offset_;
};

}  // namespace

std::unique_ptr<Primitive> make_strided(const Numbers& numbers) { return std::make_unique<Strided>(numbers); }

}  // namespace headspan
