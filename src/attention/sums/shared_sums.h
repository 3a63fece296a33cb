// SPDX-License-Identifier: BSD-3-Clause
// Gradients of score terms and persistent keys, to which several groups of a head add. Each chunk has its own sums,
// which are then added in the order of the chunks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "attention/query_group.h"
#include "attention/request.h"
#include "base/array_view.h"
#include "base/tile.h"
#include "kernel/interface.h"
#include "key_gradient_rows.h"

namespace headspan {

// For a whole call: score terms in their order, then persistent keys and persistent values.
template <class T>
class SharedSums {
 public:
  SharedSums(const Request<T>& request, const GradientViews<T>& gradients) {
    for (std::size_t i = 0; i < gradients.terms.size(); i++) {
      clear(request, gradients.terms[i]);
      sums_.push_back(request.terms[i]->groups_share() ? gradients.terms[i] : ArrayView<double, 3>());
    }
    for (ArrayView<double, 3> const& of_memory : {gradients.persistent_key, gradients.persistent_value}) {
      clear(request, of_memory);
      sums_.push_back(of_memory);
    }
  }

  bool any() const {
    return std::any_of(sums_.begin(), sums_.end(), [](const auto& sum) { return static_cast<bool>(sum); });
  }
  std::size_t count() const { return sums_.size(); }
  // The number of elements that groups of a head share; 0 if there are none or none are requested.
  std::ptrdiff_t size(std::size_t i) const { return sums_[i] ? sums_[i].shape[2] : 0; }
  double* of_head(std::size_t i, std::ptrdiff_t batch, std::ptrdiff_t head) const { return sums_[i].at(batch, head); }

 private:
  static void clear(const Request<T>& request, const ArrayView<double, 3>& sums) {
    for (std::ptrdiff_t head = 0; sums && head < request.batch() * request.heads(); head++)
      std::fill_n(sums.at(head / request.heads(), head % request.heads()), sums.shape[2], 0.0);
  }

  std::vector<ArrayView<double, 3>> sums_;  // null: not requested, or each group has its own
};

// For one chunk and each of the heads that share its key head.
template <class T>
class ChunkSums {
 public:
  ChunkSums(const SharedSums<T>& shared, std::ptrdiff_t heads) : shared_(shared), sums_(shared.count()) {
    for (std::size_t i = 0; i < sums_.size(); i++) sums_[i].resize(static_cast<std::size_t>(heads * shared.size(i)));
  }
  std::size_t size(std::size_t i) const { return static_cast<std::size_t>(shared_.size(i)); }
  double* of(std::size_t i, std::ptrdiff_t head) { return sums_[i].data() + head * shared_.size(i); }
  void add_to_head(std::ptrdiff_t batch, std::ptrdiff_t first_head, std::ptrdiff_t heads) {
    for (std::ptrdiff_t head = 0; head < heads; head++)
      for (std::size_t i = 0; i < sums_.size(); i++)
        if (shared_.size(i) > 0) add(of(i, head), shared_.size(i), shared_.of_head(i, batch, first_head + head));
  }

 private:
  const SharedSums<T>& shared_;
  std::vector<std::vector<double>> sums_;
};

// For one group; `shared` is the number of its head among those that share the key head.
template <class T>
class GroupSums {
 public:
  GroupSums(const Request<T>& request, const GradientViews<T>& gradients, ChunkSums<T>& chunk, std::ptrdiff_t shared,
            const QueryGroup<T>& queries)
      : request_(request), gradients_(gradients), chunk_(chunk), shared_(shared), queries_(queries) {
    if (!queries.has_persistent()) return;  // counted in another stage
    persistent_key_.resize(chunk.size(gradients.terms.size()));
    persistent_value_.resize(chunk.size(gradients.terms.size() + 1));
  }

  // The receiver of the gradients of scores.
  PairGradient<T> listener() {
    bool wanted = false;
    for (ArrayView<double, 3> const& gradient : gradients_.terms) wanted |= static_cast<bool>(gradient);
    return {wanted ? this : nullptr,
            [](void* self, const Tile& tile, const T* ds) { static_cast<GroupSums*>(self)->listen(tile, ds); }};
  }

  // The rows to which the kernel adds gradients of persistent keys, which are then added to those of the chunk.
  KeyGradients<T> persistent_rows() {
    Rows<T> const none{nullptr, 0};
    return {persistent_key_.empty() ? none : Rows<T>{persistent_key_.data(), request_.head_dim()},
            persistent_value_.empty() ? none : Rows<T>{persistent_value_.data(), request_.value_dim()},
            {nullptr, 0}};
  }
  void add_persistent() const {
    for (const std::vector<T>* memory : {&persistent_key_, &persistent_value_})
      if (!memory->empty())
        add(memory->data(), static_cast<std::ptrdiff_t>(memory->size()),
            chunk_.of(gradients_.terms.size() + (memory == &persistent_value_), shared_));
  }

 private:
  void listen(const Tile& tile, const T* ds) {
    for (std::size_t i = 0; i < gradients_.terms.size(); i++)
      if (gradients_.terms[i])
        request_.terms[i]->add_gradient(
            queries_.place(), tile, ds,
            chunk_.size(i) > 0 ? chunk_.of(i, shared_) : gradients_.terms[i].at(queries_.batch, queries_.head));
  }

  const Request<T>& request_;
  const GradientViews<T>& gradients_;
  ChunkSums<T>& chunk_;
  std::ptrdiff_t const shared_;
  const QueryGroup<T>& queries_;
  std::vector<T> persistent_key_, persistent_value_;  // rows, if requested
};

}  // namespace headspan
