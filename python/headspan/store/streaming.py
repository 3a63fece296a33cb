"""Attention over keys that come a piece at a time, merged on the way."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan._check import Array
from headspan.ops import reach
from headspan.ops.attention import attention
from headspan.ops.merge import merge_attention
from headspan.store.records import Sizes

_OF_SCORES = ("span", "ramp", "scale", "temperature", "alibi_slopes", "softcap", "query_positions")
_ONCE = ("sinks", "memory_key", "memory_value")  # in the softmax once, however many pieces there are
_BYTES, _PARTS = (
    1 << 22,
    64,
)  # results are merged when they are as long, or as many: each costs as much as a small piece


class Streaming:
    """The queries of a call, and what has come of the keys so far.

    Log-sum-exps of pieces make weights, so that results are merged in float64 whatever the type: the sum over thousands
    of pieces is then as exact as that over one.
    """

    def __init__(self, sizes: Sizes, query: object, options: Mapping[str, Any]) -> None:
        for name in options:
            if name not in _OF_SCORES + _ONCE:
                raise TypeError(f"{name!r} is none of the options of attend: {', '.join(_OF_SCORES + _ONCE)}")
        self._options = {name: its for name, its in options.items() if its is not None}
        self._query = _checked_query(query, sizes)
        self._dtype = sizes.arithmetic
        # A key that is removed stands for none: what every query sees anyway is counted here, and options are checked.
        nothing = [np.zeros((1, sizes.key_heads, 1, dim), self._dtype) for dim in (sizes.head_dim, sizes.value_dim)]
        if self._query.ndim == 3:
            nothing = [array[0] for array in nothing]
        self._parts: list[tuple[Array, Array]] = []
        self._keep(*self._attention(nothing, key_bias=[-np.inf], **self._options))
        self._each = {name: its for name, its in self._options.items() if name not in _ONCE}
        self._positions: npt.NDArray[Any] | None = None

    def in_reach(self, count: int) -> tuple[int, int]:
        """Return the first of so many rows that a span reaches, and the one after the last."""
        if not {"span", "alibi_slopes"} & self._each.keys():
            return 0, count
        tokens = self._query.shape[-2]
        self._positions = np.asarray(self._each.get("query_positions", np.arange(tokens) + count - tokens))
        self._each["query_positions"] = self._positions
        if "span" not in self._each or not self._positions.size:
            return 0, count
        longest = np.array([np.max(self._each["span"])], np.float64)
        furthest = int(reach.of_spans(longest, self._each.get("ramp", 32))[0])
        first = math.floor(self._positions.min()) - furthest
        last = math.ceil(self._positions.max()) + furthest + 1
        return min(max(first, 0), count), max(min(last, count), 0)

    def add(self, first: int, key: npt.NDArray[Any], value: npt.NDArray[Any]) -> None:
        """Attend to rows from number ``first`` on, (key heads, rows, dims)."""
        places = {} if self._positions is None else {"key_positions": np.arange(first, first + key.shape[1])}
        rows = [array.astype(self._dtype, copy=False) for array in (key, value)]
        if self._query.ndim == 4:
            rows = [array[None] for array in rows]
        self._keep(*self._attention(rows, **places, **self._each))

    def result(self) -> tuple[Array, Array]:
        """Return what the queries have seen, and the log-sum-exp."""
        self._merge()
        out, lse = self._parts[0]
        return out.astype(self._dtype), lse.astype(self._dtype)

    def _attention(self, rows: Sequence[Array], **options: Any) -> tuple[Array, Array]:
        return attention(self._query, *rows, causal=False, return_lse=True, **options)

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
