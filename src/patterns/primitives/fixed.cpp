// SPDX-License-Identifier: BSD-3-Clause
// The last columns of every block, seen by all. Child et al., "Generating Long Sequences with Sparse Transformers",
// 2019, section 4.3, second part of the fixed pattern.
#include "patterns/primitive.h"

namespace headspan {

namespace {

class Fixed : public Primitive {
 public:
  explicit Fixed(const Numbers& numbers) : block_size_(numbers.at(0)), columns_(numbers.at(1)) {}

  void intervals(const Lanes&, std::ptrdiff_t keys, Intervals& out) const override {
    for (std::ptrdiff_t end = block_size_; end - columns_ < keys; end += block_size_)
      append(out, end - columns_, end, keys);
  }

  void words(const Lanes& lanes, const Tile& tile, std::ptrdiff_t, std::uint64_t* words) const override {
    words_of_keys(lanes, tile, words,
                  [this](std::ptrdiff_t key) { return key % block_size_ >= block_size_ - columns_; });
  }

 private:
  std::ptrdiff_t block_size_, columns_;
};

}  // namespace

std::unique_ptr<Primitive> make_fixed(const Numbers& numbers) { return std::make_unique<Fixed>(numbers); }

}  // namespace headspan
