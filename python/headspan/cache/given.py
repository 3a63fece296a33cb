"""What a cache is given for tokens: how it has to be, and what of it is whose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

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


def sizes(batch: int, key_heads: int, head_dim: int, value_dim: int | None) -> tuple[int, int, tuple[int, int]]:
    """Return batch items, key heads, and the dims of keys and of values, which are those of keys unless given."""
    named = {"batch": batch, "key_heads": key_heads, "head_dim": head_dim, "value_dim": value_dim or head_dim}
    items, heads, *dims = (_check.integer(name, n, at_least=1) for name, n in named.items())
    return items, heads, (dims[0], dims[1])


def of_state(name: str, state: object, entries: Iterable[str]) -> dict[str, Any]:
    """Return a copy of what ``state_dict`` of a class gave, or say which of its entries are missing."""
    if not isinstance(state, Mapping):
        raise TypeError(f"state must be what state_dict of {name} returned, not {_check.describe(state)}")
    missing = [entry for entry in entries if entry not in state]
    if missing:
        raise ValueError(f"state must be what state_dict of {name} returned, but lacks {', '.join(missing)}")
    return dict(state)


def refuse_others(options: Iterable[str], known: Iterable[str], what: str) -> None:
    """Raise TypeError for an option that a cache of this kind does not take for each call."""
    for name in options:
        if name not in known:
            raise TypeError(f"{name!r} is none of what {what} takes beside its own, {', '.join(sorted(known))}")


def query_of(query: object) -> tuple[Array, np.dtype[Any] | None]:
    """Return a query in the type that is computed in, and the narrow type that results are rounded to, or None."""
    if narrow.is_narrow(query):
        return narrow.widened(query), query.dtype
    return _check.float_array("query", query), None


def each_head(name: str, option: Any, axes: tuple[int, int, int], *, with_tokens: bool) -> Any:
    """Bring an option that is no plain number to the axes (batch, heads) or (batch, heads, tokens or 1)."""
    array = _check.as_array(name, option)
    if array.ndim == 0:
        return option
    array = _check.per_query(name, array, axes, with_tokens=with_tokens)
    return np.broadcast_to(array, (*axes[:2], *array.shape[2:]))


class Heads:
    """Some of the key heads, and the heads that share them.

    Attributes
    ----------
    key_heads : ndarray of int
    """

    def __init__(self, chosen: npt.NDArray[np.bool_]) -> None:
        self.key_heads = np.flatnonzero(chosen)
        self._of = len(chosen)
        self._queries: dict[int, npt.NDArray[np.int64]] = {}

    def queries(self, heads: int) -> npt.NDArray[np.int64]:
        """Return which of so many heads share these key heads."""
        if heads not in self._queries:
            shared = heads // self._of
            self._queries[heads] = (self.key_heads[:, None] * shared + np.arange(shared)).ravel()
        return self._queries[heads]

    def of_keys(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return what is theirs of an array with an axis of key heads, its second."""
        return array if len(self.key_heads) == self._of else array[:, self.key_heads]

    def of_queries(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return what is theirs of an array with an axis of heads, its second."""
        return array if len(self.key_heads) == self._of else array[:, self.queries(array.shape[1])]

    def put(self, results: Iterable[Array], found: Iterable[Array]) -> None:
        """Write what was found for their queries into results of all heads."""
        for of_all, its in zip(results, found, strict=True):
            of_all[:, self.queries(of_all.shape[1])] = its

    def of_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is theirs of options as `each_head` returns them."""
        return {name: self.of_queries(its) if np.ndim(its) else its for name, its in options.items()}
