// SPDX-License-Identifier: BSD-3-Clause
// A cache of keys and values over arrays of NumPy.
#pragma once

#include <pybind11/stl.h>

#include <optional>

#include "attention/key_cache.h"
#include "numpy_views.h"

namespace headspan::bindings {

class PyKeyCache {
 public:
  // For every key head arrays (batch, rows, dims), with a row at the end for each of the kept tokens; `first`: the
  // oldest row that each ring still has.
  PyKeyCache(std::vector<py::array> keys, std::vector<py::array> values, std::vector<std::int64_t> kept,
             std::ptrdiff_t count, const std::vector<std::ptrdiff_t>& first)
      : keys_(std::move(keys)), values_(std::move(values)) {
    require(!keys_.empty() && keys_.size() == values_.size() && keys_.size() == first.size(), "keys",
            " are not those of as many heads as their values");
    require(count >= 0, "count", " is negative");
    if (py::isinstance<py::array_t<float>>(keys_[0]))
      make(float32_, std::move(kept), count, first);
    else
      make(float64_, std::move(kept), count, first);
  }

  void append(const py::array& key, const py::array& value) {
    float32_ ? append_to(*float32_, key, value) : append_to(*float64_, key, value);
  }
  void truncate(std::ptrdiff_t count) {
    require(count >= 0, "count", " is negative");
    float32_ ? float32_->truncate(count) : float64_->truncate(count);
  }
  std::ptrdiff_t count() const { return float32_ ? float32_->count() : float64_->count(); }
  std::vector<std::ptrdiff_t> first() const {
    std::vector<std::ptrdiff_t> result;
    for (std::ptrdiff_t head = 0; head < static_cast<std::ptrdiff_t>(keys_.size()); head++)
      result.push_back(float32_ ? float32_->first(head) : float64_->first(head));
    return result;
  }

  // Lets a request read its keys from here.
  template <class T>
  void lend(Request<T>& r) const {
    std::optional<KeyCache<T>> const& cache = of<T>();
    require(cache.has_value(), "cache", " has another type");
    std::ptrdiff_t const more = r.new_key.shape[2];
    require(cache->key_heads() == r.key_heads() && keys_[0].shape(0) == r.batch() &&
                keys_[0].shape(2) == r.head_dim() && values_[0].shape(2) == r.value_dim() &&
                cache->count() + more == r.keys(),
            "cache", " has another shape");
    r.cache = &*cache;
  }

 private:
  template <class T>
  std::optional<KeyCache<T>> const& of() const {
    if constexpr (sizeof(T) == sizeof(float))
      return float32_;
    else
      return float64_;
  }

  template <class T>
  void make(std::optional<KeyCache<T>>& cache, std::vector<std::int64_t> kept, std::ptrdiff_t count,
            const std::vector<std::ptrdiff_t>& first) {
    std::vector<typename KeyCache<T>::OfHead> heads;
    for (std::size_t head = 0; head < keys_.size(); head++) {
      ArrayView<T, 3> const key = writable_view<T, 3>(keys_[head]), value = writable_view<T, 3>(values_[head]);
      std::ptrdiff_t const ring = key.shape[1] - static_cast<std::ptrdiff_t>(kept.size());
      bool const whole = contiguous(keys_[head]) && contiguous(values_[head]);
      require(whole && ring > 0 && value.shape[1] == key.shape[1] && value.shape[0] == key.shape[0] &&
                  key.shape[0] == keys_[0].shape(0) && key.shape[2] == keys_[0].shape(2) &&
                  value.shape[2] == values_[0].shape(2) && first[head] >= 0,
              "keys", " have another shape");
      heads.push_back({key.data, value.data, ring, first[head]});
    }
    cache.emplace(std::move(heads), std::move(kept), count, keys_[0].shape(2), values_[0].shape(2));
  }
  static bool contiguous(const py::array& array) { return (array.flags() & py::array::c_style) != 0; }

  template <class T>
  void append_to(KeyCache<T>& cache, const py::array& key, const py::array& value) {
    ArrayView<const T, 4> const keys = rows_view<T, 4>(key, "key"), values = rows_view<T, 4>(value, "value");
    std::ptrdiff_t const batch = keys_[0].shape(0), more = keys.shape[2];
    require_shape(keys, {batch, cache.key_heads(), more, keys_[0].shape(2)}, "key");
    require_shape(values, {batch, cache.key_heads(), more, values_[0].shape(2)}, "value");
    cache.append(keys, values);
  }

  std::vector<py::array> keys_, values_;
  std::optional<KeyCache<float>> float32_;
  std::optional<KeyCache<double>> float64_;
};

}  // namespace headspan::bindings
