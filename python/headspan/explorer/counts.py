"""The number of pairs of a long input, counted in Python. The browser counts the pairs that it computes itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from headspan.explorer.data import Rule, ViewData
from headspan.ops.cost import cost


def counts(data: ViewData, spans: list[float], ramp: float) -> list[list[int] | None]:
    """Return the pairs of every head and those of its last query.

    A head has None if only causality and its span limit its pairs, perhaps except those of some tokens, which the
    browser counts, and if its pattern has documents, ranges or padding. The list is empty if all heads have None.
    """
    numbers: list[list[int] | None] = [None] * len(spans)
    for place, rule in enumerate(data.rules):
        if rule.is_open or (rule.pattern is not None and (rule.limits or rule.removed is not None)):
            continue
        indices = [index for index, of in enumerate(data.rule_of) if of == place]
        for index, pairs in zip(indices, _pairs(data, rule, [spans[index] for index in indices], ramp), strict=True):
            numbers[index] = pairs
    return numbers if any(numbers) else []


def _pairs(data: ViewData, rule: Rule, spans: list[float], ramp: float) -> list[list[int]]:
    queries, keys, dim = data.sizes
    sizes: dict[str, Any] = {"key_tokens": keys, "num_heads": len(spans), "head_dim": dim}
    options: dict[str, Any] = {"span": spans, "ramp": ramp, "causal": rule.causal, "pattern": rule.pattern}
    if rule.removed is not None:
        options["key_bias"] = np.where(rule.removed, -np.inf, 0.0)
    head_pairs = [cost(tokens=n, **sizes, **options, **rule.limits_of(n)).head_pairs.tolist() for n in (queries, 1)]
    return [list(pairs) for pairs in zip(*head_pairs, strict=True)]
