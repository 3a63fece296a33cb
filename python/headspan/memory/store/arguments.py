"""Checks of the sizes and rows that a store is passed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan.memory.store.records import DTYPES, Rows, Sizes


def checked_sizes(num_key_heads: object, head_dim: object, value_dim: object, dtype: Any) -> dict[str, Any]:
    """Return the sizes that are not None, by name."""
    numbers = {"num_key_heads": num_key_heads, "head_dim": head_dim, "value_dim": value_dim}
    sizes: dict[str, Any] = {
        name: _check.integer(name, number, at_least=1) for name, number in numbers.items() if number is not None
    }
    if dtype is not None:
        try:
            sizes["dtype"] = np.dtype(dtype).name
        except TypeError:
            sizes["dtype"] = ""
        if sizes["dtype"] not in DTYPES:
            raise TypeError(f"dtype must be one of {', '.join(DTYPES)}, not {_check.describe(dtype)}")
    return sizes


def checked_rows(sizes: Sizes, key: object, value: object) -> Rows:
    """Return new rows in the type in which the store keeps them."""
    arrays, dtype = [], np.dtype(sizes.dtype)
    for name, rows, dim in (("key", key, sizes.head_dim), ("value", value, sizes.value_dim)):
        array = _check.as_array(name, rows)
        if array.dtype not in (dtype, sizes.arithmetic):
            raise TypeError(f"{name} must be {sizes.arithmetic}, the type of the store, not {array.dtype}")
        if array.ndim != 3 or (array.shape[0], array.shape[2]) != (sizes.num_key_heads, dim):
            raise ValueError(f"{name} must be of shape ({sizes.num_key_heads}, tokens, {dim}), not {array.shape}")
        arrays.append(_narrowed(name, array, dtype))
    if arrays[0].shape[1] != arrays[1].shape[1]:
        raise ValueError(
            f"key and value must have the same number of tokens, got {arrays[0].shape[1]} and {arrays[1].shape[1]}"
        )
    return arrays[0], arrays[1]


def _narrowed(name: str, array: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    if array.dtype == dtype:
        return array
    with np.errstate(over="ignore"):
        narrow = array.astype(dtype)
    if (np.isinf(narrow) & np.isfinite(array)).any():
        raise ValueError(f"{name} must fit into {dtype}, got {np.abs(array[np.isfinite(array)]).max():g}")
    return narrow
