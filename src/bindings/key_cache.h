// SPDX-License-Identifier: BSD-3-Clause
// A cache of keys and values over arrays of NumPy.
#pragma once

#include <pybind11/stl.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attention/key_cache.h"
#include "attention/request.h"
#include "base/array_view.h"
#include "kernel/dispatch.h"
#include "kernel/rows/row_source.h"
#include "numpy_views.h"

namespace headspan::bindings {

// An array of rows as bytes.
template <int rank>
ArrayView<const Byte, rank> bytes_view(const py::array& array, const char* name) {
  require(array.ndim() == rank, name, " has another number of axes");
  ArrayView<const Byte, rank> view;
  for (int axis = 0; axis < rank; axis++) view.shape[axis] = array.shape(axis), view.stride[axis] = array.strides(axis);
  require(view.stride[rank - 1] == array.itemsize() || view.shape[rank - 1] == 1 || array.size() == 0, name,
          " must be contiguous in its last axis");
  view.shape[rank - 1] *= array.itemsize();
  view.stride[rank - 1] = 1;
  view.data = static_cast<const Byte*>(array.data());
  return view;
}

inline Storage storage_named(const std::string& name) {
  for (StorageName const& row : kStorages)
    if (name == row.name) return row.storage;
  throw py::value_error("there is no storage named " + name);
}

// Pages for the key heads that keep all rows: slabs (heads, pages, kPageRows, elements) of keys and of values, and the
// pages of each batch item, (batch, pages), counted over all slabs.
struct PyPages {
  std::vector<py::array> keys, values;
  py::array_t<std::int64_t> table;
};

class PyKeyCache {
 public:
  // For every key head, arrays (batch, rows, elements), with one row at the end for each of the kept tokens, or without
  // rows if the head has pages. `first`: the oldest row in each ring. `stored`: the storage type, or "same".
  PyKeyCache(std::vector<py::array> keys, std::vector<py::array> values, PyPages pages, std::vector<std::int64_t> kept,
             std::ptrdiff_t count, const std::vector<std::ptrdiff_t>& first, const std::string& stored)
      : keys_(std::move(keys)),
        values_(std::move(values)),
        pages_(std::move(pages)),
        cache_(make(std::move(kept), count, first, stored)) {}

  void append(const py::array& key, const py::array& value) {
    ArrayView<const Byte, 4> const rows_of_key = rows(key, cache_.row_bytes().key, "key");
    require(rows_of_key.shape[2] <= cache_.room() - cache_.count(), "key", " has more rows than there is room for");
    cache_.append(rows_of_key, rows(value, cache_.row_bytes().value, "value"));
  }
  void truncate(std::ptrdiff_t count) {
    require(count >= 0, "count", " is negative");
    cache_.truncate(count);
  }
  std::ptrdiff_t count() const { return cache_.count(); }
  std::vector<std::ptrdiff_t> first() const {
    std::vector<std::ptrdiff_t> result;
    for (std::ptrdiff_t head = 0; head < cache_.key_heads(); head++) result.push_back(cache_.first(head));
    return result;
  }

  // Rows in the storage type, (batch, key heads, rows, bytes).
  py::array encoded(const py::array& array) const {
    ArrayView<const float, 4> const from = rows_view<float, 4>(array, "rows");
    std::size_t const bytes =
        stored_row_bytes(cache_.storage(), static_cast<std::size_t>(from.shape[3]), sizeof(float));
    require(cache_.storage() != Storage::same, "rows", " are stored as they are");
    py::array_t<Byte> to({from.shape[0], from.shape[1], from.shape[2], static_cast<std::ptrdiff_t>(bytes)});
    Byte* row = to.mutable_data();
    for (std::ptrdiff_t batch = 0; batch < from.shape[0]; batch++)
      for (std::ptrdiff_t head = 0; head < from.shape[1]; head++)
        for (std::ptrdiff_t i = 0; i < from.shape[2]; i++, row += bytes)
          active_variant().write_row(cache_.storage(), from.at(batch, head, i), from.shape[3], row);
    return py::array(std::move(to));
  }

  // Lets a request read its keys from the cache, and its last keys from rows that are encoded but not appended yet.
  template <class T>
  void lend(Request<T>& r, const std::optional<py::array>& new_key, const std::optional<py::array>& new_value) const {
    require(new_key.has_value() == new_value.has_value(), "new_key", " must be given with its value");
    if (new_key) {
      r.new_key = rows(*new_key, cache_.row_bytes().key, "new_key");
      r.new_value = rows(*new_value, cache_.row_bytes().value, "new_value");
    }
    auto const row = [&](int dims) {
      return static_cast<std::ptrdiff_t>(stored_row_bytes(cache_.storage(), static_cast<std::size_t>(dims), sizeof(T)));
    };
    require(sizeof(T) == sizeof(float) || cache_.storage() == Storage::same, "cache", " has another type");
    require(cache_.key_heads() == r.key_heads() && keys_[0].shape(0) == r.batch() &&
                cache_.row_bytes().key == row(r.head_dim()) && cache_.row_bytes().value == row(r.value_dim()) &&
                cache_.count() + r.new_key.shape[2] == r.keys(),
            "cache", " has another shape or type");
    r.cache = &cache_;
  }

 private:
  KeyCache make(std::vector<std::int64_t> kept, std::ptrdiff_t count, const std::vector<std::ptrdiff_t>& first,
                const std::string& stored) {
    require(!keys_.empty() && keys_.size() == values_.size() && keys_.size() == first.size(), "keys",
            " are not those of as many heads as their values");
    require(count >= 0, "count", " is negative");
    std::vector<KeyCache::OfHead> heads;
    KeyCache::RowBytes const row{bytes_view<3>(keys_[0], "keys").shape[2],
                                 bytes_view<3>(values_[0], "values").shape[2]};
    std::size_t heads_with_pages = 0;
    for (std::size_t head = 0; head < keys_.size(); head++) {
      ArrayView<const Byte, 3> const key = bytes_view<3>(keys_[head], "keys"),
                                     value = bytes_view<3>(values_[head], "values");
      if (key.shape[1] == 0) {
        heads.push_back(paged_head(static_cast<std::ptrdiff_t>(heads_with_pages++), row, count));
        continue;
      }
      std::ptrdiff_t const ring = key.shape[1] - static_cast<std::ptrdiff_t>(kept.size());
      require(contiguous(keys_[head]) && contiguous(values_[head]) && ring > 0 && value.shape[1] == key.shape[1] &&
                  value.shape[0] == key.shape[0] && key.shape[0] == keys_[0].shape(0) && key.shape[2] == row.key &&
                  value.shape[2] == row.value && first[head] >= 0,
              "keys", " have another shape");
      heads.push_back({{static_cast<Byte*>(keys_[head].mutable_data()), {}},
                       {static_cast<Byte*>(values_[head].mutable_data()), {}},
                       ring,
                       first[head]});
    }
    return KeyCache(std::move(heads), std::move(kept), count, storage_named(stored), row);
  }
  KeyCache::OfHead paged_head(std::ptrdiff_t number, KeyCache::RowBytes row, std::ptrdiff_t count) {
    require(pages_.table.ndim() == 2 && pages_.table.shape(0) == keys_[0].shape(0) && pages_.table.shape(1) > 0 &&
                count <= pages_.table.shape(1) * kPageRows,
            "page_table", " has another shape");
    std::vector<void*> const keys = pages_of(pages_.keys, number, row.key),
                             values = pages_of(pages_.values, number, row.value);
    require(keys.size() == values.size(), "page_values", " have another shape");
    KeyCache::OfHead head{{nullptr, {}}, {nullptr, {}}, pages_.table.shape(1) * kPageRows, 0};
    auto const table = pages_.table.unchecked<2>();
    for (std::ptrdiff_t batch = 0; batch < table.shape(0); batch++)
      for (std::ptrdiff_t i = 0; i < table.shape(1); i++) {
        require(table(batch, i) >= 0 && table(batch, i) < static_cast<std::int64_t>(keys.size()), "page_table",
                " has a page that is not there");
        head.key.pages.push_back(keys[static_cast<std::size_t>(table(batch, i))]);
        head.value.pages.push_back(values[static_cast<std::size_t>(table(batch, i))]);
      }
    return head;
  }
  // All pages of a head.
  static std::vector<void*> pages_of(std::vector<py::array>& slabs, std::ptrdiff_t head, std::ptrdiff_t bytes) {
    std::vector<void*> pages;
    for (py::array& slab : slabs) {
      require(slab.ndim() == 4 && contiguous(slab) && slab.shape(0) > head && slab.shape(2) == kPageRows &&
                  slab.shape(3) * slab.itemsize() == bytes,
              "page_keys", " have another shape");
      for (std::ptrdiff_t page = 0; page < slab.shape(1); page++)
        pages.push_back(static_cast<Byte*>(slab.mutable_data()) + (head * slab.shape(1) + page) * kPageRows * bytes);
    }
    return pages;
  }
  static bool contiguous(const py::array& array) { return (array.flags() & py::array::c_style) != 0; }
  ArrayView<const Byte, 4> rows(const py::array& array, std::ptrdiff_t bytes, const char* name) const {
    ArrayView<const Byte, 4> const view = bytes_view<4>(array, name);
    require_shape(view, {keys_[0].shape(0), static_cast<std::ptrdiff_t>(keys_.size()), view.shape[2], bytes}, name);
    return view;
  }

  std::vector<py::array> keys_, values_;
  PyPages pages_;
  KeyCache cache_;
};

}  // namespace headspan::bindings
