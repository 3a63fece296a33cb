// SPDX-License-Identifier: BSD-3-Clause
// Where the gradients of keys, values and biases of keys are summed: in place, or in private rows of a chunk, which are
// added afterwards.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "attention/request.h"
#include "base/array_view.h"
#include "base/buffer_pool.h"
#include "kernel/interface.h"
#include "key_chunks.h"

namespace headspan {

template <class From, class To>
void add(const From* from, std::ptrdiff_t n, To* to) {
  for (std::ptrdiff_t d = 0; d < n; d++) to[d] += static_cast<To>(from[d]);
}

template <class T>
class KeyGradientRows {
 public:
  KeyGradientRows(const Request<T>& request, const GradientViews<T>& gradients, const std::vector<Chunk>& chunks)
      : request_(request), gradients_(gradients) {
    if (chunks.empty()) return;
    std::size_t const rows = chunks.back().private_row + static_cast<std::size_t>(chunks.back().private_count());
    auto const room = [&](std::ptrdiff_t dims) { return checked_product(rows, static_cast<std::size_t>(dims)); };
    if (gradients.key) private_key_ = Buffer<T>(room(request.head_dim()));
    if (gradients.value) private_value_ = Buffer<T>(room(request.value_dim()));
    if (gradients.key_bias) private_bias_ = Buffer<double>(room(request.heads_per_key_head()));
  }

  // `shared` counts the heads that share the key head.
  KeyGradients<T> of(const Chunk& chunk, std::ptrdiff_t shared) const {
    auto const own = [&](const ArrayView<T, 4>& array) {
      return array ? Rows<T>{array.at(chunk.batch, chunk.key_head), array.stride[2]} : Rows<T>{nullptr, 0};
    };
    auto const of_buffer = [&](const Buffer<T>& buffer, std::ptrdiff_t dims) {
      return Rows<T>{buffer.data() ? buffer.data() + chunk.private_row * static_cast<std::size_t>(dims) : nullptr,
                     dims};
    };
    Rows<double> bias{nullptr, 0}, private_bias{nullptr, 0};
    if (gradients_.key_bias) {
      std::ptrdiff_t const each = request_.heads_per_key_head();
      bias = {gradients_.key_bias.at(chunk.batch, chunk.key_head * each + shared), 1};
      private_bias = {private_bias_.data() + chunk.private_row * static_cast<std::size_t>(each) + shared, each};
    }
    return {own(gradients_.key),
            own(gradients_.value),
            of_buffer(private_key_, request_.head_dim()),
            of_buffer(private_value_, request_.value_dim()),
            bias,
            private_bias,
            chunk.private_first,
            chunk.own_first};
  }

  // Zeros for the chunk's own rows up to `until`, just before their first use, so that they are still in the cache
  // then; returns up to where they are zeros or in use.
  std::ptrdiff_t clear_own(const Chunk& chunk, std::ptrdiff_t first, std::ptrdiff_t until) const {
    if (first >= until) return first;
    std::ptrdiff_t const each = request_.heads_per_key_head();
    auto const clear = [&](const ArrayView<T, 4>& array) {
      for (std::ptrdiff_t key = first; key < until && array; key++)
        std::fill_n(array.at(chunk.batch, chunk.key_head, key), array.shape[3], T(0));
    };
    clear(gradients_.key);
    clear(gradients_.value);
    for (std::ptrdiff_t h = chunk.key_head * each; h < (chunk.key_head + 1) * each && gradients_.key_bias; h++)
      std::fill(gradients_.key_bias.at(chunk.batch, h, first), gradients_.key_bias.at(chunk.batch, h, until), 0.0);
    return until;
  }

  void clear_private(const Chunk& chunk) const {
    if (chunk.private_count() == 0) return;
    KeyGradients<T> const rows = of(chunk, 0);
    if (gradients_.key) std::fill_n(rows.private_key.data, chunk.private_count() * request_.head_dim(), T(0));
    if (gradients_.value) std::fill_n(rows.private_value.data, chunk.private_count() * request_.value_dim(), T(0));
    if (gradients_.key_bias) std::fill_n(rows.private_bias.data, chunk.private_count() * rows.private_bias.stride, 0.0);
  }

  // The private rows of a chunk that are of keys first .. last - 1.
  void add_private(const Chunk& chunk, std::ptrdiff_t first, std::ptrdiff_t last) const {
    KeyGradients<T> const rows = of(chunk, 0);
    std::ptrdiff_t const each = request_.heads_per_key_head();
    for (std::ptrdiff_t j = std::max(first, chunk.private_first); j < std::min(last, chunk.own_first); j++) {
      std::ptrdiff_t const row = j - chunk.private_first;
      if (gradients_.key) add(rows.private_key.row(row), request_.head_dim(), rows.key.row(j));
      if (gradients_.value) add(rows.private_value.row(row), request_.value_dim(), rows.value.row(j));
      for (std::ptrdiff_t h = 0; h < each && gradients_.key_bias; h++)
        *gradients_.key_bias.at(chunk.batch, chunk.key_head * each + h, j) += rows.private_bias.row(row)[h];
    }
  }

 private:
  const Request<T>& request_;
  const GradientViews<T>& gradients_;
  Buffer<T> private_key_, private_value_;
  Buffer<double> private_bias_;
};

}  // namespace headspan
