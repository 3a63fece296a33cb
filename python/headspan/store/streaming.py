"""Attention over keys that come a piece at a time, merged on the way."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from headspan import _check
from headspan._check import Array
from headspan.ops import reach
from headspan.ops.attention import attention
from headspan.ops.merge import merge_attention
from headspan.store.records import Sizes

_OF_SCORES = ("span", "ramp", "scale", "temperature", "alibi_slopes", "softcap", "query_positions")
_ONCE = ("sinks", "memory_key", "memory_value")  # in the softmax once, however many pieces there are
# Results are merged when they are so long, or so many, for merging costs about as much as a small piece.
_BYTES, _PARTS = 1 << 22, 64
_TOGETHER = 8  # pieces of a call, since each call wakes threads


class Streaming:
    """The queries of a call, and what has come of the keys so far.

    Log-sum-exps of pieces make weights, so that results are merged in float64 whatever the type: the sum over thousands
    of pieces is then as exact as that over one.
    """

    def __init__(self, sizes: Sizes, query: object, options: Mapping[str, Any]) -> None:
        for name in options:
            if name not in _OF_SCORES + _ONCE:
                raise TypeError(f"{name!r} is none of the options of attend: {', '.join(_OF_SCORES + _ONCE)}")
        given = {name: its for name, its in options.items() if its is not None}
        query = _checked_query(query, sizes)
        self._dtype, self._ndim = sizes.arithmetic, query.ndim
        # A key that is removed stands for none: what every query sees anyway is counted here, and options are checked.
        shapes = [(1, sizes.key_heads, 1, dim)[4 - self._ndim :] for dim in (sizes.head_dim, sizes.value_dim)]
        nothing = [np.zeros(shape, self._dtype) for shape in shapes]
        out, lse = attention(query, *nothing, causal=False, return_lse=True, key_bias=[-np.inf], **given)
        self._query = query.reshape(1, *query.shape[-3:])
        self._parts: list[tuple[Array, Array]] = []
        self._keep(out.reshape(out.shape[-3:]), lse.reshape(lse.shape[-2:]))
        self._placed = given.pop("query_positions", None)
        self._each = {name: _with_four_axes(its, query.ndim) for name, its in given.items() if name not in _ONCE}
        self._positions: npt.NDArray[Any] | None = None
        self._run: list[tuple[int, npt.NDArray[Any], npt.NDArray[Any]]] = []
        self._together = min(_TOGETHER, 1 + _BYTES // (8 * out.size + 1))

    def in_reach(self, count: int) -> tuple[int, int]:
        """Return the first of so many rows that a span reaches, and the one after the last."""
        if not {"span", "alibi_slopes"} & self._each.keys():
            return 0, count
        tokens = self._query.shape[-2]
        self._positions = np.arange(count - tokens, count) if self._placed is None else np.asarray(self._placed).ravel()
        if "span" not in self._each or not self._positions.size:
            return 0, count
        longest = np.array([np.max(self._each["span"])], np.float64)
        furthest = int(reach.of_spans(longest, self._each.get("ramp", 32))[0])
        first = math.floor(self._positions.min()) - furthest
        last = math.ceil(self._positions.max()) + furthest + 1
        return min(max(first, 0), count), max(min(last, count), 0)

    def add(self, first: int, key: npt.NDArray[Any], value: npt.NDArray[Any]) -> None:
        """Attend to rows from number ``first`` on, (key heads, rows, dims), which must stay where they are.

        Pieces of which each lies as far behind the one before are waited for, and attended to in one call, as if they
        were of a batch: an array with that stride shows all of them, and nothing between them.
        """
        if self._run and not self._continues(key):
            self._attend_to_run()
        self._run.append((first, key, value))
        if len(self._run) >= self._together:
            self._attend_to_run()

    def result(self) -> tuple[Array, Array]:
        """Return what the queries have seen, and the log-sum-exp."""
        self._attend_to_run()
        self._merge()
        out, lse = (array.astype(self._dtype) for array in self._parts[0])
        return (out, lse) if self._ndim == 3 else (out[None], lse[None])

    def _continues(self, key: npt.NDArray[Any]) -> bool:
        before = [its for _, its, _ in self._run[-2:]] + [key]
        steps = {_address(its) - _address(one) for one, its in pairwise(before)}
        return len(steps) == 1 and key.shape == before[0].shape and key.dtype == self._dtype

    def _attend_to_run(self) -> None:
        if not self._run:
            return
        run, self._run = self._run, []
        step = _address(run[1][1]) - _address(run[0][1]) if len(run) > 1 else 0
        key, value = (self._batch(array, len(run), step) for array in run[0][1:])
        query = np.broadcast_to(self._query, (len(run), *self._query.shape[1:]))
        places: dict[str, Any] = {}
        if self._positions is not None:
            numbers = np.array([[first] for first, *_ in run]) + np.arange(key.shape[2])
            places = {"query_positions": self._positions, "key_positions": numbers}
        outs, lses = attention(query, key, value, causal=False, return_lse=True, **places, **self._each)
        for out, lse in zip(outs, lses, strict=True):
            self._keep(out, lse)

    def _batch(self, array: npt.NDArray[Any], count: int, step: int) -> Array:
        """Show so many pieces, each as many bytes behind the one before, of which the first is given."""
        shown = as_strided(array, (count, *array.shape), (step, *array.strides), writeable=False)
        return shown.astype(self._dtype, copy=False)

    def _keep(self, out: Array, lse: Array) -> None:
        self._parts.append((out.astype(np.float64), lse.astype(np.float64)))
        if len(self._parts) >= _PARTS or len(self._parts) * self._parts[0][0].nbytes > _BYTES:
            self._merge()

    def _merge(self) -> None:
        if len(self._parts) > 1:
            outs, lses = zip(*self._parts, strict=True)
            self._parts = [merge_attention(outs, lses)]


def _checked_query(given: object, sizes: Sizes) -> Array:
    query = _check.float_array("query", given)
    if query.dtype != sizes.arithmetic:
        raise TypeError(f"query must be {sizes.arithmetic}, as the store computes, not {query.dtype}")
    heads, dim = sizes.key_heads, sizes.head_dim
    if query.ndim not in (3, 4) or query.shape[-1] != dim or (query.ndim == 4 and query.shape[0] != 1):
        raise ValueError(
            f"query must be of shape (heads, tokens, {dim}) or (1, heads, tokens, {dim}), not {query.shape}"
        )
    if not query.shape[-3] or query.shape[-3] % heads:
        raise ValueError(f"query must have a multiple of the {heads} key heads, not {query.shape[-3]} heads")
    return query


def _with_four_axes(option: Any, ndim: int) -> Any:
    """Give an option of (heads, tokens) an axis of batch items, for a query that had none."""
    return np.asarray(option)[None] if ndim == 3 and np.ndim(option) == 2 else option


def _address(array: npt.NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
