"""Buckets of distances, for `distance_bias`."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from headspan import _check


def t5_buckets(buckets: int, *, max_distance: int = 128, bidirectional: bool = True) -> npt.NDArray[np.int64]:
    """Return the distance buckets of T5, as `distance_buckets` for `attention`.

    Small distances have a bucket each. Larger distances share buckets whose width grows logarithmically. All distances
    from `max_distance` on share the last bucket.

    Parameters
    ----------
    buckets : int
        Number of buckets, which is the number of entries of `distance_bias` per head.
    max_distance : int
        Distance in tokens from which on all distances share a bucket.
    bidirectional : bool
        Whether half of the buckets are for later keys, as in encoders. If False, later keys share bucket 0.

    Returns
    -------
    buckets : ndarray of int64, shape (2 * max_distance + 1,)
        The bucket of each offset key - query from -max_distance to max_distance.

    Raises
    ------
    ValueError
        If `buckets` is too small, or `max_distance` lies among the distances that have a bucket each.
    TypeError
        If `buckets` or `max_distance` is not an integer, or `bidirectional` is not a bool.

    See Also
    --------
    attention : Takes the buckets as `distance_buckets`.

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
    # float32 as in the published code: at the edges of buckets the result depends on the rounding.
    share = np.log(np.maximum(distance, 1).astype(np.float32) / exact) / math.log(furthest / exact)
    far = np.minimum(exact + (share * (count - exact)).astype(np.int64), count - 1)
    bucket = np.where(distance < exact, distance, far)
    return np.where(both & (offsets > 0), bucket + count, bucket)
