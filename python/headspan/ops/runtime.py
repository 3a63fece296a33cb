"""Threads, and how the core was built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headspan import _check, _core
from headspan._check import Array

_threads = 0  # 0: as many as the core gives


def set_num_threads(n: int) -> None:
    """Set how many threads the core uses at most.

    Results are the same to the bit for every number.

    Parameters
    ----------
    n : int
        At least 1.

    Raises
    ------
    ValueError
        For a number below 1.
    TypeError
        For what is no integer.

    Examples
    --------
    >>> import headspan as hs
    >>> hs.set_num_threads(1)
    >>> hs.get_num_threads()
    1
    """
    global _threads
    _threads = min(_check.integer("n", n, at_least=1), 1 << 16)


def get_num_threads() -> int:
    """Return how many threads the core uses at most.

    Returns
    -------
    int
        What was set, or as many as OMP_NUM_THREADS or the processors say.

    Examples
    --------
    >>> import headspan as hs
    >>> hs.get_num_threads() >= 1
    True
    """
    return _threads or _core.default_threads()


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an array of float32 or float64 without values, to be given to the core for its results.

    Its memory is that which results of the core are kept in: what the system hands out it clears before, page by page,
    which takes as long as a third of an attention within a short span.
    """
    return _core.empty(shape, dtype)


def array_over(
    owner: object, address: int, shape: Sequence[int], strides: Sequence[int], dtype: np.dtype[Any]
) -> Array:
    """Return an array over memory that its owner keeps, of tensors of other libraries; strides count elements."""
    return _core.array_over(owner, address, shape, strides, dtype)


def build_info() -> dict[str, object]:
    """Return how the core was built and what it runs on.

    Returns
    -------
    dict
        ``version``; ``compiler``; ``openmp``, whether its threads are those of OpenMP (if not,
        they are started for every call); ``isa``, the variant of the kernel that runs;
        ``isas``, those this machine could run (the environment variable HEADSPAN_ISA chooses one at import);
        ``threads``.

    Examples
    --------
    >>> import headspan as hs
    >>> info = hs.build_info()
    >>> info["isa"] in info["isas"]
    True
    """
    return {
        "version": _core.__version__,
        "compiler": _core.compiler(),
        "openmp": _core.openmp(),
        "isa": _core.isa(),
        "isas": _core.variants(),
        "threads": get_num_threads(),
    }
