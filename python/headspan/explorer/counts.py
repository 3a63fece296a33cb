"""The number of pairs of a long input, counted in Python. The browser counts the pairs that it computes itself."""

from __future__ import annotations

from typing import Any

from headspan.explorer.data import ViewData
from headspan.ops.cost import cost


def counts(data: ViewData, spans: list[float], ramp: float) -> list[list[int]]:
    """Return the pairs of every head and those of its last query.

    The list is empty without rules, when the browser counts, and for patterns with documents, ranges or padding.
    """
    if not data.rules or (data.patterns and (data.limits or data.removed is not None)):
        return []
    heads, queries, dim = data.query.shape
    sizes: dict[str, Any] = {"key_tokens": data.key.shape[1], "num_heads": heads, "head_dim": dim}
    options: dict[str, Any] = {"span": spans, "ramp": ramp, "causal": data.causal, "key_bias": data.bias}
    if data.patterns:
        options["pattern"] = data.patterns if len(data.patterns) > 1 else data.patterns[0]
    head_pairs = [cost(tokens=n, **sizes, **options, **data.limits_of(n)).head_pairs.tolist() for n in (queries, 1)]
    return [list(pairs) for pairs in zip(*head_pairs, strict=True)]
