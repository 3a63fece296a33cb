"""The cost of spans: the pairs of a text and the bytes of a cache."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from headspan.ops.cost import cost
from headspan.ops.spans import farthest

Spans = npt.NDArray[np.float64]
Unit = Literal["pairs", "cache"]


@dataclass(frozen=True)
class Price:
    """The sizes of a model and a text, and the cost of spans for them.

    Spans of heads have the shape (layers, heads). The fit works on spans of key heads, (layers, key heads), since a
    cache keeps for a key head the longest reach of its heads.

    Attributes
    ----------
    unit : {"pairs", "cache"}
        The unit of `amount`, in which a fit counts: the pairs of a text, or the bytes of the caches at its last token.
    causal : bool
        Whether a head reaches earlier tokens only, or as far ahead as back.
    """

    tokens: int
    layers: int
    heads: int
    key_heads: int
    head_dim: int
    ramp: float
    first_tokens: int
    dtype: object
    unit: Unit = "pairs"
    causal: bool = True

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

    def round_down(self, spans: Spans) -> Spans:
        """Return spans rounded down to whole tokens; a head whose cache would keep all tokens gets no limit."""
        rounded = np.floor(spans)
        if self.unit == "pairs":
            return rounded
        return np.where(self._rows(rounded) >= self.tokens, float(self.tokens), rounded)

    def pairs(self, spans: Spans) -> int:
        """Return the number of pairs for spans of key heads."""
        return int(self._pair_counts[self._reached(spans)].sum()) * (self.heads // self.key_heads)

    def cache_bytes(self, spans: Spans) -> int:
        """Return the bytes of the caches of all layers at the last token, for whole spans."""
        rows = np.where(spans >= self.tokens, self.tokens, self._rows(spans))
        return int(rows.sum()) * self._row_bytes

    def amount(self, spans: Spans) -> int:
        """Return the pairs or the bytes for spans of key heads."""
        return self.pairs(spans) if self.unit == "pairs" else self.cache_bytes(self.round_down(spans))

    def smooth(self, spans: Spans) -> tuple[Spans, Spans]:
        """Return the amount of each key head, interpolated between integer spans, and its slope."""
        reached = np.minimum(spans + self.beyond, self.tokens - 1)
        if self.unit == "pairs":
            counts = (self.heads // self.key_heads) * self._pair_counts
        else:
            rows = np.minimum(np.arange(self.tokens) + 1.0 + self.first_tokens, self.tokens)
            counts = self._row_bytes * rows
        slopes = np.append(np.diff(counts), 0.0)
        return np.interp(reached, np.arange(self.tokens), counts), slopes[np.floor(reached).astype(int)]

    def _reached(self, spans: Spans) -> npt.NDArray[np.intp]:
        return np.minimum(farthest(spans, self.ramp), self.tokens - 1).astype(np.intp)

    @cached_property
    def _pair_counts(self) -> npt.NDArray[np.float64]:
        """Pairs of a head that reaches 0, 1, ... tokens - 1 tokens back, and as many ahead if it is not causal."""
        at_distance = self.tokens - np.arange(self.tokens)
        with_sinks = np.minimum(self.first_tokens, at_distance)
        if not self.causal:
            at_distance[1:] *= 2
            with_sinks[1:] *= 2  # the first tokens also see all others
        added = at_distance - with_sinks  # sinks are seen in any case
        added[0] = self.tokens + with_sinks[1:].sum()
        return np.cumsum(added).astype(np.float64)

    def _rows(self, spans: Spans) -> npt.NDArray[np.intp]:
        """Tokens in the cache of each key head, which keeps the first tokens beside the others."""
        return self._reached(spans) + 1 + self.first_tokens

    @cached_property
    def _row_bytes(self) -> int:
        one = cost(tokens=1, num_heads=1, head_dim=self.head_dim, decode=True, dtype=self.dtype)
        assert one.cache_bytes is not None
        return one.cache_bytes

    def scaled(self, spans: Spans, amount: float) -> Spans:
        """Scale every span + 1 by one factor, so that the spans, rounded down, have at most `amount`."""
        low, high = -math.log1p(self.tokens), math.log1p(self.tokens)
        for _ in range(50):
            middle = (low + high) / 2
            if self.smooth(self._times(spans, middle))[0].sum() > amount:
                high = middle
            else:
                low = middle
        return self._times(spans, low)

    def _times(self, spans: Spans, power: float) -> Spans:
        return np.clip((spans + 1) * math.exp(power) - 1, 0, self.tokens)


def cache_price(spans: Spans, heads: int, *, tokens: int, ramp: float, first_tokens: int) -> Price:
    """Return the price of spans of key heads in a cache, in channels of which only the number of tokens matters."""
    layers, key_heads = spans.shape
    sizes = {"tokens": tokens, "layers": layers, "heads": heads, "key_heads": key_heads, "head_dim": 1}
    return Price(**sizes, ramp=ramp, first_tokens=first_tokens, dtype=np.float32, unit="cache")
