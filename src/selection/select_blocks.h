// SPDX-License-Identifier: BSD-3-Clause
// Selects the blocks of keys for a block of queries by the products of their means.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/array_view.h"
#include "base/parallel.h"

namespace headspan {

// The means (batch, heads, blocks, dims) of rows (batch, heads, tokens, dims). Block b has the existing tokens from b *
// size - before on.
template <class T>
void block_means(const ArrayView<const T, 4>& rows, std::ptrdiff_t size, std::ptrdiff_t before,
                 const ArrayView<T, 4>& means, const Control& control);

struct BlockChoice {
  std::ptrdiff_t shortlist;                  // approximate maximum number of blocks that are compared one by one
  ArrayView<const std::int64_t, 2> allowed;  // (rows, 4): two ranges of blocks, first .. last - 1 each
};

// chosen (batch, heads, rows, keep): the blocks with the largest products of means, ascending, followed by -1 if fewer
// are allowed. If more blocks are allowed than `shortlist`, only those in the neighbourhoods of 16 blocks with the
// largest products of means are compared, and those in neighbourhoods that are not entirely allowed.
template <class T>
void select_blocks(const ArrayView<const T, 4>& query, const ArrayView<const T, 4>& key, const BlockChoice& choice,
                   const ArrayView<std::int64_t, 4>& chosen, const Control& control);

}  // namespace headspan
