"""Halos of tokens distributed over ranks: the keys of other ranks that a slice of the tokens needs, for each head.

A slice is computed with the same order of sums as all tokens at once. The core takes groups of queries from the first
token on, and the keys of a group start where its first query begins to see, so slices are extended to such groups.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headspan import _check, _compiled
from headspan.ops import reach
from headspan.ops.arguments.options import DEFAULTS, ROWS, options_in
from headspan.ops.arguments.rows import Group, In
from headspan.patterns.base import Pattern, Primitive
from headspan.patterns.causality import resolve_causal
from headspan.patterns.per_head import per_head
from headspan.patterns.primitives import Blockwise, Fixed, Full, Strided, Window

_Integers = npt.NDArray[np.int64]

_OPTIONS = options_in(In.HALO)
_PATTERNS = (Full, Window, Strided, Fixed, Blockwise)
_GROUP = _compiled.group_queries  # that the core computes together


class Layout(NamedTuple):
    """The attention of all ranks together, of which each rank computes a slice.

    Attributes
    ----------
    tokens, batch, heads, key_heads : int
        Sizes over all ranks.
    dtype : dtype
        Type of the computation, and thus of the spans.
    patterns : list of Pattern
        As returned by `per_head`.
    causal : bool
    ramp : float
    """

    tokens: int
    batch: int
    heads: int
    key_heads: int
    dtype: np.dtype[Any]
    patterns: list[Pattern]
    causal: bool
    ramp: float

    @classmethod
    def of(
        cls, options: Mapping[str, Any], *, tokens: int, batch: int, heads: int, key_heads: int, dtype: np.dtype[Any]
    ) -> Layout:
        """Check the options, which must be computable from a slice and its halo, and return the attention."""
        for name, value in options.items():
            if ROWS[name].group is Group.DROPOUT and not options.get("dropout"):
                continue
            if name not in _OPTIONS and value is not None:
                raise ValueError(
                    f"{name} has no halo; omit it if tokens are distributed over ranks, or gather all tokens for "
                    "attention"
                )
        if heads % key_heads:
            raise ValueError(f"num_heads must be a multiple of num_key_heads, not {heads} and {key_heads}")
        patterns = per_head(options.get("pattern"), batch, heads, tokens, tokens)
        for primitive in (part for pattern in patterns for part in pattern.primitives()):
            if not isinstance(primitive, _PATTERNS):
                can = ", ".join(kind.__name__ for kind in _PATTERNS)
                raise ValueError(f"pattern must consist of {can}, not {type(primitive).__name__}, which has no halo")
        causal = resolve_causal(options.get("causal"), patterns, tokens, tokens)
        ramp = _check.number("ramp", options.get("ramp", DEFAULTS["ramp"]), at_least=0)
        return cls(tokens, batch, heads, key_heads, dtype, patterns, causal, ramp)

    def window(self, span: object, start: int, stop: int) -> _Integers:
        """Return, for each key head, the first key that queries from start to stop need and the one after the last.

        Parameters
        ----------
        span : array_like or None
            The span option. Spans per token are those of these queries.
        start, stop : int

        Returns
        -------
        ndarray of int64, shape (key_heads, 2)
        """
        if start == stop:
            return np.full((self.key_heads, 2), start)
        behind, ahead = self._reach(False), self._reach(True)
        first = last = np.array([start, stop - 1])  # the queries that see farthest are among these
        if span is not None:
            axes = (self.batch, self.heads, stop - start)
            spans = _check.per_query("span", _check.spans("span", span), axes)
            furthest = reach.of_spans(spans.astype(self.dtype).astype(np.float64), self.ramp)
            behind, ahead = np.minimum(behind, furthest), np.minimum(ahead, furthest)
            if furthest.shape[-1] > 1:
                first = last = np.arange(start, stop)
        first, last = first - behind, last + 1 + ahead
        ends = [
            np.broadcast_to(extreme(bounds, axis=(0, 2)), (self.heads,)).reshape(self.key_heads, -1)
            for bounds, extreme in ((first, np.min), (last, np.max))
        ]
        return np.stack([ends[0].min(axis=1), ends[1].max(axis=1)], axis=1).clip(0, self.tokens)

    def _reach(self, ahead: bool) -> _Integers:
        """Return how far queries see with causality and patterns, of shape (batch or 1, heads or 1, 1)."""
        if ahead and self.causal:
            return np.array([[[0]]])
        if not self.patterns:
            return np.array([[[reach.UNLIMITED]]])
        distances = np.array([reach.of_pattern(pattern, ahead=ahead) for pattern in self.patterns])
        return distances.reshape(-1, self.heads if len(self.patterns) > 1 else 1, 1)

    def neighbours(self, start: int, stop: int) -> tuple[int, int]:
        """Return the range of queries that may share a group with a query from start to stop."""
        if start == stop:
            return start, stop
        most, _ = self._groups()
        return self._aligned(start, max(0, start - most + 1)), self._aligned(stop, min(self.tokens, stop + most - 1))

    def _aligned(self, end: int, otherwise: int) -> int:
        return end if end == self.tokens or end % self._groups()[1] == 0 else otherwise

    def stretch(self, first: int, last: int) -> tuple[int, int]:
        """Return the range of tokens to lay out so that those from first to last are computed in the same order."""
        most, period = self._groups()
        # The range must be longer than a group; the core groups shorter inputs differently.
        first = min(first, max(last - most - 1, 0)) // period * period
        return first, min(self.tokens, max(-(-last // period), 1) * period)

    def _groups(self) -> tuple[int, int]:
        """Return the largest distance of queries in a group, and the period in tokens after which grouping restarts."""
        steps, periods = [1], [_GROUP]
        for primitive in (part for pattern in self.patterns for part in pattern.primitives()):
            step, period = _groups_of(primitive)
            steps.append(step)
            periods.append(period)
        return _GROUP * max(steps), math.lcm(*periods)


def _groups_of(primitive: Primitive) -> tuple[int, int]:
    """Return the step between queries of a group, and the period in tokens after which grouping restarts."""
    if isinstance(primitive, Window):
        return primitive.dilation, _GROUP * primitive.dilation
    if isinstance(primitive, Strided):
        return primitive.stride, _GROUP * primitive.stride
    if isinstance(primitive, Fixed):
        return 1, primitive.block_size
    if isinstance(primitive, Blockwise):  # a group holds as many blocks as fit
        return 1, primitive.block_size * max(_GROUP // primitive.block_size, 1)
    return 1, 1


def starts_of(lengths: Sequence[int]) -> _Integers:
    """Return the start of the slice of each rank, followed by the end of the last slice."""
    return np.cumsum([0, *lengths])


def halo(windows: _Integers, starts: _Integers, owner: int, other: int) -> list[tuple[int, int, int]]:
    """Return the keys that rank `owner` sends to rank `other`: key head, first key and the one after the last.

    `windows` holds the windows of all ranks, of shape (ranks, key_heads, 2).
    """
    if owner == other:
        return []
    first = np.maximum(windows[other, :, 0], starts[owner])
    last = np.minimum(windows[other, :, 1], starts[owner + 1])
    return [(int(head), int(first[head]), int(last[head])) for head in np.flatnonzero(first < last)]


def sent_rows(windows: _Integers, starts: _Integers) -> int:
    """Count the rows of keys that all ranks send."""
    ranks = range(len(windows))
    pairs = itertools.product(ranks, ranks)
    return sum(last - first for owner, other in pairs for _, first, last in halo(windows, starts, owner, other))
