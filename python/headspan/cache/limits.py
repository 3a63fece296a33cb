"""The limits of a cache: how far back its heads reach, and which tokens they see at any distance."""

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
    """The spans, patterns and sinks of the heads.

    Attributes
    ----------
    spans : ndarray or None, shape () or (heads,)
        A number is the span of all heads, of which there may then be any multiple of the key heads.
    ramp : float
    pattern : Pattern, list of Pattern or None
        The pattern without the sinks.
    first_tokens : int
    reach : list of int
        How far back queries see each key head, except for global tokens, which see all keys.
    kept : list of int
        The tokens that are seen at any distance.
    """

    def __init__(
        self,
        key_heads: int,
        spans: npt.ArrayLike | None,
        ramp: float,
        pattern: Pattern | Sequence[Pattern] | None,
        first_tokens: int,
        dtype: np.dtype[Any],
    ) -> None:
        self._key_heads, self._dtype = key_heads, dtype
        self.ramp = _check.number("ramp", ramp, at_least=0)
        self.first_tokens = _check.integer("first_tokens", first_tokens, at_least=0)
        self.spans = None if spans is None else self._checked(spans)
        self._heads = self.heads or key_heads
        self.pattern = pattern
        self._patterns = self._with_sinks()
        _check_looks_back(self._patterns)
        self.kept = sorted({token for part in self._patterns for token in part.global_tokens})
        # The first token that the cache may drop. Global tokens after it see more than the kept tokens.
        self._first_let_go = next(i for i in range(len(self.kept) + 1) if self.kept[i : i + 1] != [i])
        self._see_all = [self._global_tokens(head) for head in range(key_heads)]
        self.reach = self._reach_of(self.spans)

    @property
    def heads(self) -> int | None:
        """The number of heads, or None if it does not follow from the spans."""
        return None if self.spans is None or self.spans.ndim == 0 else self.spans.size

    def shortened(self, spans: npt.ArrayLike) -> Self:
        """Return the same limits with other spans, which must not be longer."""
        shorter = self._checked(spans)
        if self.heads is not None:
            if shorter.shape not in ((), (self.heads,)):
                raise ValueError(f"span must be a number or of shape ({self.heads},), not {shorter.shape}")
            shorter = np.broadcast_to(shorter, self.heads)
        if self.spans is not None and (shorter > self.spans).any():
            new, old = np.broadcast_arrays(np.atleast_1d(shorter), self.spans)
            head = int(np.argmax(new > old))
            raise ValueError(
                f"span can only become shorter, because keys out of reach are dropped, but that of head {head} would "
                f"grow from {old[head]:g} to {new[head]:g}"
            )
        return type(self)(self._key_heads, shorter, self.ramp, self.pattern, self.first_tokens, self._dtype)

    def pattern_of(self, count: int) -> Any:
        """Return the pattern of a call with `count` keys."""
        patterns = self._patterns
        if self.kept and self.kept[-1] >= count:
            patterns = [part.with_globals_below(count) for part in patterns]
        return patterns[0] if len(patterns) == 1 else patterns or None

    def kept_back(self, count: int, slack: int) -> list[int]:
        """Return how far back each key head is kept for the last `slack` of `count` tokens, and for later tokens.

        Until the last global token arrives, the cache keeps all tokens that this token will see.
        """
        reaches = []
        for furthest, tokens in zip(self.reach, self._see_all, strict=True):
            is_to_come = bool(tokens) and tokens[-1] >= count - 1 - slack
            reaches.append(max(furthest, tokens[-1] - self._first_let_go) if is_to_come else furthest)
        return reaches

    def oldest_needed(self, head: int, count: int) -> int:
        """Return the oldest token of a key head that token `count` or a later token sees."""
        tokens = self._see_all[head]
        oldest = max(count - self.reach[head], 0)
        return min(oldest, self._first_let_go) if tokens and tokens[-1] >= count else oldest

    def spans_of(
        self, sizes: tuple[int, int, int], span: npt.ArrayLike | None, clip: bool, count: int, first: Sequence[int]
    ) -> Any:
        """Return the spans of a call, and refuse queries that reach tokens which the cache has dropped.

        Parameters
        ----------
        sizes : (int, int, int)
            The batch size, the number of heads, and the number of queries.
        span, clip
            The arguments of the call.
        count : int
            The number of tokens, including the new ones.
        first : sequence of int
            The oldest token that each key head still has.
        """
        batch, heads, tokens = sizes
        spans: Any = self.spans
        reaches = self.reach
        if span is not None:
            is_known = self.heads is not None or len(self._patterns) > 1 or heads == 0 or heads % self._key_heads
            axes = (batch, self._heads if is_known else heads, tokens)
            spans = _check.per_query("span", _check.spans("span", span), axes, with_tokens=True)
            head_spans = np.broadcast_to(spans, axes).max(axis=(0, 2), initial=0)
            if clip and self.spans is not None:
                spans = np.minimum(spans, self.spans[..., None])
                head_spans = np.minimum(head_spans, self.spans)
            reaches = self._reach_of(head_spans)
        for head, (begin, reached) in enumerate(zip(first, reaches, strict=True)):
            queries = [token for token in self._see_all[head] if count - tokens <= token < count]
            if queries and begin > self._first_let_go:
                raise ValueError(
                    f"token {queries[0]} is global and sees all earlier tokens, but key head {head} of the cache only "
                    f"holds tokens after {begin - 1}; with a larger slack, more tokens may be appended before they "
                    "attend"
                )
            oldest = max(count - tokens - reached, 0)
            if begin > oldest:
                raise ValueError(
                    f"the queries reach back to token {oldest}, but key head {head} of the cache only holds tokens "
                    "after "
                    f"{begin - 1}; create the cache with longer spans or a larger slack"
                )
        return spans

    def _checked(self, spans: npt.ArrayLike) -> npt.NDArray[np.float64]:
        array = _check.spans("span", spans)
        if array.ndim > 1 or (array.ndim == 1 and (array.size == 0 or array.size % self._key_heads)):
            raise ValueError(
                f"span must be a number, or hold one number for each head, and a multiple of the {self._key_heads} key "
                f"heads, not shape {array.shape}"
            )
        return array.astype(self._dtype).astype(np.float64)  # rounded as attention rounds them

    def _with_sinks(self) -> list[Pattern]:
        """Return one pattern for all heads or one for each head, with the sinks."""
        pattern = self.pattern
        patterns: list[Any] = list(pattern) if isinstance(pattern, Sequence) else [] if pattern is None else [pattern]
        if any(not isinstance(part, Pattern) for part in patterns) or len(patterns) not in (0, 1, self._heads):
            raise TypeError(f"pattern must be a Pattern, or a list of {self._heads} for the heads, not {pattern!r}")
        if not self.first_tokens:
            return patterns
        sinks = Global(range(self.first_tokens))
        return [part | sinks for part in patterns or [Full()]]

    def _global_tokens(self, key_head: int) -> list[int]:
        """Return the global tokens of a key head that see tokens which the cache may drop."""
        shared = self._heads // self._key_heads
        heads = slice(key_head * shared, (key_head + 1) * shared)
        patterns = self._patterns[heads] if len(self._patterns) > 1 else self._patterns
        tokens = {token for pattern in patterns for token in pattern.global_tokens}
        return sorted(token for token in tokens if token > self._first_let_go)

    def _reach_of(self, spans: npt.NDArray[np.float64] | None) -> list[int]:
        """Return how far back queries see each key head."""
        if spans is None:
            furthest = np.full(self._heads, reach.UNLIMITED)
        else:
            furthest = reach.of_spans(np.broadcast_to(spans, spans.shape or self._heads), self.ramp)
        if self._patterns:
            furthest = np.minimum(furthest, [reach.of_pattern(pattern) for pattern in self._patterns])
        reaches: list[int] = furthest.reshape(self._key_heads, -1).max(axis=1).tolist()
        return reaches


def _check_looks_back(patterns: Sequence[Pattern]) -> None:
    """Raise ValueError for patterns that look ahead, since a cache has no later keys yet."""
    for pattern in patterns:
        for primitive in pattern.primitives():
            if primitive.default_causal is None:
                raise ValueError(
                    f"pattern of a cache must only look back, but {primitive.short_name()} looks both ways, "
                    "and later keys do not exist yet"
                )
    resolve_causal(None, patterns, 1, 1)
