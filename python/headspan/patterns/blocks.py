"""Block-sparse patterns, from a block mask in any of several formats."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan.patterns.base import MAX_TOKENS, Pattern, Primitive


class Lists(NamedTuple):
    """The blocks of keys of each row of blocks in CSR format, with ascending and unique indices per row.

    Attributes
    ----------
    indptr, indices : ndarray
        CSR arrays of the last rows; all rows before them are empty.
    total : int
        Total number of rows. With few queries on many keys, most rows are empty.
    """

    indptr: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int64]
    total: int

    @property
    def before(self) -> int:
        """Number of rows before those of indptr."""
        return self.total + 1 - len(self.indptr)


def _csr_parts(mask: Any) -> list[Any]:
    """Return a pair (indptr, indices) as arrays, or an empty list for other masks, such as two rows of bools."""
    if not isinstance(mask, tuple) or len(mask) != 2 or any(_depth(part) != -1 for part in mask):
        return []
    parts = [_check.as_array("mask of Blocks", part) for part in mask]
    return parts if all(part.dtype != np.bool_ for part in parts) else []


def _depth(mask: Any) -> int:
    """Return the number of axes of a mask before the axis of its rows."""
    if hasattr(mask, "tocsr") or hasattr(mask, "indptr") or _csr_parts(mask):
        return 0
    if isinstance(mask, list | tuple):
        return 1 + _depth(mask[0]) if mask else -1
    return np.ndim(mask) - 2


def _csr(mask: Any) -> tuple[Lists, int | None]:
    """Return a mask of any format as `Lists`, and its number of columns, or None if the format does not tell it."""
    columns_of_mask = None
    if hasattr(mask, "tocsr"):  # any sparse format of SciPy
        if mask.ndim != 2:
            raise ValueError(f"mask of Blocks must have the shape (blocks, blocks), not {mask.shape}")
        columns_of_mask = mask.shape[1]
        mask = mask.tocsr(copy=True)
        mask.eliminate_zeros()
    of_sparse = hasattr(mask, "indptr") and hasattr(mask, "indices")
    if parts := _csr_parts((mask.indptr, mask.indices) if of_sparse else mask):
        indptr, indices = parts
        if any(part.size and part.dtype.kind not in "iu" for part in parts):
            raise TypeError(
                f"mask of Blocks must have integers as indptr and indices, not {indptr.dtype} and {indices.dtype}"
            )
        starts, columns = indptr.astype(np.int64), indices.astype(np.int64)
        if not starts.size or starts[0] != 0 or starts[-1] != columns.size or (starts[1:] < starts[:-1]).any():
            raise ValueError(f"mask of Blocks must have an indptr that ascends from 0 to {columns.size}, the indices")
        if columns.size and columns.min() < 0:
            raise ValueError(f"mask of Blocks must have indices of at least 0, not {columns.min()}")
        rows = _in_order(starts, columns, mask.total if isinstance(mask, Lists) else starts.size - 1)
    else:
        array = _check.as_array("mask of Blocks", mask)
        if array.dtype != np.bool_:
            raise TypeError(f"mask of Blocks must be of bool, not {array.dtype}")
        if array.ndim != 2:
            raise ValueError(f"mask of Blocks must have the shape (blocks, blocks), not {array.shape}")
        columns_of_mask = array.shape[1]
        rows = _in_order(np.append(0, np.cumsum(array.sum(axis=1))), np.nonzero(array)[1], len(array))
    rows.indptr.flags.writeable = rows.indices.flags.writeable = False  # patterns are hashable
    return rows, columns_of_mask


def _in_order(starts: npt.NDArray[np.int64], columns: npt.NDArray[np.int64], total: int) -> Lists:
    """Return rows with ascending and unique indices, without the empty rows at the start."""
    starts = starts[np.searchsorted(starts, 0, side="right") - 1 :].copy()
    begins = np.flatnonzero(columns[1:] <= columns[:-1]) + 1  # row starts, if indices ascend within rows
    if (starts[np.searchsorted(starts, begins)] == begins).all():
        return Lists(starts, columns, total)
    row = np.repeat(np.arange(starts.size - 1), np.diff(starts))
    order = np.lexsort((columns, row))
    row, columns = row[order], columns[order]
    new = np.append(True, (np.diff(columns) > 0) | (np.diff(row) > 0))
    starts = np.append(0, np.cumsum(np.bincount(row[new], minlength=starts.size - 1)))
    return Lists(starts, columns[new], total)


def _token_counts(rows: Lists, columns: int | None, sides: tuple[int, int]) -> range:
    """Return the numbers of tokens whose number of blocks is that of the mask; raise ValueError if there are none."""
    queries, keys = sides
    of_rows = range((rows.total - 1) * queries + 1, rows.total * queries + 1)
    # A mask as index lists does not tell its number of columns, only its last block.
    least = int(rows.indices.max(initial=-1)) + 1 if columns is None else columns
    end = of_rows.stop if columns is None else columns * keys + 1
    tokens = range(max(1, of_rows.start, (least - 1) * keys + 1), min(of_rows.stop, end))
    if not tokens:
        shape = "(blocks, blocks)" if queries == keys else f"of blocks of {queries} queries and {keys} keys"
        raise ValueError(f"mask of Blocks must have the shape {shape}, not ({rows.total}, {least})")
    return tokens


@dataclass(frozen=True, eq=False, repr=False)
class Blocks(Primitive):
    """A block mask: a pair is allowed if the mask is true for the block that contains its query and key.

    Parameters
    ----------
    mask : array_like of bool, or sparse matrix
        Block mask of shape (query blocks, key blocks), where the blocks cover all keys: an array, a pair
        ``(indptr, indices)`` as in CSR format, or a sparse matrix of SciPy. With `per_head`, one mask per head. An
        additional leading axis, or a list of such masks, has one entry per batch item.
    block_size : int or (int, int)
        Tokens of a block, or (queries, keys) of a rectangular block. Query p and key j lie in block
        ``(p // queries, j // keys)``.
    per_head : bool
        Whether the mask has one entry per head.

    Raises
    ------
    ValueError
        When the pattern is used, if the blocks do not match the number of keys.

    See Also
    --------
    Blockwise : Blocks of keys around the block of a query.
    headspan.sparse.selected_blocks : Blocks of keys chosen by content.
    headspan.sparse.learned_blocks : Options for learned gates of blocks.

    Examples
    --------
    >>> from headspan.patterns import Blocks
    >>> Blocks([[True, False], [True, True]], block_size=2).mask(4).astype(int)
    array([[1, 1, 0, 0],
           [1, 1, 0, 0],
           [1, 1, 1, 1],
           [1, 1, 1, 1]])
    >>> Blocks([[True, False, False, True]], block_size=(4, 1)).mask(4)[0].astype(int)
    array([1, 0, 0, 1])
    """

    rows: tuple[tuple[Lists, ...], ...] = field(init=False)  # per batch item and head
    block_size: int | tuple[int, int]
    per_head: bool = False
    per_item: bool = field(init=False)
    tokens: range = field(init=False)  # admissible numbers of tokens
    _name = "blocks"

    def __init__(self, mask: Any, block_size: int | tuple[int, int], per_head: bool = False) -> None:
        sides = _check.pair("block_size of Blocks", block_size)
        object.__setattr__(self, "block_size", sides[0] if sides[0] == sides[1] else sides)
        object.__setattr__(self, "per_head", _check.flag("per_head", per_head))
        masks = _check.sequence("mask of Blocks", mask, "masks, one a head") if per_head else mask
        depth = _depth(masks)
        object.__setattr__(self, "per_item", depth == per_head + 1)
        if depth > per_head + 1 or (per_head and depth < 1):
            kind, axes = (" per head", "heads, blocks, blocks") if per_head else ("", "blocks, blocks")
            shape = getattr(mask, "shape", f"one of {depth + 2} axes")
            raise ValueError(f"mask of Blocks{kind} must have the shape ({axes}) or (batch, {axes}), not {shape}")
        items = [list(item) if per_head else [item] for item in (masks if self.per_item else [masks])]
        if len({len(item) for item in items}) != 1 or not items[0]:
            raise ValueError(
                "mask of Blocks must have at least one head, and the same number of heads for each batch item"
            )
        parts = [[_csr(m) for m in item] for item in items]
        object.__setattr__(self, "rows", tuple(tuple(rows for rows, _ in item) for item in parts))
        ranges = [_token_counts(rows, columns, sides) for item in parts for rows, columns in item]
        tokens = range(max(r.start for r in ranges), min(r.stop for r in ranges))
        if not tokens:
            raise ValueError("mask of Blocks must have the same number of blocks for each head and batch item")
        object.__setattr__(self, "tokens", tokens)

    @property
    def sides(self) -> tuple[int, int]:
        """Number of queries and number of keys of a block."""
        return self.block_size if isinstance(self.block_size, tuple) else (self.block_size, self.block_size)

    @property
    def items(self) -> int | None:
        return len(self.rows) if self.per_item else None

    @property
    def heads(self) -> int | None:
        return len(self.rows[0]) if self.per_head else None

    def part(self, item: int, head: int) -> Pattern:
        if not (self.per_item or self.per_head):
            return self
        part = copy.copy(self)
        rows = self.rows[item if self.per_item else 0][head if self.per_head else 0]
        for name, value in {"rows": ((rows,),), "per_item": False, "per_head": False}.items():
            object.__setattr__(part, name, value)
        return part

    def _check_size(self, queries: int, keys: int, global_tokens: tuple[int, ...]) -> None:
        if keys not in self.tokens:
            most, sides = self.tokens.stop - 1, self.sides
            (has, wanted) = (" x ".join(str(-(-tokens // side)) for side in sides) for tokens in (most, keys))
            raise ValueError(
                f"Blocks with a mask of {has} blocks of {self.block_size} are for {self.tokens.start} to {most} keys; "
                f"for {keys} the mask must be {wanted}"
            )

    def _numbers(self) -> npt.NDArray[np.int64]:
        (rows,) = self.rows[0]
        sides = [min(side, MAX_TOKENS) for side in self.sides]
        return np.concatenate([[*sides, rows.before, len(rows.indptr) - 1], rows.indptr, rows.indices])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Blocks) or self._brief_key() != other._brief_key():
            return False
        pairs = zip(self._lists(), other._lists(), strict=True)
        return all(one is another or np.array_equal(one, another) for one, another in pairs)

    def __hash__(self) -> int:
        return hash(self._brief_key())

    def _brief_key(self) -> tuple[Any, ...]:
        """Return a cheap hash key: the sizes and a sample of the indices, which may be many."""
        some = tuple((array.size, array[:: array.size // 64 + 1].tobytes()) for array in self._lists())
        totals = tuple(tuple(rows.total for rows in item) for item in self.rows)
        return (some, totals, self.block_size, self.per_item, self.per_head)

    def _lists(self) -> list[npt.NDArray[np.int64]]:
        return [array for item in self.rows for rows in item for array in (rows.indptr, rows.indices)]

    def __repr__(self) -> str:
        of_items = [[([0] * r.before + r.indptr.tolist(), r.indices.tolist()) for r in item] for item in self.rows]
        masks = [item if self.per_head else item[0] for item in of_items]
        return f"Blocks({masks if self.per_item else masks[0]}, {self.block_size}, per_head={self.per_head})"
