"""The cost of spans: the pairs of a text and the bytes of a cache."""

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
    """The sizes of a model and a text, and the cost of spans for them.

    Spans of heads have the shape (layers, heads). The fit works on spans of key heads, (layers, key heads), since a
    cache keeps for a key head the longest reach of its heads.
    """

    tokens: int
    layers: int
    heads: int
    key_heads: int
    head_dim: int
    ramp: float
    first_tokens: int
    dtype: object

    @property
    def full(self) -> Spans:
        """Spans of key heads that cover every pair."""
        return np.full((self.layers, self.key_heads), float(self.tokens))

    @property
    def beyond(self) -> int:
        """The number of whole tokens that a head reaches beyond an integer span."""
        return int(farthest(0, self.ramp))

    def of_heads(self, spans: Spans) -> Spans:
        """Return the spans of all heads, given those of the key heads."""
        return np.repeat(spans, self.heads // self.key_heads, axis=1)

    @cached_property
    def counts(self) -> npt.NDArray[np.float64]:
        """Pairs of a head that reaches 0, 1, ... tokens - 1 tokens back."""
        before = np.arange(self.tokens)
        added = self.tokens - before - np.minimum(self.first_tokens, self.tokens - before)  # sinks are seen in any case
        added[0] = self.tokens + np.minimum(before, self.first_tokens).sum()
        return np.cumsum(added).astype(np.float64)

    def pairs(self, spans: Spans) -> int:
        """Return the number of pairs for spans of key heads."""
        reached = np.minimum(farthest(spans, self.ramp), self.tokens - 1).astype(int)
        return int(self.counts[reached].sum()) * (self.heads // self.key_heads)

    def smooth(self, spans: Spans) -> tuple[Spans, Spans]:
        """Return the pairs of the heads of each key head, interpolated between integer spans, and their slopes."""
        reached = np.minimum(spans + self.beyond, self.tokens - 1)
        shared = self.heads // self.key_heads
        slopes = np.append(np.diff(self.counts), 0.0)
        pairs = np.interp(reached, np.arange(self.tokens), self.counts)
        return shared * pairs, shared * slopes[np.floor(reached).astype(int)]

    def scaled(self, spans: Spans, pairs: float) -> Spans:
        """Scale every span + 1 by one factor, so that the spans, rounded down, have at most `pairs` pairs."""
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
        """Return the bytes of the caches of all layers at the last token."""
        sinks: Pattern | None = Full() | Global(range(self.first_tokens)) if self.first_tokens else None
        sizes: dict[str, Any] = {
            "tokens": self.tokens,
            "num_heads": self.heads,
            "head_dim": self.head_dim,
            "num_key_heads": self.key_heads,
        }
        held = 0
        for layer_spans in self.of_heads(spans):
            counted = cost(**sizes, decode=True, dtype=self.dtype, span=layer_spans, ramp=self.ramp, pattern=sinks)
            assert counted.cache_bytes is not None
            held += counted.cache_bytes
        return held
