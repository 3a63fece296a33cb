"""Block masks in whatever form they are given."""

import itertools
from typing import Any

import numpy as np

from headspan import _check


def _is_csr(mask: Any) -> bool:
    """Whether it is a pair of lists of numbers; two rows of a mask are of bool."""
    if not isinstance(mask, tuple) or len(mask) != 2:
        return False
    parts = [_check.as_array("mask of Blocks", part) for part in mask]
    return all(part.ndim == 1 and part.dtype != np.bool_ for part in parts)


def csr(mask: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(indptr, indices) of a mask in whatever form, the indices of a row ascending."""
    if hasattr(mask, "tocsr"):  # of SciPy, in whatever format
        if mask.ndim != 2 or mask.shape[0] != mask.shape[1]:
            raise ValueError(f"mask of Blocks must have the shape (blocks, blocks), not {mask.shape}")
        mask = mask.tocsr(copy=True)
        mask.eliminate_zeros()
    if hasattr(mask, "indptr") and hasattr(mask, "indices"):
        mask = (mask.indptr, mask.indices)
    if _is_csr(mask):
        indptr, indices = (_check.as_array("mask of Blocks", part) for part in mask)
        if any(part.size and part.dtype.kind not in "iu" for part in (indptr, indices)):
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
