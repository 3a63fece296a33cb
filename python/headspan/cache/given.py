"""What a cache is given for tokens, and how it has to be."""

from __future__ import annotations

from typing import Any

import numpy as np

from headspan import _check
from headspan._check import Array
from headspan.ops.arguments import narrow


def rows(
    key: object, value: object, batch: int, key_heads: int, dims: tuple[int, int], dtype: np.dtype[Any]
) -> tuple[Array, Array]:
    """Return keys and values of new tokens, each of shape (batch, key_heads, tokens, its dim), or say what is wrong."""
    arrays = []
    for name, given, dim in (("key", key, dims[0]), ("value", value, dims[1])):
        if given is None:
            raise ValueError(f"key and value go together, but {name} was not given")
        if dtype == np.float32 and narrow.is_narrow(given):
            given = narrow.widened(given)
        array = _check.float_array(name, given)
        if array.dtype != dtype:
            raise TypeError(f"{name} must be {dtype}, as the cache computes, not {array.dtype}")
        wanted = (batch, key_heads, dim)
        if array.ndim != 4 or (*array.shape[:2], array.shape[3]) != wanted:
            raise ValueError(f"{name} must be of shape ({batch}, {key_heads}, tokens, {dim}), not {array.shape}")
        arrays.append(array)
    if arrays[0].shape[2] != arrays[1].shape[2]:
        raise ValueError(f"key and value must be as many, not {arrays[0].shape[2]} and {arrays[1].shape[2]}")
    return arrays[0], arrays[1]


def query_of(query: object) -> tuple[Array, np.dtype[Any] | None]:
    """Return a query in the type that is computed in, and the narrow type that results are rounded to, or None."""
    if narrow.is_narrow(query):
        return narrow.widened(query), query.dtype
    return _check.float_array("query", query), None
