"""Buckets of distances, for `distance_bias`."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from headspan import _check


def t5_buckets(buckets: int, *, max_distance: int = 128, bidirectional: bool = True) -> npt.NDArray[np.int64]:
    """Return T5's buckets of distances, as `distance_buckets` of `attention`.

    Near distances have a bucket each, farther ones share buckets that grow with the logarithm of the distance, and all
    from `max_distance` on the last one.

    Parameters
    ----------
    buckets : int
        How many there are: the entries of `distance_bias` for a head.
    max_distance : int
        In tokens.
    bidirectional : bool
        Whether half of the buckets are for keys ahead, as in encoders; else these have the bucket of distance 0.

    Returns
    -------
    buckets : ndarray of int64, shape (2 * max_distance + 1,)
        The bucket of each offset key - query from -max_distance to max_distance.

    Raises
    ------
    ValueError
        For too few buckets, or a max_distance below the distances that have a bucket of their own.
    TypeError
        For what is no integer, or no bool.

    References
    ----------
    Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer", JMLR 2020,
    section 2.1.

    Examples
    --------
    >>> import headspan as hs
    >>> hs.t5_buckets(8, max_distance=16, bidirectional=False)[:17]  # of keys 16 to 0 tokens behind
    array([7, 7, 7, 7, 7, 6, 6, 6, 6, 5, 5, 4, 4, 3, 2, 1, 0])
    """
    both = _check.flag("bidirectional", bidirectional)
    count = _check.integer("buckets", buckets, at_least=4 if both else 2)
    count = count // 2 if both else count
    exact = count // 2
    furthest = _check.integer("max_distance", max_distance, at_least=exact + 1)
    offsets = np.arange(-furthest, furthest + 1)
    distance = np.abs(offsets) if both else np.maximum(-offsets, 0)
    # In float32, as the published code has it: at the edge of a bucket the rounding decides.
    share = np.log(np.maximum(distance, 1).astype(np.float32) / exact) / math.log(furthest / exact)
    far = np.minimum(exact + (share * (count - exact)).astype(np.int64), count - 1)
    bucket = np.where(distance < exact, distance, far)
    return np.where(both & (offsets > 0), bucket + count, bucket)
