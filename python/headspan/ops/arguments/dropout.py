"""Dropout of weights: checks of its arguments, and its definition."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from headspan import _check

_SEEDS = 2**64
_Words = npt.NDArray[np.uint64]


def rate(name: str, value: object) -> float:
    """Check and return the fraction of dropped weights."""
    share = _check.number(name, value)
    if not 0 <= share < 1:
        raise ValueError(f"{name} must be at least 0 and less than 1, not {share:g}")
    return share


def seed(name: str, value: object) -> int:
    """Check and return a seed."""
    number = _check.integer(name, value, at_least=0)
    if number >= _SEEDS:
        raise ValueError(f"{name} must be less than 2**64, not {number}")
    return number


def check_seed(options: Collection[str], share: object) -> None:
    """Raise ValueError for dropout without a seed among the options."""
    if share and "seed" not in options:
        raise ValueError("dropout requires a seed, a new one for each call, such as the number of the step")


def factors(share: float, seed: int, batch: int, heads: int, queries: Any, keys: Any) -> npt.NDArray[np.float64]:
    """Return the factor of each weight: 0, or 1 / (1 - share).

    A weight is dropped if a hash of the seed, the batch item, the head, the query and the key is below the share.

    Parameters
    ----------
    share : float
    seed, batch, heads : int
    queries, keys : array_like of int
        Indices among the keys; the indices of persistent keys start at 2**31.

    Returns
    -------
    ndarray, shape (batch, heads, queries, keys)
    """
    word = np.array(seed, np.uint64)
    for axis, numbers in enumerate((np.arange(batch), np.arange(heads), np.asarray(queries))):
        along = numbers.astype(np.int64).astype(np.uint64).reshape(-1, *(1,) * (2 - axis))
        word = _mix(word + np.uint64(0x9E3779B97F4A7C15)) ^ along
    word = _mix(word)[..., None]
    first, second = word & np.uint64(2**32 - 1), word >> np.uint64(32)
    x = np.asarray(keys).astype(np.uint64) + first
    x = _low(_low(x ^ _low(x) >> np.uint64(16)) * np.uint64(0x85EBCA6B))
    x = _low(_low((x ^ x >> np.uint64(13)) + second) * np.uint64(0xC2B2AE35))
    threshold = min(round(share * 2**32), 2**32 - 1)
    kept: npt.NDArray[np.float64] = np.where((x ^ x >> np.uint64(16)) >= threshold, 1 / (1 - share), 0.0)
    return kept


def _mix(x: _Words) -> _Words:
    """Mix the bits of 64-bit words, as MurmurHash3 does."""
    with np.errstate(over="ignore"):
        x = (x ^ x >> np.uint64(33)) * np.uint64(0xFF51AFD7ED558CCD)
        x = (x ^ x >> np.uint64(33)) * np.uint64(0xC4CEB9FE1A85EC53)
    return x ^ x >> np.uint64(33)


def _low(x: _Words) -> _Words:
    return x & np.uint64(2**32 - 1)
