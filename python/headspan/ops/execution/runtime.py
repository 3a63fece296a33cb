"""Number of threads, memory for arrays, and build information."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headspan import _check, _compiled
from headspan._check import Array

MAX_THREADS = 1 << 16
_threads = 0  # 0: the default of the core


def set_num_threads(n: int) -> None:
    """Set the maximum number of threads that the core uses.

    Results are bitwise identical for every number of threads.

    Parameters
    ----------
    n : int
        At least 1.

    Raises
    ------
    ValueError
        If `n` is less than 1.
    TypeError
        If `n` is not an integer.

    See Also
    --------
    get_num_threads : The maximum number of threads.

    Examples
    --------
    >>> import headspan as hs
    >>> hs.set_num_threads(1)
    >>> hs.get_num_threads()
    1
    """
    global _threads
    _threads = min(_check.integer("n", n, at_least=1), MAX_THREADS)


def get_num_threads() -> int:
    """Return the maximum number of threads that the core uses.

    Returns
    -------
    int
        The number that was set, or otherwise OMP_NUM_THREADS or the number of processors.

    See Also
    --------
    set_num_threads : Sets the maximum number of threads.
    build_info : How the core was built, and which kernel it runs.

    Examples
    --------
    >>> import headspan as hs
    >>> hs.get_num_threads() >= 1
    True
    """
    return _threads or _compiled.default_threads()


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an uninitialized float32 or float64 array for results of the core.

    The array uses the memory pool of the core. Fresh memory is cleared by the system page by page, which takes a third
    of the time of an attention with a short span.
    """
    return _compiled.empty(shape, dtype)


def array_over(
    owner: object, address: int, shape: Sequence[int], strides: Sequence[int], dtype: np.dtype[Any]
) -> Array:
    """Return an array over the memory of a foreign tensor, which `owner` keeps alive; strides count elements."""
    return _compiled.array_over(owner, address, shape, strides, dtype)


def build_info() -> dict[str, object]:
    """Return how the core was built and which kernel it runs.

    Returns
    -------
    dict
        ``version``; ``compiler``; ``openmp``, whether the core uses OpenMP threads (otherwise it starts threads for
        every call); ``isa``, the kernel variant in use; ``isas``, the variants that this machine supports (the
        environment variable HEADSPAN_ISA selects one at import); ``threads``, see `get_num_threads`.

    See Also
    --------
    get_num_threads : The maximum number of threads.

    Examples
    --------
    >>> import headspan as hs
    >>> info = hs.build_info()
    >>> info["isa"] in info["isas"]
    True
    """
    return {
        "version": _compiled.__version__,
        "compiler": _compiled.compiler(),
        "openmp": _compiled.openmp(),
        "isa": _compiled.isa(),
        "isas": _compiled.variants(),
        "threads": get_num_threads(),
    }
