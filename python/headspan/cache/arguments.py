"""Checks of the arguments of caches, and the split of arrays by key heads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan._check import Array
from headspan.ops.execution import narrow


def rows(
    key: object, value: object, batch: int, key_heads: int, dims: tuple[int, int], dtype: np.dtype[Any]
) -> tuple[Array, Array]:
    """Return keys and values of new tokens, of shape (batch, key_heads, tokens, dim), or raise an error."""
    arrays = []
    for name, option, dim in (("key", key, dims[0]), ("value", value, dims[1])):
        if option is None:
            raise ValueError(f"key and value must be given together, but {name} was not given")
        if dtype == np.float32 and narrow.is_narrow(option):
            option = narrow.widened(option)
        array = _check.float_array(name, option)
        if array.dtype != dtype:
            raise TypeError(f"{name} must be {dtype}, the type of the cache, not {array.dtype}")
        expected = (batch, key_heads, dim)
        if array.ndim != 4 or (*array.shape[:2], array.shape[3]) != expected:
            raise ValueError(f"{name} must be of shape ({batch}, {key_heads}, tokens, {dim}), not {array.shape}")
        arrays.append(array)
    if arrays[0].shape[2] != arrays[1].shape[2]:
        raise ValueError(
            f"key and value must have the same number of tokens, got {arrays[0].shape[2]} and {arrays[1].shape[2]}"
        )
    return arrays[0], arrays[1]


def sizes(batch: int, key_heads: int, head_dim: int, value_dim: int | None) -> tuple[int, int, tuple[int, int]]:
    """Return the batch size, the number of key heads, and the dims of keys and values."""
    named = {"batch": batch, "num_key_heads": key_heads, "head_dim": head_dim, "value_dim": value_dim or head_dim}
    items, heads, *dims = (_check.integer(name, size, at_least=1) for name, size in named.items())
    return items, heads, (dims[0], dims[1])


def of_state(name: str, state: object, entries: Iterable[str]) -> dict[str, Any]:
    """Return a copy of a state of class `name`, or raise an error that names the missing entries."""
    if not isinstance(state, Mapping):
        raise TypeError(f"state must be a result of {name}.state_dict, not {_check.describe(state)}")
    missing = [entry for entry in entries if entry not in state]
    if missing:
        raise ValueError(f"state must be a result of {name}.state_dict, but lacks {', '.join(missing)}")
    return dict(state)


def query_of(query: object) -> tuple[Array, np.dtype[Any] | None]:
    """Return the query in the type of the arithmetic, and the narrow type of the results or None."""
    if narrow.is_narrow(query):
        return narrow.widened(query), query.dtype
    return _check.float_array("query", query), None


def each_head(name: str, option: Any, axes: tuple[int, int, int], *, with_tokens: bool) -> Any:
    """Broadcast an option that is an array to the axes (batch, heads) or (batch, heads, tokens or 1)."""
    array = _check.as_array(name, option)
    if array.ndim == 0:
        return option
    array = _check.per_query(name, array, axes, with_tokens=with_tokens)
    return np.broadcast_to(array, (*axes[:2], *array.shape[2:]))


class Heads:
    """A subset of the key heads, and the heads that share them.

    Attributes
    ----------
    key_heads : ndarray of int
    """

    def __init__(self, chosen: npt.NDArray[np.bool_]) -> None:
        self.key_heads = np.flatnonzero(chosen)
        self._total = len(chosen)
        self._queries: dict[int, npt.NDArray[np.int64]] = {}

    def queries(self, heads: int) -> npt.NDArray[np.int64]:
        """Return which of all `heads` heads share these key heads."""
        if heads not in self._queries:
            shared = heads // self._total
            self._queries[heads] = (self.key_heads[:, None] * shared + np.arange(shared)).ravel()
        return self._queries[heads]

    def of_keys(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the part of these key heads from an array whose second axis is the key heads."""
        return array if len(self.key_heads) == self._total else array[:, self.key_heads]

    def of_queries(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the part of these heads from an array whose second axis is the heads."""
        return array if len(self.key_heads) == self._total else array[:, self.queries(array.shape[1])]

    def put(self, results: Iterable[Array], head_results: Iterable[Array]) -> None:
        """Write the results of these heads into the results of all heads."""
        for result, head_result in zip(results, head_results, strict=True):
            result[:, self.queries(result.shape[1])] = head_result

    def of_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the part of these heads from options as `each_head` returns them."""
        return {name: self.of_queries(option) if np.ndim(option) else option for name, option in options.items()}
