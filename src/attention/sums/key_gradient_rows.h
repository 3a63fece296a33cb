// SPDX-License-Identifier: BSD-3-Clause
// The gradients of keys, values and key biases of one key head. The groups of the head add to them, one range of keys
// at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "attention/request.h"
#include "base/array_view.h"
#include "kernel/interface.h"

namespace headspan {

template <class From, class To>
void add(const From* from, std::ptrdiff_t n, To* to) {
  for (std::ptrdiff_t d = 0; d < n; d++) to[d] += static_cast<To>(from[d]);
}

template <class T>
class KeyGradientRows {
 public:
  // Ranges of this many keys. With a step above 1, a range has as many keys, every step-th one.
  KeyGradientRows(const Request<T>& request, const GradientViews<T>& gradients, std::ptrdiff_t batch,
                  std::ptrdiff_t key_head, std::ptrdiff_t range_keys, std::ptrdiff_t step)
      : gradients_(gradients),
        batch_(batch),
        key_head_(key_head),
        heads_(request.heads_per_key_head()),
        keys_(request.keys()),
        range_keys_(range_keys),
        step_(step) {
    std::ptrdiff_t const until = step > 1 ? step : keys_;
    for (std::ptrdiff_t key = 0; key < until; key += step > 1 ? 1 : range_keys) cleared_.push_back(key);
  }

  std::ptrdiff_t step() const { return step_; }

  // For head number `shared` of the heads that share the key head.
  KeyGradients<T> of(std::ptrdiff_t shared) const {
    auto const rows = [&](const ArrayView<T, 4>& array) {
      return array ? Rows<T>{array.at(batch_, key_head_), array.stride[2]} : Rows<T>{nullptr, 0};
    };
    ArrayView<double, 3> const& bias = gradients_.key_bias;
    return {rows(gradients_.key), rows(gradients_.value),
            bias ? Rows<double>{bias.at(batch_, key_head_ * heads_ + shared), 1} : Rows<double>{nullptr, 0}};
  }

  // Clears the keys of a range before `until`, just before their first use, so that they are still in the cache then.
  void clear(std::ptrdiff_t range, std::ptrdiff_t until) {
    std::ptrdiff_t const first = cleared_[static_cast<std::size_t>(range)];
    until = std::min(until, step_ > 1 ? keys_ : std::min((range + 1) * range_keys_, keys_));
    if (first >= until) return;
    std::ptrdiff_t key = first;
    for (; key < until; key += step_) {
      for (const ArrayView<T, 4>* array : {&gradients_.key, &gradients_.value})
        if (*array) std::fill_n(array->at(batch_, key_head_, key), array->shape[3], T(0));
      for (std::ptrdiff_t h = key_head_ * heads_; h < (key_head_ + 1) * heads_ && gradients_.key_bias; h++)
        *gradients_.key_bias.at(batch_, h, key) = 0;
    }
    cleared_[static_cast<std::size_t>(range)] = key;
  }
  // Clears the keys that no group has seen.
  void clear_rest() {
    for (std::size_t range = 0; range < cleared_.size(); range++) clear(static_cast<std::ptrdiff_t>(range), keys_);
  }
  // All gradients hold the result of an earlier stage.
  void keep_all() { std::fill(cleared_.begin(), cleared_.end(), keys_); }

 private:
  const GradientViews<T>& gradients_;
  std::ptrdiff_t const batch_, key_head_, heads_, keys_, range_keys_, step_;
  std::vector<std::ptrdiff_t> cleared_;  // end of the cleared keys of each range
};

}  // namespace headspan
