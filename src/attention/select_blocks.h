// SPDX-License-Identifier: BSD-3-Clause
// Which blocks of keys suit a block of queries best, as the means of both say.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/array_view.h"
#include "request.h"

namespace headspan {

// means (batch, heads, blocks, dims) of rows (batch, heads, tokens, dims): block b is of the tokens b * size - before
// and on, as many of them as there are.
template <class T>
void block_means(const ArrayView<const T, 4>& rows, std::ptrdiff_t size, std::ptrdiff_t before,
                 const ArrayView<T, 4>& means, const Control& control);

struct BlockChoice {
  std::ptrdiff_t shortlist;                  // blocks that are looked at one by one, at most, more or less
  ArrayView<const std::int64_t, 2> allowed;  // (rows, 4): of the blocks first .. last - 1 and first .. last - 1
};

// chosen (batch, heads, rows, keep): the blocks with the largest products of means, ascending; -1 behind them where
// fewer are allowed. Of more allowed blocks than the shortlist has, those in the neighbourhoods of 16 blocks with the
// largest products of their means are looked at, and those whose neighbourhood is not allowed as a whole.
template <class T>
void select_blocks(const ArrayView<const T, 4>& query, const ArrayView<const T, 4>& key, const BlockChoice& choice,
                   const ArrayView<std::int64_t, 4>& chosen, const Control& control);

}  // namespace headspan
