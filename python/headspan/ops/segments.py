"""Segment ids of packed documents."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headspan import _check


def segment_ids(cumulative_lengths: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return the segment ids of documents that are packed one after another.

    Parameters
    ----------
    cumulative_lengths : array_like of int, shape (documents + 1,)
        Start of each document, beginning with 0, followed by the end of the last document.

    Returns
    -------
    ndarray of int64, shape (tokens,)
        For the arguments `segment_ids`, `query_segments` and `key_segments` of `attention`.

    Raises
    ------
    ValueError
        If the numbers do not ascend from 0.
    TypeError
        If the numbers are not integers.

    See Also
    --------
    attention : Takes the ids as `segment_ids`, `query_segments` or `key_segments`.

    Examples
    --------
    >>> import headspan as hs
    >>> hs.segment_ids([0, 3, 7])
    array([0, 0, 0, 1, 1, 1, 1])
    """
    array = _check.as_array("cumulative_lengths", cumulative_lengths)
    if array.size == 0:
        raise ValueError("cumulative_lengths must start with 0, got an empty array")
    if array.dtype.kind not in "iu":
        raise TypeError(f"cumulative_lengths must be integers, not {array.dtype}")
    lengths: npt.NDArray[np.int64] = np.diff(array.astype(np.int64).ravel())  # unsigned differences wrap
    if array.ndim != 1 or array[0] != 0 or (lengths < 0).any():
        raise ValueError(f"cumulative_lengths must ascend from 0, got {_check.describe(array.tolist())}")
    return np.repeat(np.arange(lengths.size), lengths)
