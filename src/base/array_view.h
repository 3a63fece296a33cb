// SPDX-License-Identifier: BSD-3-Clause
// A pointer with shape and strides. It owns nothing.
#pragma once

#include <cstddef>

namespace headspan {

template <class T, int rank>
struct ArrayView {
  T* data = nullptr;             // null: the argument was not given
  std::ptrdiff_t shape[rank]{};  // elements
  std::ptrdiff_t stride[rank]{};

  explicit operator bool() const { return data != nullptr; }

  template <class... Indices>
  T* at(Indices... indices) const {
    std::ptrdiff_t const index[] = {static_cast<std::ptrdiff_t>(indices)...};
    static_assert(sizeof...(Indices) <= rank, "too many indices");
    T* p = data;
    for (int axis = 0; axis < static_cast<int>(sizeof...(Indices)); axis++) p += index[axis] * stride[axis];
    return p;
  }
};

}  // namespace headspan
