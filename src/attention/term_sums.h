// SPDX-License-Identifier: BSD-3-Clause
// The gradients of the score terms from one group. What groups share is held back until the group may add to it.
#pragma once

#include <vector>

#include "query_group.h"

namespace headspan {

template <class T>
class TermSums {
 public:
  TermSums(const Request<T>& request, const GradientViews<T>& gradients, const QueryGroup<T>& queries)
      : request_(request), gradients_(gradients), queries_(queries), shared_(gradients.terms.size()) {
    for (std::size_t i = 0; i < shared_.size(); i++)
      if (gradients.terms[i] && request.terms[i]->groups_share())
        shared_[i].resize(static_cast<std::size_t>(request.terms[i]->gradient_size()));
  }

  // Who is told the gradients of the scores.
  PairGradient<T> listener() {
    bool wanted = false;
    for (ArrayView<double, 3> const& gradient : gradients_.terms) wanted |= static_cast<bool>(gradient);
    return {wanted ? this : nullptr,
            [](void* self, const Tile& tile, const T* ds) { static_cast<TermSums*>(self)->listen(tile, ds); }};
  }

  // Adds what groups share to to(number of the term).
  template <class To>
  void add(To to) const {
    for (std::size_t i = 0; i < shared_.size(); i++) {
      if (shared_[i].empty()) continue;
      double* const sums = to(i);
      for (std::size_t n = 0; n < shared_[i].size(); n++) sums[n] += shared_[i][n];
    }
  }

 private:
  void listen(const Tile& tile, const T* ds) {
    for (std::size_t i = 0; i < shared_.size(); i++)
      if (gradients_.terms[i])
        request_.terms[i]->add_gradient(
            queries_.place(), tile, ds,
            shared_[i].empty() ? gradients_.terms[i].at(queries_.batch, queries_.head) : shared_[i].data());
  }

  const Request<T>& request_;
  const GradientViews<T>& gradients_;
  const QueryGroup<T>& queries_;
  std::vector<std::vector<double>> shared_;  // of each term, those that groups share
};

}  // namespace headspan
