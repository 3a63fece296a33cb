"""One span for all heads or for each layer, the baselines that fitted spans have to beat."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from headspan.fitting.search.measured import Aim, Measured
from headspan.fitting.search.price import Price, Spans


def ladder(price: Price, *, steps: int = 1) -> list[float]:
    """Return spans from all tokens down to 0 whose reaches halve in every `steps` steps."""
    lengths = [
        round((price.tokens - 1) / 2 ** (rung / steps)) for rung in range(1, steps * price.tokens.bit_length() + 1)
    ]
    spans = {max(length - price.beyond, 0) for length in lengths} | {0}
    return [float(price.tokens), *map(float, sorted(spans, reverse=True))]


def uniform(price: Price, span: float) -> Spans:
    """Return one span for all key heads."""
    return np.full_like(price.full, span)


def largest_within(price: Price, amount: float) -> float:
    """Return the largest integer span with at most `amount` in all heads."""
    low, high = 0, price.tokens  # a span of 0 must be within the bound
    while low < high:
        middle = (low + high + 1) // 2
        if price.amount(uniform(price, middle)) <= amount:
            low = middle
        else:
            high = middle - 1
    return float(low)


def one_span(price: Price, spans: Spans) -> Spans:
    """Return the largest single span for all heads with at most the amount of `spans`."""
    return price.round_down(uniform(price, largest_within(price, price.amount(spans))))


def one_span_per_layer(price: Price, spans: Spans) -> Spans:
    """Return the largest single span for each layer with at most the amount of the layer."""
    layer_price = replace(price, layers=1)
    return np.concatenate([one_span(layer_price, layer) for layer in spans[:, None]])


def measure(measured: Measured, aim: Aim) -> None:
    """Measure one span for all heads at every rung of a ladder, and at the span that fits the aim best."""
    price = measured.price
    rungs = ladder(price)
    for span in rungs:
        measured(uniform(price, span))
    if aim.has_budget:
        measured(uniform(price, largest_within(price, aim.amount)))
        return
    good = [measured(uniform(price, span)) <= aim.loss for span in rungs]
    last = good.index(False) - 1 if False in good else len(rungs) - 1
    low, high = (rungs[last + 1], rungs[last]) if last + 1 < len(rungs) else (0.0, 0.0)
    while high - low > max(1.0, 0.01 * high):
        middle = float(round((low + high) / 2))
        low, high = (low, middle) if measured(uniform(price, middle)) <= aim.loss else (middle, high)
