// SPDX-License-Identifier: BSD-3-Clause
// Every key.
#include "patterns/primitive.h"

namespace headspan {

namespace {

class Full : public Primitive {
 public:
  explicit Full(const Numbers&) {}

  bool sees_itself() const override { return true; }
  void intervals(const Lanes&, std::ptrdiff_t keys, Intervals& out) const override { append(out, 0, keys, keys); }
  void words(const Lanes& lanes, const Tile& tile, std::ptrdiff_t, std::uint64_t* words) const override {
    words_of_keys(lanes, tile, words, [](std::ptrdiff_t) { return true; });
  }
};

}  // namespace

std::unique_ptr<Primitive> make_full(const Numbers& numbers) { return std::make_unique<Full>(numbers); }

}  // namespace headspan
