"""Pairs of a long input, counted in Python; of what the browser computes, it counts them itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from headspan.explorer.data import ViewData
from headspan.ops.arguments.sizes import Sizes
from headspan.ops.arguments.visibility import segments
from headspan.ops.cost import cost
from headspan.ops.spans import farthest

Counts = npt.NDArray[np.int64]


def counts(data: ViewData, spans: list[float], ramp: float) -> list[list[int]]:
    """Return the pairs of every head and those of its last query.

    Nothing where the browser knows them without a rule, or where nobody does: of patterns within documents or padding
    pairs would have to be looked at one by one.
    """
    if not data.rules:
        return []
    bounded = bool(data.limits) or data.removed is not None
    if data.patterns:
        return [] if bounded else _of_patterns(data, spans, ramp)
    both = [_of_ranges(data, index, span, ramp) for index, span in enumerate(spans)]
    return [[int(pairs.sum()), int(pairs[-1])] for pairs in both]


def _of_patterns(data: ViewData, spans: list[float], ramp: float) -> list[list[int]]:
    heads, queries, dim = data.query.shape
    sizes: dict[str, Any] = {"key_tokens": data.key.shape[1], "heads": heads, "head_dim": dim, "causal": data.causal}
    pattern = data.patterns if len(data.patterns) > 1 else data.patterns[0]
    both = [
        cost(tokens=rows, span=spans, ramp=ramp, pattern=pattern, **sizes).head_pairs.tolist() for rows in (queries, 1)
    ]
    return [list(pairs) for pairs in zip(*both, strict=True)]


def _of_ranges(data: ViewData, index: int, span: float, ramp: float) -> Counts:
    """Pairs of every query, which sees the keys of one range but for those that were removed."""
    queries, keys = data.query.shape[1], data.key.shape[1]
    position = np.arange(queries) + keys - queries
    reach = int(farthest(span, ramp))
    low, high = position - reach, position + (1 if data.causal else reach + 1)
    if "segment_ids" in data.limits:
        first, last = segments(data.limits["segment_ids"], Sizes(1, 1, queries, keys, 2, data.query.dtype))
        low, high = np.maximum(low, first[0, position]), np.minimum(high, last[0, position])
    begin, end = data.padding
    low, high = np.clip(low, begin, keys), np.clip(high, 0, end)
    left = np.ones(keys, bool)
    if data.removed is not None:
        left = ~data.removed[min(index, len(data.removed) - 1)]
    before = np.concatenate([[0], np.cumsum(left)])
    pairs: Counts = np.maximum(before[np.maximum(high, low)] - before[low], 0)
    return pairs
