"""Segment ids, for documents packed one after another."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headspan import _check


def segments_from(cumulative_lengths: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Segment ids of documents packed one after another.

    Parameters
    ----------
    cumulative_lengths : array_like of int, shape (documents + 1,)
        Where each document starts, from 0, and where the last one ends.

    Returns
    -------
    ndarray of int64, shape (tokens,)
        What `attention` takes as `segment_ids`, or of queries and keys apart as `query_segments` and `key_segments`.

    Raises
    ------
    ValueError
        For a wrong shape, or numbers that do not ascend from 0.
    TypeError
        For what are no integers.

    Examples
    --------
    >>> import headspan as hs
    >>> hs.segments_from([0, 3, 7])
    array([0, 0, 0, 1, 1, 1, 1])
    """
    array = _check.as_array("cumulative_lengths", cumulative_lengths)
    if array.size == 0:
        raise ValueError("cumulative_lengths must start with 0, not be empty")
    if array.dtype.kind not in "iu":
        raise TypeError(f"cumulative_lengths must be integers, not {array.dtype}")
    lengths: npt.NDArray[np.int64] = np.diff(array.astype(np.int64).ravel())  # unsigned ones never fall
    if array.ndim != 1 or array[0] != 0 or (lengths < 0).any():
        raise ValueError(f"cumulative_lengths must ascend from 0, not be {_check.describe(array.tolist())}")
    return np.repeat(np.arange(lengths.size), lengths)
