"""What a store is given: its sizes, and rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan.store.records import DTYPES, Rows, Sizes


def checked_sizes(key_heads: object, head_dim: object, value_dim: object, dtype: Any) -> dict[str, Any]:
    """Return the sizes that were given, by name."""
    numbers = {"key_heads": key_heads, "head_dim": head_dim, "value_dim": value_dim}
    given: dict[str, Any] = {
        name: _check.integer(name, its, at_least=1) for name, its in numbers.items() if its is not None
    }
    if dtype is not None:
        try:
            given["dtype"] = np.dtype(dtype).name
        except TypeError:
            given["dtype"] = ""
        if given["dtype"] not in DTYPES:
            raise TypeError(f"dtype must be one of {', '.join(DTYPES)}, not {_check.describe(dtype)}")
    return given


def checked_rows(sizes: Sizes, key: object, value: object) -> Rows:
    """Return new rows of the type that they are kept in."""
    arrays, dtype = [], np.dtype(sizes.dtype)
    for name, given, dim in (("key", key, sizes.head_dim), ("value", value, sizes.value_dim)):
        array = _check.as_array(name, given)
        if array.dtype not in (dtype, sizes.arithmetic):
            raise TypeError(f"{name} must be {sizes.arithmetic}, as the store is, not {array.dtype}")
        if array.ndim != 3 or (array.shape[0], array.shape[2]) != (sizes.key_heads, dim):
            raise ValueError(f"{name} must be of shape ({sizes.key_heads}, tokens, {dim}), not {array.shape}")
        arrays.append(_narrowed(name, array, dtype))
    if arrays[0].shape[1] != arrays[1].shape[1]:
        raise ValueError(f"key and value must be as many, not {arrays[0].shape[1]} and {arrays[1].shape[1]}")
    return arrays[0], arrays[1]


def _narrowed(name: str, array: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    if array.dtype == dtype:
        return array
    with np.errstate(over="ignore"):
        narrow = array.astype(dtype)
    if (np.isinf(narrow) & np.isfinite(array)).any():
        raise ValueError(f"{name} must fit into {dtype}, but holds {np.abs(array[np.isfinite(array)]).max():g}")
    return narrow
