"""The weights of an attention, for inspection."""

from __future__ import annotations

import math
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan.ops.arguments.options import Options, takes_options
from headspan.ops.execution.narrow import is_narrow
from headspan.ops.execution.request import Request
from headspan.ops.execution.runtime import get_num_threads


@takes_options
def attention_weights(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    *,
    rows: Any = None,
    cols: Any = None,
    pool: int | tuple[int, int] | None = None,
    **options: Unpack[Options],
) -> npt.NDArray[np.floating]:
    """Compute the attention weights of selected queries and keys, for inspection.

    Attention is causal by default: pass ``causal=False`` to let queries see later keys.

    Parameters
    ----------
    query, key, **options
        As for `attention`.
    rows, cols : slice, array_like of int or mask of bool, optional
        Selected queries and keys; default: all. Weights are always normalized over all keys.
    pool : int or (int, int), optional
        Size of blocks of selected queries and keys that are pooled into one number: the mean over the queries of the
        sum over the keys. A row of the result still sums to 1, or to less with sinks.

    Returns
    -------
    weights : ndarray, shape (batch, heads, rows, cols)
        The computation needs only memory for the result, `rows` and `cols`.

    See Also
    --------
    attention : The outputs for these weights.
    headspan.plot.attention_map : Draws the weights.
    headspan.plot.distance_profile : Draws the mean weight at every distance.
    explore : Interactive view of attention and spans.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> rng = np.random.default_rng(0)
    >>> q, k = rng.standard_normal((2, 1, 2, 1000, 16))
    >>> hs.attention_weights(q, k, span=40, rows=slice(-3, None)).shape
    (1, 2, 3, 1000)
    >>> hs.attention_weights(q, k, span=40, pool=100).sum(axis=-1).round(6).min()
    np.float64(1.0)
    """
    key = key if is_narrow(key) else _check.float_array("key", key)
    values = key  # weights do not depend on values
    if options.get("persistent_key") is not None and options.get("persistent_value") is not None:
        options["persistent_value"] = options["persistent_key"]
    request = Request(query, key, values, options)
    row_indices = _chosen("rows", rows, request.query.shape[2])
    col_indices = _chosen("cols", cols, request.key.shape[2])
    pools = (1, 1) if pool is None else _check.pair("pool", pool)
    sizes = (row_indices.size, col_indices.size)
    pool_rows, pool_cols = (min(p, max(size, 1)) for p, size in zip(pools, sizes, strict=True))
    shape = (*request.query.shape[:2], -(-row_indices.size // pool_rows), -(-col_indices.size // pool_cols))
    _check.check_size("the result", shape, request.query.itemsize)
    try:
        weights = request.core.weights(row_indices, col_indices, pool_rows, pool_cols, get_num_threads())
    except MemoryError:
        size = math.prod(shape) * request.query.itemsize / 2**30
        raise MemoryError(
            f"weights of shape {shape} do not fit into memory, {size:.0f} GiB; pool= pools them to blocks, "
            "rows= and cols= select some"
        ) from None
    return request.from_4d(weights)


def _chosen(name: str, selection: Any, length: int) -> npt.NDArray[np.int64]:
    """Return the indices that a selection of an axis stands for, as in NumPy."""
    if selection is None:
        return np.arange(length)
    if isinstance(selection, slice):
        try:
            return np.arange(*selection.indices(length))
        except (TypeError, ValueError) as error:
            raise type(error)(
                f"{name} must be a slice of integers, with a step other than 0, not {_check.describe(selection)}"
            ) from None
    selection = np.atleast_1d(_check.as_array(name, selection))
    if selection.dtype == np.bool_:
        if selection.shape != (length,):
            raise ValueError(f"{name} as a mask must have the shape ({length},), not {selection.shape}")
        return np.flatnonzero(selection)
    if selection.size == 0:
        selection = selection.astype(np.int64)
    if selection.ndim != 1 or selection.dtype.kind not in "iu":
        raise TypeError(
            f"{name} must be a slice, a list of integers or a mask of bool, not {_check.describe(selection.tolist())}"
        )
    try:
        return np.ascontiguousarray(np.arange(length)[selection])
    except IndexError as error:
        raise ValueError(
            f"{name} must be within {length} tokens, got {selection[np.abs(selection).argmax()]}"
        ) from error
