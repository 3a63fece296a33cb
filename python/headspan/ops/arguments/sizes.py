"""The sizes of query, key and value, with which all other arguments must agree."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan._check import Array


class Sizes(NamedTuple):
    """Sizes of one attention.

    Attributes
    ----------
    batch, heads, key_heads, queries, keys : int
    ndim : int
        Number of axes of the query as passed, 2 to 4.
    dtype : dtype
    head_dim, value_dim : int
    furthest : float
        A number that exceeds every distance.
    """

    batch: int
    heads: int
    key_heads: int
    queries: int
    keys: int
    ndim: int
    dtype: np.dtype[Any]
    head_dim: int
    value_dim: int
    furthest: float

    @property
    def axes(self) -> tuple[int, ...]:
        """Lengths of the axes batch, heads and tokens, as far as the query has them."""
        return (self.batch, self.heads, self.queries)[4 - self.ndim :]


def per_token(name: str, array: npt.NDArray[Any], tokens: int, sizes: Sizes) -> npt.NDArray[Any]:
    """Check an array of shape (tokens,) or (batch, tokens) and return it as (batch or 1, tokens)."""
    forms = [(tokens,)] + ([(sizes.batch, tokens)] if sizes.ndim == 4 else [])
    if not any(array.ndim == len(form) and _check.may_be_shared(array.shape, form) for form in forms):
        raise ValueError(f"{name} must be of shape {' or '.join(map(str, forms))}, not of shape {array.shape}")
    return array[None] if array.ndim == 1 else array


def check_last(queries: int, tokens: int) -> None:
    """Raise ValueError unless the queries can be the last tokens."""
    if not 0 < queries <= tokens:
        raise ValueError(f"query must have 1 to {tokens} tokens, at most as many as key, not {queries}")


def check_alike(arrays: dict[str, Array]) -> None:
    """Check that the types and shapes of query, key and value, in this order, match."""
    _check.same_dtype(arrays)
    query, key, value = (array.shape for array in arrays.values())
    axes = len(query)
    if axes not in (2, 3, 4):
        raise ValueError(
            f"query must have the axes (batch, heads, tokens, head_dim), or the last 3 or 2 of them, not shape {query}"
        )
    for name, array in arrays.items():
        if array.ndim != axes:
            raise ValueError(f"{name} must have as many axes as query of shape {query}, not shape {array.shape}")
    if key[-1] != query[-1] or query[-1] == 0:
        raise ValueError(f"query and key must have one head_dim of at least 1, not {query[-1]} and {key[-1]}")
    if key[-2] == 0:
        raise ValueError(f"key must have at least one token, not shape {key}")
    if axes == 4 and key[0] != query[0]:
        raise ValueError(f"key must have the batch of query, {query[0]}, not {key[0]}")
    if axes > 2 and (key[-3] == 0 or query[-3] == 0 or query[-3] % key[-3]):
        raise ValueError(f"the heads of query must be a multiple of the heads of key, not {query[-3]} and {key[-3]}")
    if value[:-1] != key[:-1] or value[-1] == 0:
        raise ValueError(f"value must have the shape of key, {key}, up to the last axis, not {value}")
