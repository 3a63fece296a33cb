"""Fit spans by measured steps, each the one with the least loss for each pair or byte saved."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from headspan.fitting.search.measured import Aim, Measured
from headspan.fitting.search.price import Spans
from headspan.fitting.search.windows import ladder

STEPS = 2  # rungs of the ladder for a factor of 2
_NEGLIGIBLE = 1e-3  # negligible share of a head's attention mass, or of a loss
_LAZY = 1.25  # a step that costs up to this factor more than expected is taken without comparing it with others

Profile = npt.NDArray[np.float64]
Unit = tuple[int, int]


def by_steps(measured: Measured, aim: Aim, profile: Profile | None) -> None:
    """Shorten one key head at a time along a ladder of spans, and measure, until the aim is reached.

    The steps of a head are the corners of the lower hull of its losses, measured at each rung with all other heads at
    their start. The steps are taken in the order of loss for each pair or byte saved. Before a step is taken, it is
    measured with the current spans of the other heads. If it has become more expensive, it is queued again (lazy
    greedy).

    References
    ----------
    Minoux, "Accelerated greedy algorithms for maximizing submodular set functions", 1978.
    """
    price = measured.price
    rungs = np.array(ladder(price, steps=STEPS))
    spans = _start(measured, rungs, profile)
    loss = measured(spans)
    heap: list[tuple[float, Unit, float]] = []
    queues: dict[Unit, Iterator[tuple[float, float]]] = {}

    def next_of(unit: Unit) -> None:
        step = next(queues[unit], None)
        if step is not None:
            heapq.heappush(heap, (step[0], unit, step[1]))

    for unit in np.ndindex(*spans.shape):
        queues[unit] = iter(_steps_of(measured, aim, spans, unit, rungs))
    for unit in queues:
        next_of(unit)
    while heap and not (aim.has_budget and price.amount(spans) <= aim.amount):
        expected, unit, span = heapq.heappop(heap)
        candidate = spans.copy()
        candidate[unit] = span
        new_loss = measured(candidate)
        saved = price.amount(spans) - price.amount(candidate)
        cost = (new_loss - loss) / saved
        if heap and cost > max(_LAZY * expected, heap[0][0]):
            heapq.heappush(heap, (cost, unit, span))
        elif new_loss <= aim.loss:
            spans, loss = candidate, new_loss
            next_of(unit)


def _start(measured: Measured, rungs: Profile, profile: Profile | None) -> Spans:
    """Return spans to start from, which leave out almost no mass, or longer ones if the loss requires them."""
    price = measured.price
    if profile is None:
        return price.full
    grouped = profile.reshape(*price.full.shape, -1, price.tokens)
    within = grouped.cumsum(axis=-1) / np.maximum(grouped.sum(axis=-1, keepdims=True), 1e-300)
    rung_mass = within.min(axis=-2)[..., np.minimum(rungs.astype(int), price.tokens - 1)]  # least of heads sharing keys
    lowest = (rung_mass >= 1 - _NEGLIGIBLE).sum(axis=-1).clip(1) - 1
    for up in range(0, 2 * STEPS + 1, STEPS):
        spans: Spans = rungs[np.maximum(lowest - up, 0)]
        if measured(spans) <= measured(price.full) * (1 + _NEGLIGIBLE):
            return spans
    return price.full


def _steps_of(measured: Measured, aim: Aim, spans: Spans, unit: Unit, rungs: Profile) -> list[tuple[float, float]]:
    """Return the steps of one head alone, each with its loss for each pair or byte saved and the span after it."""
    price = measured.price
    corners: list[tuple[float, float, float]] = [(price.amount(spans), measured(spans), float(spans[unit]))]
    for rung in rungs[rungs < spans[unit]]:
        candidate = spans.copy()
        candidate[unit] = rung
        loss = measured(candidate)
        if loss > aim.loss:
            break
        point = (price.amount(candidate), loss, float(rung))
        while len(corners) > 1 and _slope(corners[-1], point) <= _slope(corners[-2], corners[-1]):
            corners.pop()
        corners.append(point)
    return [(_slope(a, b), b[2]) for a, b in pairwise(corners)]


def _slope(before: tuple[float, float, float], after: tuple[float, float, float]) -> float:
    return (after[1] - before[1]) / (before[0] - after[0])
