"""Tokens in another order: what the core gets is brought together, and what comes back put where it belongs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from headspan import _core
from headspan._check import Array

_AnyArray = npt.NDArray[Any]
_Order = npt.NDArray[np.int64] | None


def in_order(array: _AnyArray, order: _Order, axis: int) -> _AnyArray:
    """Take the tokens along an axis in an order, (batch or 1, tokens), of an array whose first axis is the batch."""
    if order is None or array.shape[axis] == 1 or array.strides[axis] == 0:  # or one token for all
        return array
    if len(order) == 1:
        ordered: _AnyArray = np.take(array, order[0], axis)
        return ordered
    items = np.broadcast_to(array, (len(order), *array.shape[1:]))
    return np.stack([np.take(item, row, axis - 1) for item, row in zip(items, order, strict=True)])


# Which axis of what is of queries, and which of keys; what is not named here has neither.
_AXES = {
    "query": (2, None), "span": (2, None), "temperature": (2, None), "out": (2, None),
    "key": (None, 2), "value": (None, 2), "key_bias": (None, 2), "removed": (None, 2), "pair_bias": (2, 3),
}  # fmt: skip
# Options whose first axis is that of batch items.
_OF_ITEMS = {
    "span", "temperature", "alibi_slopes", "sinks", "key_bias", "removed", "key_begin", "key_lengths",
    "query_positions", "key_positions", "range_first", "range_last",
}  # fmt: skip


def _along(name: str, array: _AnyArray, orders: tuple[_Order, _Order]) -> _AnyArray:
    for axis, order in zip(_AXES.get(name, ()), orders, strict=False):
        if axis is not None:
            array = in_order(array, order, axis)
    return array


class Gathered:
    """As `_core.Request`, whose methods it has, for tokens that are brought into other orders than they come in.

    Of the options, positions and ranges are given in these orders already.
    """

    def __init__(
        self, query: Array, key: Array, value: Array, options: Mapping[str, Any], orders: tuple[_Order, _Order]
    ) -> None:
        self._query, self._key, self._value = (
            _along(name, array, orders) for name, array in (("query", query), ("key", key), ("value", value))
        )
        self._options: dict[str, Any] = {name: _along(name, option, orders) for name, option in options.items()}
        if "terms" in options:
            terms = options["terms"].items()
            self._options["terms"] = {name: tuple(_along(name, each, orders) for each in its) for name, its in terms}
        self._core = _core.Request(self._query, self._key, self._value, self._options)
        one, two = (None if order is None else np.argsort(order, axis=1) for order in orders)
        self._orders, self._places = orders, (one, two)  # which token comes where, and where each token is

    def forward(
        self, out: Array | None, with_lse: bool, with_statistics: bool, threads: int
    ) -> tuple[Array, Array | None, Array | None]:
        """Compute attention."""
        found, lse, statistics = self._core.forward(out, with_lse, with_statistics, threads)
        return (
            self._back("out", found, out),
            None if lse is None else self._back("out", lse),
            None if statistics is None else self._back("out", statistics),
        )

    def backward(
        self,
        out: Array,
        statistics: Array,
        grad_out: Array,
        grad_lse: Array | None,
        into: dict[str, Array | None],
        threads: int,
    ) -> dict[str, _AnyArray]:
        """Compute the gradients that `into` names."""
        out, statistics, grad_out = (_along("out", each, self._orders) for each in (out, statistics, grad_out))
        lse = None if grad_lse is None else _along("out", grad_lse, self._orders)
        found = self._core.backward(out, statistics, grad_out, lse, into, threads)
        return {name: self._back(name, gradient, into[name]) for name, gradient in found.items()}

    def _back(self, name: str, found: _AnyArray, given: _AnyArray | None = None) -> _AnyArray:
        """Put what the core found back into the order that the tokens came in, in `given` if that is where it is."""
        shape = found.shape
        if name == "pair_bias":  # the core has its pairs along one axis
            found = found.reshape(*shape[:2], self._query.shape[2], -1)
        back = _along(name, found, self._places).reshape(shape)
        if given is None:
            return back
        given[...] = back
        return given

    def weights(
        self, rows: npt.NDArray[np.int64], cols: npt.NDArray[np.int64], pool_rows: int, pool_cols: int, threads: int
    ) -> Array:
        """Compute weights of chosen queries and keys, of one batch item after another where their orders differ."""
        orders = max(1 if places is None else len(places) for places in self._places)
        parts = []
        for item in range(orders):
            core = self._core if orders == 1 else self._core_of(item)
            its_rows, its_cols = (
                wanted if places is None else places[item % len(places)][wanted]
                for wanted, places in zip((rows, cols), self._places, strict=True)
            )
            parts.append(core.weights(its_rows, its_cols, pool_rows, pool_cols, threads))
        return np.concatenate(parts)

    def _core_of(self, item: int) -> _core.Request:
        def its(array: _AnyArray) -> _AnyArray:
            return array[item : item + 1] if len(array) > 1 else array

        options: dict[str, Any] = {
            name: its(option) if name in _OF_ITEMS else option for name, option in self._options.items()
        }
        if "terms" in options:
            terms = options["terms"].items()
            options["terms"] = {name: tuple(its(a) if a.ndim == 4 else a for a in arrays) for name, arrays in terms}
        return _core.Request(its(self._query), its(self._key), its(self._value), options)

    def pairs(self, threads: int) -> npt.NDArray[np.int64]:
        """Count the pairs of batch items and heads."""
        return self._core.pairs(threads)
