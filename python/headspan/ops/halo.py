"""Tokens that lie over ranks: which keys of others a slice of them needs, head by head, its halo.

And how a slice is computed as if it were the whole: in sums of the same order, since the core takes groups of queries
from the first token on, and cuts the keys of a group where its first query begins to see.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan.ops import reach
from headspan.ops.arguments.options import DEFAULTS
from headspan.patterns.base import Pattern, Primitive
from headspan.patterns.causality import resolve_causal
from headspan.patterns.per_head import per_head
from headspan.patterns.primitives import Blockwise, Fixed, Full, Local, Strided

_Integers = npt.NDArray[np.int64]

# What a slice and its halo decide.
OPTIONS = frozenset(
    {
        *("span", "ramp", "causal", "include_self", "scale", "temperature", "alibi_slopes", "softcap", "sinks"),
        *("memory_key", "memory_value", "pattern", "distance_bias", "distance_buckets"),
    }
)
_PATTERNS = (Full, Local, Strided, Fixed, Blockwise)
_GROUP = 64  # queries that the core computes together


class Whole(NamedTuple):
    """The attention of which each rank has a slice.

    Attributes
    ----------
    tokens, batch, heads, key_heads : int
        Of all ranks together.
    dtype : dtype
        What is computed in, and so that of the spans.
    patterns : list of Pattern
        As `per_head` gives them.
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
    ) -> Whole:
        """Return it, or refuse what a slice and its halo do not decide."""
        for name, given in options.items():
            if name in ("dropout", "seed") and not options.get("dropout"):
                continue
            if name not in OPTIONS and given is not None:
                raise ValueError(
                    f"{name} has no halo; where tokens lie over ranks leave it out, or gather all tokens for attention"
                )
        if heads % key_heads:
            raise ValueError(f"heads must be a multiple of key_heads, not {heads} and {key_heads}")
        patterns = per_head(options.get("pattern"), batch, heads, tokens, tokens)
        for primitive in (part for its in patterns for part in its._primitives()):
            if not isinstance(primitive, _PATTERNS):
                can = ", ".join(kind.__name__ for kind in _PATTERNS)
                raise ValueError(f"pattern has {type(primitive).__name__}, which has no halo, as have {can}")
        causal = resolve_causal(options.get("causal"), patterns, tokens, tokens)
        ramp = _check.number("ramp", options.get("ramp", DEFAULTS["ramp"]), at_least=0)
        return cls(tokens, batch, heads, key_heads, dtype, patterns, causal, ramp)

    def window(self, span: object, start: int, stop: int) -> _Integers:
        """Return the keys that queries from start to stop need: of each key head the first and the one after the last.

        Parameters
        ----------
        span : array_like or None
            Of the attention; one that differs between tokens is that of these queries.
        start, stop : int

        Returns
        -------
        ndarray of int64, shape (key_heads, 2)
        """
        if start == stop:
            return np.full((self.key_heads, 2), start)
        behind, ahead = self._reach(False), self._reach(True)
        first = last = np.array([start, stop - 1])  # queries, among which those are that see farthest
        if span is not None:
            axes = (self.batch, self.heads, stop - start)
            spans = _check.per_query("span", _check.as_array("span", span), axes)
            if _check.limits("span", spans)[0] < 0:
                raise ValueError(f"span must not be negative, but holds {spans.min():g}")
            furthest = reach.of_spans(spans.astype(self.dtype).astype(np.float64), self.ramp)
            behind, ahead = np.minimum(behind, furthest), np.minimum(ahead, furthest)
            if furthest.shape[-1] > 1:
                first = last = np.arange(start, stop)
        first, last = first - behind, last + 1 + ahead
        ends = [
            np.broadcast_to(least(its, axis=(0, 2)), (self.heads,)).reshape(self.key_heads, -1)
            for its, least in ((first, np.min), (last, np.max))
        ]
        return np.stack([ends[0].min(axis=1), ends[1].max(axis=1)], axis=1).clip(0, self.tokens)

    def _reach(self, ahead: bool) -> _Integers:
        """Return how far causality and patterns let queries see, of shape (batch or 1, heads or 1, 1)."""
        if ahead and self.causal:
            return np.array([[[0]]])
        if not self.patterns:
            return np.array([[[reach.UNLIMITED]]])
        of_each = np.array([reach.of_pattern(its, ahead=ahead) for its in self.patterns])
        return of_each.reshape(-1, self.heads if len(self.patterns) > 1 else 1, 1)

    def neighbours(self, start: int, stop: int) -> tuple[int, int]:
        """Return which queries share a group with one from start to stop: the first and the one after the last."""
        if start == stop:
            return start, stop
        most, _ = self._groups()
        return self._aligned(start, max(0, start - most + 1)), self._aligned(stop, min(self.tokens, stop + most - 1))

    def _aligned(self, end: int, otherwise: int) -> int:
        return end if end == self.tokens or end % self._groups()[1] == 0 else otherwise

    def stretch(self, first: int, last: int) -> tuple[int, int]:
        """Return the tokens that have to be laid out for those from first to last to be computed in the same order."""
        most, period = self._groups()
        # Longer than a group, whose queries would otherwise be taken in another way.
        first = min(first, max(last - most - 1, 0)) // period * period
        return first, min(self.tokens, max(-(-last // period), 1) * period)

    def _groups(self) -> tuple[int, int]:
        """Return how far apart the queries of a group may lie, and after how many tokens groups begin anew."""
        steps, periods = [1], [_GROUP]
        for primitive in (part for its in self.patterns for part in its._primitives()):
            step, period = _groups_of(primitive)
            steps.append(step)
            periods.append(period)
        return _GROUP * max(steps), math.lcm(*periods)


def _groups_of(primitive: Primitive) -> tuple[int, int]:
    """Return the step from one query of a group to the next, and after how many tokens groups begin anew."""
    if isinstance(primitive, Local):
        return primitive.dilation, _GROUP * primitive.dilation
    if isinstance(primitive, Strided):
        return primitive.stride, _GROUP * primitive.stride
    if isinstance(primitive, Fixed):
        return 1, primitive.block_size
    if isinstance(primitive, Blockwise):  # as many as fit share a group
        return 1, primitive.block_size * max(_GROUP // primitive.block_size, 1)
    return 1, 1


def starts_of(lengths: Sequence[int]) -> _Integers:
    """Return where the slice of each rank begins, and in the end where the last one ends."""
    return np.cumsum([0, *lengths])


def halo(windows: _Integers, starts: _Integers, owner: int, other: int) -> list[tuple[int, int, int]]:
    """Return what of its keys a rank gives to another one: key heads with the first key and the one after the last.

    `windows` are those of all ranks, of shape (ranks, key_heads, 2).
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
