"""Chosen blocks as a pattern, their mask in whatever form it is given."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headspan import _check
from headspan.patterns.base import MAX_TOKENS, Pattern, Primitive


def _csr_parts(mask: Any) -> list[Any]:
    """Return a pair of lists of numbers as arrays, nothing for another mask; two rows of one are of bool."""
    if not isinstance(mask, tuple) or len(mask) != 2:
        return []
    parts = [_check.as_array("mask of Blocks", part) for part in mask]
    return parts if all(part.ndim == 1 and part.dtype != np.bool_ for part in parts) else []


def _csr(mask: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(indptr, indices) of a mask in whatever form, the indices of a row ascending."""
    if hasattr(mask, "tocsr"):  # of SciPy, in whatever format
        if mask.ndim != 2 or mask.shape[0] != mask.shape[1]:
            raise ValueError(f"mask of Blocks must have the shape (blocks, blocks), not {mask.shape}")
        mask = mask.tocsr(copy=True)
        mask.eliminate_zeros()
    if hasattr(mask, "indptr") and hasattr(mask, "indices"):
        mask = (mask.indptr, mask.indices)
    if parts := _csr_parts(mask):
        indptr, indices = parts
        if any(part.size and part.dtype.kind not in "iu" for part in parts):
            raise TypeError(
                f"mask of Blocks must have integers as indptr and indices, not {indptr.dtype} and {indices.dtype}"
            )
        starts, columns = indptr.astype(np.int64), indices.astype(np.int64)
        if not starts.size or starts[0] != 0 or starts[-1] != columns.size or (np.diff(starts) < 0).any():
            raise ValueError(f"mask of Blocks must have an indptr that ascends from 0 to {columns.size}, the indices")
        if columns.size and columns.min() < 0:
            raise ValueError(f"mask of Blocks must have indices of at least 0, not {columns.min()}")
        rows = [np.unique(columns[a:b]) for a, b in itertools.pairwise(starts)]
    else:
        array = _check.as_array("mask of Blocks", mask)
        if array.dtype != np.bool_:
            raise TypeError(f"mask of Blocks must be of bool, not {array.dtype}")
        if array.ndim != 2 or array.shape[0] != array.shape[1]:
            raise ValueError(f"mask of Blocks must have the shape (blocks, blocks), not {array.shape}")
        rows = [np.flatnonzero(row) for row in array]
    starts = np.cumsum([0, *(row.size for row in rows)])
    return tuple(starts.tolist()), tuple(np.concatenate([np.empty(0, np.int64), *rows]).tolist())


@dataclass(frozen=True, eq=False, repr=False)
class Blocks(Primitive):
    """Chosen blocks: a pair is allowed where the mask is true for the blocks that query and key lie in.

    Parameters
    ----------
    mask : array_like of bool, or sparse matrix
        Of shape (blocks, blocks), query blocks first, for as many blocks as the keys fill; or ``(indptr, indices)`` as
        of a sparse matrix, or a sparse matrix of SciPy. With `per_head`, one for each head.
    block_size : int
    per_head : bool

    Raises
    ------
    ValueError
        For a wrong shape, index or `block_size`; in use, for a mask of more or fewer blocks than the keys fill.
    TypeError
        For a wrong type.

    Examples
    --------
    >>> from headspan.patterns import Blocks
    >>> Blocks([[True, False], [True, True]], block_size=2).mask(4).astype(int)
    array([[1, 1, 0, 0],
           [1, 1, 0, 0],
           [1, 1, 1, 1],
           [1, 1, 1, 1]])
    """

    rows: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = field(init=False)  # (indptr, indices) of each head
    block_size: int
    per_head: bool = False
    _name = "blocks"

    def __init__(self, mask: Any, block_size: int, per_head: bool = False) -> None:
        object.__setattr__(self, "block_size", _check.integer("block_size of Blocks", block_size, at_least=1))
        object.__setattr__(self, "per_head", _check.flag("per_head", per_head))
        masks = _check.sequence("mask of Blocks", mask, "masks, one a head") if per_head else [mask]
        if not masks:
            raise ValueError("mask of Blocks must be given for at least one head, not none")
        if per_head and isinstance(mask, np.ndarray) and mask.ndim != 3:
            raise ValueError(f"mask of Blocks per head must have the shape (heads, blocks, blocks), not {mask.shape}")
        object.__setattr__(self, "rows", tuple(_csr(m) for m in masks))

    @property
    def heads(self) -> int | None:
        return len(self.rows) if self.per_head else None

    def _of_head(self, head: int) -> Pattern:
        return Blocks(self.rows[head], self.block_size) if self.per_head else self

    def _check_size(self, queries: int, keys: int, global_tokens: tuple[int, ...]) -> None:
        blocks = -(-keys // self.block_size)
        for indptr, indices in self.rows:
            if len(indptr) - 1 != blocks or (indices and max(indices) >= blocks):
                own, size = max(len(indptr) - 1, max(indices, default=-1) + 1), self.block_size
                raise ValueError(
                    f"Blocks with a mask of {own} x {own} blocks of {size} are for {max(own - 1, 0) * size + 1} to "
                    f"{own * size} keys; for {keys} the mask must be {blocks} x {blocks}"
                )

    def _numbers(self) -> list[int]:
        (indptr, indices) = self.rows[0]
        return [min(self.block_size, MAX_TOKENS), len(indptr) - 1, *indptr, *indices]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Blocks) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        return (self.rows, self.block_size, self.per_head)

    def __repr__(self) -> str:
        masks = [tuple(map(list, row)) for row in self.rows]
        return f"Blocks({masks if self.per_head else masks[0]}, {self.block_size}, per_head={self.per_head})"
