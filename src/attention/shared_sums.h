// SPDX-License-Identifier: BSD-3-Clause
// Gradients of the score terms. To what groups of a head share each adds when it is its turn; chunks have sums of their
// own, which are added afterwards.
#pragma once

#include <algorithm>
#include <vector>

#include "key_gradient_rows.h"

namespace headspan {

// Of a whole call.
template <class T>
class SharedSums {
 public:
  SharedSums(const Request<T>& request, const GradientViews<T>& gradients, const std::vector<Chunk>& chunks)
      : request_(request), gradients_(gradients), chunks_(chunks) {
    for (std::size_t i = 0; i < gradients.terms.size(); i++) {
      ArrayView<double, 3> const& whole = gradients.terms[i];
      for (std::ptrdiff_t head = 0; whole && head < request.batch() * request.heads(); head++)
        std::fill_n(whole.at(head / request.heads(), head % request.heads()), whole.shape[2], 0.0);
      std::size_t const rows = chunks.size() * static_cast<std::size_t>(request.heads_per_key_head());
      of_chunks_.emplace_back(checked_product(rows, static_cast<std::size_t>(size(i))));
      std::fill_n(of_chunks_.back().data(), of_chunks_.back().size(), 0.0);
    }
  }

  static bool any(const Request<T>& request, const GradientViews<T>& gradients) {
    for (std::size_t i = 0; i < gradients.terms.size(); i++)
      if (gradients.terms[i] && request.terms[i]->groups_share()) return true;
    return false;
  }
  bool any() const { return any(request_, gradients_); }

  std::size_t terms() const { return gradients_.terms.size(); }
  // How many numbers of a term groups share; 0: none, or nobody wants them.
  std::ptrdiff_t size(std::size_t term) const {
    return gradients_.terms[term] && request_.terms[term]->groups_share() ? gradients_.terms[term].shape[2] : 0;
  }
  double* of_head(std::size_t term, std::ptrdiff_t batch, std::ptrdiff_t head) const {
    return gradients_.terms[term].at(batch, head);
  }
  double* of_chunk(std::size_t term, const Chunk& chunk, std::ptrdiff_t head) const {
    std::ptrdiff_t const each = request_.heads_per_key_head(), number = &chunk - chunks_.data();
    return of_chunks_[term].data() + (number * each + head % each) * size(term);
  }

  void add_chunks() const {
    std::ptrdiff_t const each = request_.heads_per_key_head();
    for (std::size_t i = 0; i < terms(); i++)
      for (const Chunk& chunk : chunks_)
        for (std::ptrdiff_t head = chunk.key_head * each; head < (chunk.key_head + 1) * each && size(i); head++)
          add(of_chunk(i, chunk, head), size(i), of_head(i, chunk.batch, head));
  }

 private:
  const Request<T>& request_;
  const GradientViews<T>& gradients_;
  const std::vector<Chunk>& chunks_;
  std::vector<Buffer<double>> of_chunks_;  // of each term, by chunk and head
};

// Of one group.
template <class T>
class GroupSums {
 public:
  GroupSums(const Request<T>& request, const GradientViews<T>& gradients, const SharedSums<T>& shared,
            const QueryGroup<T>& queries)
      : request_(request), gradients_(gradients), queries_(queries), sums_(shared.terms()) {
    for (std::size_t i = 0; i < sums_.size(); i++) sums_[i].resize(static_cast<std::size_t>(shared.size(i)));
  }

  // Who is told the gradients of the scores.
  PairGradient<T> listener() {
    bool wanted = false;
    for (ArrayView<double, 3> const& gradient : gradients_.terms) wanted |= static_cast<bool>(gradient);
    return {wanted ? this : nullptr,
            [](void* self, const Tile& tile, const T* ds) { static_cast<GroupSums*>(self)->listen(tile, ds); }};
  }

  // Adds what groups share to to(number of the term).
  template <class To>
  void add_to(To to) const {
    for (std::size_t i = 0; i < sums_.size(); i++)
      if (!sums_[i].empty()) add(sums_[i].data(), static_cast<std::ptrdiff_t>(sums_[i].size()), to(i));
  }

 private:
  void listen(const Tile& tile, const T* ds) {
    for (std::size_t i = 0; i < sums_.size(); i++)
      if (gradients_.terms[i])
        request_.terms[i]->add_gradient(
            queries_.place(), tile, ds,
            sums_[i].empty() ? gradients_.terms[i].at(queries_.batch, queries_.head) : sums_[i].data());
  }

  const Request<T>& request_;
  const GradientViews<T>& gradients_;
  const QueryGroup<T>& queries_;
  std::vector<std::vector<double>> sums_;  // of each term, those that groups share
};

}  // namespace headspan
