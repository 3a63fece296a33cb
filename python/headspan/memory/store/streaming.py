"""Attention over keys that arrive in pieces, with merged results."""

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
from headspan.memory.store.records import Sizes
from headspan.ops import reach
from headspan.ops.arguments.options import BY_DISTANCE, DEFAULTS, options_in, refuse_unknown
from headspan.ops.arguments.rows import In
from headspan.ops.attention import attention
from headspan.ops.merge import merge_attention

_EACH, _ONCE = options_in(In.STORE), options_in(In.STORE_ONCE)  # for each piece of the keys, and once for all
# Results are merged when they reach this size or number, since merging costs about as much as a small piece.
_BYTES, _PARTS = 1 << 22, 64
_TOGETHER = 8  # pieces per call, since each call wakes threads


class Streaming:
    """The queries of a call and their results over the keys so far.

    The log-sum-exps of the pieces are the weights of their results. Merging is in float64 for every type, so that the
    sum over thousands of pieces is as exact as the sum over one.
    """

    def __init__(self, sizes: Sizes, query: object, options: Mapping[str, Any]) -> None:
        refuse_unknown(options, _EACH + _ONCE, by="attend", explicit=("return_lse",))
        passed = {name: option for name, option in options.items() if option is not None}
        query = _checked_query(query, sizes)
        self._dtype, self._ndim = sizes.arithmetic, query.ndim
        # A call with one removed key counts the sinks and persistent keys, which every query sees, and checks the
        # options.
        shapes = [(1, sizes.num_key_heads, 1, dim)[4 - self._ndim :] for dim in (sizes.head_dim, sizes.value_dim)]
        nothing = [np.zeros(shape, self._dtype) for shape in shapes]
        out, lse = attention(query, *nothing, causal=False, return_lse=True, key_bias=[-np.inf], **passed)
        self._query = query.reshape(1, *query.shape[-3:])
        self._parts: list[tuple[Array, Array]] = []
        self._keep(out.reshape(out.shape[-3:]), lse.reshape(lse.shape[-2:]))
        self._placed = passed.pop("query_positions", None)
        self._each = {name: _with_four_axes(option, query.ndim) for name, option in passed.items() if name not in _ONCE}
        self._positions: npt.NDArray[Any] | None = None
        self._run: list[tuple[int, npt.NDArray[Any], npt.NDArray[Any]]] = []
        self._together = min(_TOGETHER, 1 + _BYTES // (8 * out.size + 1))

    def in_reach(self, count: int) -> tuple[int, int]:
        """Return the range of the `count` rows that a span reaches."""
        if not BY_DISTANCE & self._each.keys():
            return 0, count
        tokens = self._query.shape[-2]
        self._positions = np.arange(count - tokens, count) if self._placed is None else np.asarray(self._placed).ravel()
        if "span" not in self._each or not self._positions.size:
            return 0, count
        longest = np.array([np.max(self._each["span"])], np.float64)
        furthest = int(reach.of_spans(longest, self._each.get("ramp", DEFAULTS["ramp"]))[0])
        first = math.floor(self._positions.min()) - furthest
        last = math.ceil(self._positions.max()) + furthest + 1
        return min(max(first, 0), count), max(min(last, count), 0)

    def add(self, first: int, key: npt.NDArray[Any], value: npt.NDArray[Any]) -> None:
        """Attend to rows from number `first` on, (key heads, rows, dims), whose memory must stay valid.

        Pieces at equal distances in memory are collected and attended to in one call, as the items of a batch: one
        array with that distance as a stride covers them all without a copy.
        """
        if self._run and not self._continues(key):
            self._attend_to_run()
        self._run.append((first, key, value))
        if len(self._run) >= self._together:
            self._attend_to_run()

    def result(self) -> tuple[Array, Array]:
        """Return the result for the queries, and the log-sum-exp."""
        self._attend_to_run()
        self._merge()
        out, lse = (array.astype(self._dtype) for array in self._parts[0])
        return (out, lse) if self._ndim == 3 else (out[None], lse[None])

    def _continues(self, key: npt.NDArray[Any]) -> bool:
        before = [array for _, array, _ in self._run[-2:]] + [key]
        steps = {_address(array) - _address(previous) for previous, array in pairwise(before)}
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
        """Return a view of `count` pieces that are `step` bytes apart, of which `array` is the first."""
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


def _checked_query(query_like: object, sizes: Sizes) -> Array:
    query = _check.float_array("query", query_like)
    if query.dtype != sizes.arithmetic:
        raise TypeError(f"query must be {sizes.arithmetic}, the type of the store, not {query.dtype}")
    heads, dim = sizes.num_key_heads, sizes.head_dim
    if query.ndim not in (3, 4) or query.shape[-1] != dim or (query.ndim == 4 and query.shape[0] != 1):
        raise ValueError(
            f"query must be of shape (heads, tokens, {dim}) or (1, heads, tokens, {dim}), not {query.shape}"
        )
    if not query.shape[-3] or query.shape[-3] % heads:
        raise ValueError(f"query must have a multiple of the {heads} key heads, not {query.shape[-3]} heads")
    return query


def _with_four_axes(option: Any, ndim: int) -> Any:
    """Add a batch axis to an option of shape (heads, tokens) if the query has none."""
    return np.asarray(option)[None] if ndim == 3 and np.ndim(option) == 2 else option


def _address(array: npt.NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
