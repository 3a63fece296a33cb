"""What spans cost: the pairs of a text, and the bytes of a cache."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from headspan.ops.cost import cost
from headspan.ops.spans import farthest
from headspan.patterns import Full, Global, Pattern

Spans = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Price:
    """Sizes of a model and a text, and what spans cost in them.

    Spans are (layers, heads); what is fitted has one for each key head, (layers, key heads), since a cache keeps for a
    key head what the furthest of its heads reaches.
    """

    tokens: int
    layers: int
    heads: int
    key_heads: int
    head_dim: int
    ramp: float
    sink_tokens: int
    dtype: object

    @property
    def full(self) -> Spans:
        """Spans of key heads within which lies every pair."""
        return np.full((self.layers, self.key_heads), float(self.tokens))

    @property
    def beyond(self) -> int:
        """How much farther than its span, a whole number, a head reaches."""
        return max(math.ceil(self.ramp) - 1, 0)

    def of_heads(self, spans: Spans) -> Spans:
        """Return the spans of all heads, for those of key heads."""
        return np.repeat(spans, self.heads // self.key_heads, axis=1)

    @cached_property
    def counts(self) -> npt.NDArray[np.float64]:
        """Pairs of a head that reaches 0, 1, ... tokens - 1 tokens back."""
        before = np.arange(self.tokens)
        more = self.tokens - before - np.minimum(self.sink_tokens, self.tokens - before)  # beside sinks, seen anyway
        more[0] = self.tokens + np.minimum(before, self.sink_tokens).sum()
        return np.cumsum(more).astype(np.float64)

    def pairs(self, spans: Spans) -> int:
        """Count the pairs of spans of key heads."""
        reached = np.minimum(farthest(spans, self.ramp), self.tokens - 1).astype(int)
        return int(self.counts[reached].sum()) * (self.heads // self.key_heads)

    def smooth(self, spans: Spans) -> tuple[Spans, Spans]:
        """Return the pairs of each key head's heads, with spans in between counted in between; and their slope."""
        reached = np.minimum(spans + self.beyond, self.tokens - 1)
        shared = self.heads // self.key_heads
        slopes = np.append(np.diff(self.counts), 0.0)
        pairs = np.interp(reached, np.arange(self.tokens), self.counts)
        return shared * pairs, shared * slopes[np.floor(reached).astype(int)]

    def scaled(self, spans: Spans, pairs: float) -> Spans:
        """Return spans, each plus 1, times one number, so that they have so many pairs and, rounded down, no more."""
        low, high = -math.log1p(self.tokens), math.log1p(self.tokens)
        for _ in range(50):
            middle = (low + high) / 2
            if self.smooth(self._times(spans, middle))[0].sum() > pairs:
                high = middle
            else:
                low = middle
        return self._times(spans, low)

    def _times(self, spans: Spans, power: float) -> Spans:
        return np.clip((spans + 1) * math.exp(power) - 1, 0, self.tokens)

    def cache_bytes(self, spans: Spans) -> int:
        """Return what caches hold of all layers at the last token."""
        sinks: Pattern | None = Full() | Global(range(self.sink_tokens)) if self.sink_tokens else None
        sizes: dict[str, Any] = {
            "tokens": self.tokens,
            "heads": self.heads,
            "head_dim": self.head_dim,
            "key_heads": self.key_heads,
        }
        held = 0
        for its in self.of_heads(spans):
            counted = cost(**sizes, decode=True, dtype=self.dtype, span=its, ramp=self.ramp, pattern=sinks)
            assert counted.cache_bytes is not None
            held += counted.cache_bytes
        return held
