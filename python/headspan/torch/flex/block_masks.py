"""BlockMask of PyTorch as a pattern."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from headspan.patterns.mask import Mask, mask_of_tiles
from headspan.patterns.tiles import SIDE, Grid, Rows, gather
from headspan.torch.flex.captured import State, depends_on

MaskMod = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


class _Known(NamedTuple):
    sizes: tuple[int, int]
    state: State
    pattern: Mask


_known: weakref.WeakKeyDictionary[Any, _Known] = weakref.WeakKeyDictionary()


def pattern_of(block_mask: Any, batch: int, heads: int) -> Mask:
    """Return the pairs of a BlockMask: its full blocks, and those of its partial blocks that `mask_mod` allows.

    The pattern is made once for a BlockMask, unless a tensor changes that `mask_mod` captures.
    """
    known = _known.get(block_mask)
    if known is None or known.sizes != (batch, heads) or not known.state.is_of(block_mask.mask_mod):
        pattern = _pattern(block_mask, batch, heads)
        known = _known[block_mask] = _Known((batch, heads), State(block_mask.mask_mod), pattern)
    return known.pattern


def _pattern(block_mask: Any, batch: int, heads: int) -> Mask:
    queries, keys = block_mask.seq_lengths
    of_items, of_heads = block_mask.kv_num_blocks.shape[:2]
    if of_items not in (1, batch) or of_heads not in (1, heads):
        raise ValueError(
            f"block_mask must be for 1 or {batch} batch items and 1 or {heads} heads, not {of_items} and {of_heads}"
        )
    # A mask_mod may tell items or heads apart although the lists of blocks are the same for all of them.
    items = batch if of_items > 1 or depends_on(block_mask.mask_mod, 0, 4) else 1
    rows = heads if of_heads > 1 or depends_on(block_mask.mask_mod, 1, 4) else 1
    grid = Grid(queries, keys)
    tiles = [
        [gather(grid, _Reader(block_mask, grid, item % of_items, head % of_heads, item, head)) for head in range(rows)]
        for item in range(items)
    ]
    return mask_of_tiles((queries, keys), tiles, per_item=items > 1, per_head=rows > 1)


class _Reader:
    """Reads 64 queries of one batch item and head of a BlockMask."""

    def __init__(self, block_mask: Any, grid: Grid, item: int, head: int, *index: int) -> None:
        self.grid, self.index, self.mask_mod = grid, index, block_mask.mask_mod
        self.sides = block_mask.BLOCK_SIZE
        self.partial = _lists(block_mask.kv_num_blocks, block_mask.kv_indices, item, head)
        self.full = _lists(block_mask.full_kv_num_blocks, block_mask.full_kv_indices, item, head)

    def __call__(self, row: int) -> Rows:
        first, last = self.grid.queries_of(row)
        columns = np.unique(np.concatenate([part // SIDE for _, *parts in self._parts(first, last) for part in parts]))
        allowed = np.zeros((SIDE, len(columns), SIDE), np.bool_)
        start = self.grid.lanes_of(row).start - first
        place = np.full(self.grid.columns, -1)
        place[columns] = np.arange(len(columns))
        for queries, full, partial in self._parts(first, last):
            lanes = start + np.arange(queries.start, queries.stop)
            allowed[lanes[:, None], place[full // SIDE], full % SIDE] = True
            if len(partial):
                allowed[lanes[:, None], place[partial // SIDE], partial % SIDE] = self._evaluate(queries, partial)
        return Rows(columns, allowed)

    def _parts(self, first: int, last: int) -> Iterator[tuple[range, Any, Any]]:
        """Yield the queries of each row of blocks with the keys of its full and partial blocks."""
        side, of_keys = self.sides
        for block in range(first // side, (last - 1) // side + 1):
            queries = range(max(first, block * side), min(last, (block + 1) * side))
            keys = []
            for lists in (self.full, self.partial):
                blocks = lists[block] if lists else np.empty(0, np.int64)
                inside = (blocks[:, None] * of_keys + np.arange(of_keys)).ravel()
                keys.append(inside[inside < self.grid.keys])
            yield queries, *keys

    def _evaluate(self, queries: range, keys: Any) -> Any:
        item, head = (torch.tensor(index) for index in self.index)
        of_pairs = torch.vmap(torch.vmap(self.mask_mod, in_dims=(None, None, None, 0)), in_dims=(None, None, 0, None))
        allowed = of_pairs(item, head, torch.arange(queries.start, queries.stop), torch.from_numpy(keys))
        return allowed.expand(len(queries), len(keys)).numpy()


def _lists(counts: torch.Tensor | None, indices: torch.Tensor | None, item: int, head: int) -> list[Any]:
    """Return the blocks of each row of blocks."""
    if counts is None or indices is None:
        return []
    rows = zip(counts[item, head].tolist(), indices[item, head].numpy(), strict=True)
    return [row[:count].astype(np.int64) for count, row in rows]
