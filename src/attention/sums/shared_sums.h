// SPDX-License-Identifier: BSD-3-Clause
// Gradients of the score terms and of memory keys. To what groups of a head share each adds when it is its turn; chunks
// have sums of their own, which are added afterwards.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "attention/query_group.h"
#include "attention/request.h"
#include "base/array_view.h"
#include "base/buffer_pool.h"
#include "base/tile.h"
#include "kernel/interface.h"
#include "key_chunks.h"
#include "key_gradient_rows.h"

namespace headspan {

// Of a whole call: of the score terms in their order, then of memory keys and of their values.
template <class T>
class SharedSums {
 public:
  SharedSums(const Request<T>& request, const GradientViews<T>& gradients, const std::vector<Chunk>& chunks)
      : chunks_(chunks), heads_per_key_head_(request.heads_per_key_head()) {
    for (std::size_t i = 0; i < gradients.terms.size(); i++) {
      clear(request, gradients.terms[i]);
      add_sum(request.terms[i]->groups_share() ? gradients.terms[i] : ArrayView<double, 3>());
    }
    for (ArrayView<double, 3> const& of_memory : {gradients.memory_key, gradients.memory_value}) {
      clear(request, of_memory);
      add_sum(of_memory);
    }
  }

  static bool any(const Request<T>& request, const GradientViews<T>& gradients) {
    for (std::size_t i = 0; i < gradients.terms.size(); i++)
      if (gradients.terms[i] && request.terms[i]->groups_share()) return true;
    return gradients.memory_key || gradients.memory_value;
  }

  std::size_t count() const { return of_heads_.size(); }
  // How many numbers groups of a head share; 0: none, or nobody wants them.
  std::ptrdiff_t size(std::size_t i) const { return of_heads_[i] ? of_heads_[i].shape[2] : 0; }
  double* of_head(std::size_t i, std::ptrdiff_t batch, std::ptrdiff_t head) const {
    return of_heads_[i].at(batch, head);
  }
  double* of_chunk(std::size_t i, const Chunk& chunk, std::ptrdiff_t head) const {
    std::ptrdiff_t const number = &chunk - chunks_.data();
    return of_chunks_[i].data() + (number * heads_per_key_head_ + head % heads_per_key_head_) * size(i);
  }

  void add_chunks() const {
    for (std::size_t i = 0; i < count(); i++)
      for (const Chunk& chunk : chunks_)
        for (std::ptrdiff_t h = 0; h < heads_per_key_head_ && size(i) > 0; h++) {
          std::ptrdiff_t const head = chunk.key_head * heads_per_key_head_ + h;
          add(of_chunk(i, chunk, head), size(i), of_head(i, chunk.batch, head));
        }
  }

 private:
  static void clear(const Request<T>& request, const ArrayView<double, 3>& whole) {
    for (std::ptrdiff_t head = 0; whole && head < request.batch() * request.heads(); head++)
      std::fill_n(whole.at(head / request.heads(), head % request.heads()), whole.shape[2], 0.0);
  }
  void add_sum(const ArrayView<double, 3>& of_heads) {
    of_heads_.push_back(of_heads);
    std::size_t const rows = chunks_.size() * static_cast<std::size_t>(heads_per_key_head_);
    of_chunks_.emplace_back(checked_product(rows, static_cast<std::size_t>(size(count() - 1))));
    std::fill_n(of_chunks_.back().data(), of_chunks_.back().size(), 0.0);
  }

  const std::vector<Chunk>& chunks_;
  std::ptrdiff_t const heads_per_key_head_;
  std::vector<ArrayView<double, 3>> of_heads_;  // null: not wanted, or each group has its own
  std::vector<Buffer<double>> of_chunks_;       // by chunk and head
};

// Of one group.
template <class T>
class GroupSums {
 public:
  GroupSums(const Request<T>& request, const GradientViews<T>& gradients, const SharedSums<T>& shared,
            const QueryGroup<T>& queries)
      : request_(request), gradients_(gradients), queries_(queries), sums_(gradients.terms.size()) {
    for (std::size_t i = 0; i < sums_.size(); i++) sums_[i].resize(static_cast<std::size_t>(shared.size(i)));
    if (!queries.has_memory()) return;  // met in another stage
    memory_key_.resize(static_cast<std::size_t>(shared.size(sums_.size())));
    memory_value_.resize(static_cast<std::size_t>(shared.size(sums_.size() + 1)));
  }

  // Who is told the gradients of the scores.
  PairGradient<T> listener() {
    bool wanted = false;
    for (ArrayView<double, 3> const& gradient : gradients_.terms) wanted |= static_cast<bool>(gradient);
    return {wanted ? this : nullptr,
            [](void* self, const Tile& tile, const T* ds) { static_cast<GroupSums*>(self)->listen(tile, ds); }};
  }

  // Where the kernel adds to the gradients of memory keys.
  KeyGradients<T> memory_rows() {
    Rows<T> const none{nullptr, 0};
    Rows<double> const no_bias{nullptr, 0};
    return {memory_key_.empty() ? none : Rows<T>{memory_key_.data(), request_.head_dim()},
            memory_value_.empty() ? none : Rows<T>{memory_value_.data(), request_.value_dim()},
            none,
            none,
            no_bias,
            no_bias,
            0,
            0};
  }

  // Adds what groups share to to(number of the sum).
  template <class To>
  void add_to(To to) const {
    for (std::size_t i = 0; i < gradients_.terms.size(); i++)
      if (!sums_[i].empty()) add(sums_[i].data(), static_cast<std::ptrdiff_t>(sums_[i].size()), to(i));
    for (const std::vector<T>* memory : {&memory_key_, &memory_value_})
      if (!memory->empty())
        add(memory->data(), static_cast<std::ptrdiff_t>(memory->size()),
            to(gradients_.terms.size() + (memory == &memory_value_)));
  }

 private:
  void listen(const Tile& tile, const T* ds) {
    for (std::size_t i = 0; i < gradients_.terms.size(); i++)
      if (gradients_.terms[i])
        request_.terms[i]->add_gradient(
            queries_.place(), tile, ds,
            sums_[i].empty() ? gradients_.terms[i].at(queries_.batch, queries_.head) : sums_[i].data());
  }

  const Request<T>& request_;
  const GradientViews<T>& gradients_;
  const QueryGroup<T>& queries_;
  std::vector<std::vector<double>> sums_;     // of each term, those that groups share
  std::vector<T> memory_key_, memory_value_;  // rows, if they are wanted
};

}  // namespace headspan
