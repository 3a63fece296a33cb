"""How far back the heads of a cache look, and what they see at any distance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan.ops import reach
from headspan.patterns import Full, Global
from headspan.patterns.base import Pattern
from headspan.patterns.causality import resolve_causal


class Limits:
    """Spans, patterns and sinks of the heads.

    Attributes
    ----------
    spans : ndarray or None, shape (heads,)
    ramp : float
    given_pattern : Pattern, list of Pattern or None
        Without the sinks.
    sink_tokens : int
    reach : list of int
        How far back each key head is seen, but by global tokens, which see all.
    kept : list of int
        Tokens that are seen at any distance.
    """

    def __init__(
        self,
        key_heads: int,
        spans: npt.ArrayLike | None,
        ramp: float,
        pattern: Pattern | Sequence[Pattern] | None,
        sink_tokens: int,
        dtype: np.dtype[Any],
    ) -> None:
        self._key_heads, self._dtype = key_heads, dtype
        self.ramp = _check.number("ramp", ramp, at_least=0)
        self.sink_tokens = _check.integer("sink_tokens", sink_tokens, at_least=0)
        self.spans = None if spans is None else self._checked(spans)
        self._heads = key_heads if self.spans is None else self.spans.size
        self.given_pattern = pattern
        self._patterns = self._with_sinks()
        _check_looks_back(self._patterns)
        self.kept = sorted({token for part in self._patterns for token in part.global_tokens})
        # The first token that is not kept for good. Global tokens behind it see more than what is kept.
        self._first_let_go = next(i for i in range(len(self.kept) + 1) if self.kept[i : i + 1] != [i])
        self._see_all = [self._global_tokens(head) for head in range(key_heads)]
        self.reach = self._reach_of(self.spans)

    def shortened(self, spans: npt.ArrayLike) -> Self:
        """Return these limits with other spans, which may not be longer."""
        shorter = self._checked(spans)
        if shorter.size != self._heads:
            raise ValueError(f"spans must be of shape ({self._heads},), not {shorter.shape}")
        if self.spans is not None and (shorter > self.spans).any():
            head = int(np.argmax(shorter > self.spans))
            raise ValueError(
                f"spans may only become shorter, since what they do not reach is gone, but that of head {head} would "
                f"grow from {self.spans[head]:g} to {shorter[head]:g}"
            )
        return type(self)(self._key_heads, shorter, self.ramp, self.given_pattern, self.sink_tokens, self._dtype)

    def pattern_of(self, count: int) -> Any:
        """Return the pattern of a call with so many keys."""
        patterns = self._patterns
        if self.kept and self.kept[-1] >= count:
            patterns = [part._among(count) for part in patterns]
        return patterns[0] if len(patterns) == 1 else patterns or None

    def kept_back(self, count: int, slack: int) -> list[int]:
        """Return how far back each key head is kept for the last `slack` tokens of so many, and for those to come.

        All that a global token sees, which is to come, has to be there until it has come.
        """
        reaches = []
        for of_others, tokens in zip(self.reach, self._see_all, strict=True):
            is_to_come = bool(tokens) and tokens[-1] >= count - 1 - slack
            reaches.append(max(of_others, tokens[-1] - self._first_let_go) if is_to_come else of_others)
        return reaches

    def oldest_needed(self, head: int, count: int) -> int:
        """Return the oldest token of a key head that those from token `count` on see."""
        tokens = self._see_all[head]
        oldest = max(count - self.reach[head], 0)
        return min(oldest, self._first_let_go) if tokens and tokens[-1] >= count else oldest

    def spans_of(
        self, sizes: tuple[int, int], span: npt.ArrayLike | None, clip: bool, count: int, first: Sequence[int]
    ) -> Any:
        """Return the spans of a call, and refuse queries that reach what is no longer there.

        Parameters
        ----------
        sizes : (int, int)
            Batch items and queries.
        span, clip
            As given for these queries.
        count : int
            Tokens, new ones among them.
        first : sequence of int
            The oldest token that each key head still has.
        """
        batch, tokens = sizes
        spans: Any = self.spans
        reaches = self.reach
        if span is not None:
            axes = (batch, self._heads, tokens)
            spans = _check.per_query("span", _check.as_array("span", span), axes, with_tokens=True)
            of_head = np.broadcast_to(spans, axes).max(axis=(0, 2), initial=0)
            if clip and self.spans is not None:
                spans = np.minimum(spans, self.spans[:, None])
                of_head = np.minimum(of_head, self.spans)
            reaches = self._reach_of(of_head)
        for head, (there, its) in enumerate(zip(first, reaches, strict=True)):
            seeing_all = [token for token in self._see_all[head] if count - tokens <= token < count]
            if seeing_all and there > self._first_let_go:
                raise ValueError(
                    f"token {seeing_all[0]} is global and sees all tokens before it, but of key head {head} the cache "
                    f"keeps what is after token {there - 1}; slack= more tokens may be appended before they attend"
                )
            oldest = max(count - tokens - its, 0)
            if there > oldest:
                raise ValueError(
                    f"the queries reach back to token {oldest}, but of key head {head} the cache keeps what is after "
                    f"token {there - 1}: the longest span that it was made for decides, and slack= more tokens"
                )
        return spans

    def _checked(self, spans: npt.ArrayLike) -> npt.NDArray[np.float64]:
        array = _check.as_array("spans", spans)
        low, _ = _check.limits("spans", array)
        if low < 0:
            raise ValueError(f"spans must not be negative, but hold {low:g}")
        array = np.atleast_1d(array)
        if array.ndim != 1 or array.size % self._key_heads:
            raise ValueError(
                f"spans must be one for each head, as many as the {self._key_heads} key heads or a multiple of them, "
                f"not of shape {array.shape}"
            )
        return array.astype(self._dtype).astype(np.float64)  # as attention takes them

    def _with_sinks(self) -> list[Pattern]:
        """Return the pattern of all heads, or that of each, with the sinks."""
        pattern = self.given_pattern
        given = [] if pattern is None else [pattern] if isinstance(pattern, Pattern) else list(pattern)
        if any(not isinstance(its, Pattern) for its in given) or len(given) not in (0, 1, self._heads):
            raise TypeError(f"pattern must be a Pattern, or a list of {self._heads} for the heads, not {pattern!r}")
        if not self.sink_tokens:
            return given
        sinks = Global(range(self.sink_tokens))
        return [its | sinks for its in given or [Full()]]

    def _global_tokens(self, key_head: int) -> list[int]:
        """Return the global tokens of the heads of a key head that see tokens which are not kept for good."""
        shared = self._heads // self._key_heads
        heads = slice(key_head * shared, (key_head + 1) * shared)
        patterns = self._patterns[heads] if len(self._patterns) > 1 else self._patterns
        tokens = {token for pattern in patterns for token in pattern.global_tokens}
        return sorted(token for token in tokens if token > self._first_let_go)

    def _reach_of(self, spans: npt.NDArray[np.float64] | None) -> list[int]:
        """How far back each key head is seen."""
        furthest = np.full(self._heads, reach.UNLIMITED) if spans is None else reach.of_spans(spans, self.ramp)
        if self._patterns:
            furthest = np.minimum(furthest, [reach.of_pattern(its) for its in self._patterns])
        of_key_head: list[int] = furthest.reshape(self._key_heads, -1).max(axis=1).tolist()
        return of_key_head


def _check_looks_back(patterns: Sequence[Pattern]) -> None:
    """Raise ValueError for patterns that show later keys, which a cache does not have yet."""
    for pattern in patterns:
        for primitive in pattern._primitives():
            if primitive._causal_by_nature is None:
                raise ValueError(
                    f"pattern of a cache must look back only, but {primitive.short_name()} looks both ways: "
                    "later keys are not there yet"
                )
    resolve_causal(None, patterns, 1, 1)
