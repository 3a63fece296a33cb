// SPDX-License-Identifier: BSD-3-Clause
// Means of blocks of tokens, and the blocks of keys that they select.
#include <cstddef>
#include <cstdint>

#include "base/array_view.h"
#include "base/parallel.h"
#include "numpy_views.h"
#include "selection/select_blocks.h"

namespace headspan::bindings {

namespace {

template <class T>
py::array means_of(const py::array& array, std::ptrdiff_t size, std::ptrdiff_t before, std::ptrdiff_t blocks,
                   int threads) {
  ArrayView<const T, 4> const rows = rows_view<T, 4>(array, "rows");
  py::array means = new_array<T>({rows.shape[0], rows.shape[1], blocks, rows.shape[3]});
  ArrayView<T, 4> const to = writable_view<T, 4>(means);
  call_core(threads, [&](const Control& control) { block_means(rows, size, before, to, control); });
  return means;
}

template <class T>
py::array chosen_of(const py::array& query, const py::array& key, const py::array& allowed, std::ptrdiff_t keep,
                    std::ptrdiff_t shortlist, int threads) {
  ArrayView<const T, 4> const queries = rows_view<T, 4>(query, "query"), keys = rows_view<T, 4>(key, "key");
  require(queries.shape[0] == keys.shape[0] && keys.shape[1] > 0 && queries.shape[1] % keys.shape[1] == 0 &&
              queries.shape[3] == keys.shape[3],
          "key", " has another shape");
  BlockChoice const choice{shortlist, view<std::int64_t, 2>(allowed, "allowed")};
  require(choice.allowed.shape[0] == queries.shape[2] && choice.allowed.shape[1] == 4, "allowed", " has another shape");
  for (std::ptrdiff_t row = 0; row < queries.shape[2]; row++)
    for (int which = 0; which < 4; which++)
      require(*choice.allowed.at(row, which) >= 0 && *choice.allowed.at(row, which) <= keys.shape[2], "allowed",
              " reaches beyond the blocks");
  py::array chosen = new_array<std::int64_t>({queries.shape[0], queries.shape[1], queries.shape[2], keep});
  ArrayView<std::int64_t, 4> const to = writable_view<std::int64_t, 4>(chosen);
  call_core(threads, [&](const Control& control) { select_blocks(queries, keys, choice, to, control); });
  return chosen;
}

py::array means(const py::array& rows, std::ptrdiff_t size, std::ptrdiff_t before, std::ptrdiff_t blocks, int threads) {
  require(size > 0 && before >= 0 && blocks >= 0, "size", " must be positive");
  bool const is_float = py::isinstance<py::array_t<float>>(rows);
  return is_float ? means_of<float>(rows, size, before, blocks, threads)
                  : means_of<double>(rows, size, before, blocks, threads);
}

py::array chosen(const py::array& query, const py::array& key, const py::array& allowed, std::ptrdiff_t keep,
                 std::ptrdiff_t shortlist, int threads) {
  require(keep >= 0 && shortlist >= 0, "keep", " must not be negative");
  bool const is_float = py::isinstance<py::array_t<float>>(query);
  return is_float ? chosen_of<float>(query, key, allowed, keep, shortlist, threads)
                  : chosen_of<double>(query, key, allowed, keep, shortlist, threads);
}

}  // namespace

void register_blocks(py::module_& m) {
  m.def("block_means", &means, py::arg("rows"), py::arg("size"), py::arg("before"), py::arg("blocks"),
        py::arg("threads"),
        "Means of blocks of tokens of an array (batch, heads, tokens, dims); the first block lacks `before` tokens.");
  m.def("select_blocks", &chosen, py::arg("query"), py::arg("key"), py::arg("allowed"), py::arg("keep"),
        py::arg("shortlist"), py::arg("threads"),
        "The blocks of keys with the largest products of means, for each block of queries: ascending, -1 behind them.");
}

}  // namespace headspan::bindings
