"""Reordered tokens: arguments are gathered for the core, and its results are scattered back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from headspan import _compiled
from headspan._check import Array
from headspan.ops.arguments.options import ARRAY_OPTIONS, DIFFERENTIABLE
from headspan.ops.arguments.segments import Order, in_order

_AnyArray = npt.NDArray[Any]

# The axes of arrays of the core. Options without a gradient are already in the new order or have no axis of tokens.
_AXES = {"query": "bhq.", "out": "bhq.", "key": "bhk.", "value": "bhk.", "removed": ARRAY_OPTIONS["key_bias"].axes}
_AXES |= {name: ARRAY_OPTIONS[name].axes for name in DIFFERENTIABLE}
# Arguments of the core whose first axis is the batch.
_OF_ITEMS = {"removed", "range_first", "range_last"} | {
    name for name, row in ARRAY_OPTIONS.items() if row.axes.startswith("b")
}


def _along(name: str, array: _AnyArray, orders: tuple[Order, Order]) -> _AnyArray:
    """Reorder the axes of queries and of keys, if the array has such axes."""
    for letter, order in zip("qk", orders, strict=True):
        axis = _AXES.get(name, "").find(letter)
        if axis >= 0:
            array = in_order(array, order, axis)
    return array


class Gathered:
    """A `_compiled.Request` for reordered tokens, with the same methods.

    Positions and ranges among the options must already be in the new orders.
    """

    def __init__(
        self, query: Array, key: Array, value: Array, options: Mapping[str, Any], orders: tuple[Order, Order]
    ) -> None:
        self._query, self._key, self._value = (
            _along(name, array, orders) for name, array in (("query", query), ("key", key), ("value", value))
        )
        self._options: dict[str, Any] = {name: _along(name, option, orders) for name, option in options.items()}
        if "terms" in options:
            terms = options["terms"].items()
            self._options["terms"] = {name: tuple(_along(name, x, orders) for x in arrays) for name, arrays in terms}
        self._core = _compiled.Request(self._query, self._key, self._value, self._options)
        query_places, key_places = (None if order is None else np.argsort(order, axis=1) for order in orders)
        self._orders, self._places = orders, (query_places, key_places)  # each order and its inverse

    def forward(
        self, out: Array | None, with_lse: bool, with_statistics: bool, threads: int
    ) -> tuple[Array, Array | None, Array | None]:
        """Compute attention."""
        result, lse, statistics = self._core.forward(out, with_lse, with_statistics, threads)
        return (
            self._back("out", result, out),
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
        """Compute the gradients that are keys of `into`."""
        out, statistics, grad_out = (_along("out", each, self._orders) for each in (out, statistics, grad_out))
        lse = None if grad_lse is None else _along("out", grad_lse, self._orders)
        gradients = self._core.backward(out, statistics, grad_out, lse, into, threads)
        return {name: self._back(name, gradient, into[name]) for name, gradient in gradients.items()}

    def _back(self, name: str, result: _AnyArray, target: _AnyArray | None = None) -> _AnyArray:
        """Return a result of the core in the original order of the tokens, written to `target` if it is not None."""
        shape = result.shape
        if name == "pair_bias":  # the core flattens the axes of pairs
            result = result.reshape(*shape[:2], self._query.shape[2], -1)
        back = _along(name, result, self._places).reshape(shape)
        if target is None:
            return back
        target[...] = back
        return target

    def weights(
        self, rows: npt.NDArray[np.int64], cols: npt.NDArray[np.int64], pool_rows: int, pool_cols: int, threads: int
    ) -> Array:
        """Compute weights of selected queries and keys, one batch item at a time if their orders differ."""
        orders = max(1 if places is None else len(places) for places in self._places)
        parts = []
        for item in range(orders):
            core = self._core if orders == 1 else self._core_of(item)
            item_rows, item_cols = (
                indices if places is None else places[item % len(places)][indices]
                for indices, places in zip((rows, cols), self._places, strict=True)
            )
            parts.append(core.weights(item_rows, item_cols, pool_rows, pool_cols, threads))
        return np.concatenate(parts)

    def _core_of(self, item: int) -> _compiled.Request:
        def part(array: _AnyArray) -> _AnyArray:
            return array[item : item + 1] if len(array) > 1 else array

        options: dict[str, Any] = {
            name: part(option) if name in _OF_ITEMS else option for name, option in self._options.items()
        }
        if "terms" in options:
            terms = options["terms"].items()
            options["terms"] = {name: tuple(part(a) if a.ndim == 4 else a for a in arrays) for name, arrays in terms}
        return _compiled.Request(part(self._query), part(self._key), part(self._value), options)

    def pairs(self, threads: int) -> npt.NDArray[np.int64]:
        """Count the pairs of each batch item and head."""
        return self._core.pairs(threads)
