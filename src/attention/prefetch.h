// SPDX-License-Identifier: BSD-3-Clause
// The rows that the next group needs first, to be prefetched during the current one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "base/array_view.h"
#include "base/tile.h"
#include "kernel/interface.h"
#include "schedule/stage.h"

namespace headspan {

// kLanes rows from `first` on of an array of (batch, heads, tokens, ...), without those that do not exist.
template <class T>
PrefetchArray<std::remove_const_t<T>> prefetch_rows(const ArrayView<T, 4>& array, std::ptrdiff_t batch,
                                                    std::ptrdiff_t head, std::ptrdiff_t first) {
  std::ptrdiff_t const last = std::min(first + kLanes, array.shape[2]);
  first = std::max<std::ptrdiff_t>(first, 0);
  if (first >= last) return {};
  return {array.at(batch, head, first), array.stride[2], nullptr, static_cast<int>(last - first),
          static_cast<int>(array.shape[3])};
}

// The rows of group number `index` of a stage.
template <class T>
PrefetchArray<std::remove_const_t<T>> prefetch_group(const ArrayView<T, 4>& array, const PatternStage* stage,
                                                     std::ptrdiff_t batch, std::ptrdiff_t head, std::ptrdiff_t index) {
  if (!stage) return prefetch_rows(array, batch, head, index * kLanes);
  return {array.at(batch, head), array.stride[2], stage->order.queries(index), stage->order.lanes(index),
          static_cast<int>(array.shape[3])};
}

// The rows of keys that group number `index` of a stage needs first. Neighbouring groups share most keys, so only those
// from `first` on are new. If the queries of a group are far apart, all keys of the group are new, and most often
// they are the keys of the same tokens.
template <class T>
PrefetchArray<std::remove_const_t<T>> prefetch_new_keys(const ArrayView<T, 4>& array, const PatternStage* stage,
                                                        std::ptrdiff_t batch, std::ptrdiff_t key_head,
                                                        std::ptrdiff_t index, std::ptrdiff_t first) {
  if (!stage || stage->along_tokens()) return prefetch_rows(array, batch, key_head, first);
  bool const same_tokens = static_cast<std::ptrdiff_t>(stage->order.query.size()) == array.shape[2];
  return same_tokens ? prefetch_group(array, stage, batch, key_head, index) : PrefetchArray<std::remove_const_t<T>>{};
}

}  // namespace headspan
