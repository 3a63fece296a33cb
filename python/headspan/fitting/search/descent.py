"""Fit spans by stochastic gradient descent on the loss with a prescribed number of pairs or bytes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from headspan import _check
from headspan.fitting.search.price import Price, Spans
from headspan.fitting.search.progress import Progress

_FALL = 0.6  # share of the steps in which the amount falls to the budget
_AVERAGED = 0.75  # share of the steps after which spans are averaged
_FIRST = 0.99  # initial share of the amount of full attention; with more, no pair is on a ramp
_TRAVEL = 9.0  # largest change of the logarithm of a span in all steps together
_PACE = 4.5  # largest change of the logarithm of the amount in all steps together, with a tolerance
_EAGER = 2.0  # full pace if more than 1 / _EAGER of the tolerance is left
_EXCESS = 2.0  # an increase of the loss counts as at most this factor of the tolerance
_MOMENTUM, _SCALE, _RECENT = 0.8, 0.95, 0.8

Gradient = Callable[[Any, int], Any]


class DescentState(NamedTuple):
    """The state of a descent between two steps, from which `fit_spans` goes on.

    Attributes
    ----------
    step, steps : int
        The number of steps that are done, and of all steps.
    spans : ndarray, shape (layers, key heads)
        The current spans in tokens.
    mean, square : ndarray, shape (layers, key heads)
        The moments of the gradient.
    total : ndarray, shape (layers, key heads)
        The sum of the logarithms of span + 1 over the last quarter of the steps.
    increase : float
        The recent increase of the loss over full attention.
    passed : tuple of ndarray
        Spans on the way, each with 0.7 of the amount of the one before. The curve is measured at them.
    """

    step: int
    steps: int
    spans: Spans
    mean: Spans
    square: Spans
    total: Spans
    increase: float
    passed: tuple[Spans, ...]

    def candidates(self, price: Price) -> list[Spans]:
        """Return the spans that are worth measuring, those with the largest amount first."""
        averaged = self.step - _first_averaged(self.steps)
        if averaged <= 0:
            return [*self.passed, self.spans]
        average = price.scaled(np.exp(self.total / averaged) - 1, price.smooth(self.spans)[0].sum())
        return [*self.passed, self.spans, average]


def descend(
    price: Price, gradient: Gradient, progress: Progress, *, steps: int, state: DescentState | None,
    amount: float | None, increase: float | None,
) -> DescentState:  # fmt: skip
    """Descend in the logarithm of spans plus 1, to an amount or for an increase of the loss.

    All heads start at almost full length, since a head that needs distant tokens has a gradient only while it reaches
    them. A step computes the increase of the loss on one batch and its gradient, takes a step of Adam against the
    component of the gradient that keeps the amount, and scales all spans by one factor to the prescribed amount. The
    component is the gradient of loss + price * amount at the price that keeps the amount. With a budget, the amount
    falls to the budget. With a tolerance, it falls while the recent increase is within the tolerance, and grows when
    the increase exceeds it. An interrupt (Ctrl-C) after the first step ends the descent with the state reached so far.

    References
    ----------
    Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2015, algorithm 1.
    """
    if state is None:
        start = price.scaled(price.full, _FIRST * price.amount(price.full))
        zero = np.zeros_like(start)
        state = DescentState(0, steps, start, zero, zero, zero, 0.0, ())
    first = state.step
    try:
        while state.step < steps:
            state = _step(price, gradient, state, amount, increase)
            progress.stepped(state.increase, price.smooth(state.spans)[0].sum() / price.amount(price.full))
    except KeyboardInterrupt:
        if state.step == first:
            raise
    return state


def _step(
    price: Price, gradient: Gradient, state: DescentState, amount: float | None, increase: float | None
) -> DescentState:
    step, steps, spans = state.step, state.steps, state.spans
    full = price.amount(price.full)
    seen, slopes = _gradient(price, gradient, spans, step)
    if increase is not None:
        seen = min(seen, _EXCESS * increase)  # so that one batch, or a step too far, is soon forgotten
    recent = seen if step == 0 else _RECENT * state.increase + (1 - _RECENT) * seen
    counted, count_slopes = price.smooth(spans)
    # Derivatives with respect to the logarithm of span + 1.
    loss_gradient, count_gradient = slopes * (spans + 1), count_slopes * (spans + 1)
    price_of_one = -float((loss_gradient * count_gradient).sum()) / max(float((count_gradient**2).sum()), 1e-300)
    direction = loss_gradient + price_of_one * count_gradient
    mean = _MOMENTUM * state.mean + (1 - _MOMENTUM) * direction
    square = _SCALE * state.square + (1 - _SCALE) * direction**2
    corrected = mean / (1 - _MOMENTUM ** (step + 1)), np.sqrt(square / (1 - _SCALE ** (step + 1)))
    left = 1 - step / steps
    update = 2 * _TRAVEL / steps * left * corrected[0] / (corrected[1] + 1e-12)
    if amount is not None:
        progress = min((step + 1) / (_FALL * steps), 1.0)
        wanted = full * _FIRST ** (1 - progress) * (amount / full) ** progress
    else:
        assert increase is not None
        margin = float(np.clip(_EAGER * (increase - recent) / increase, -1, 1))
        wanted = float(counted.sum()) * math.exp(-2 * _PACE / steps * left * margin)
    moved = price.scaled(np.clip((spans + 1) * np.exp(-update) - 1, 0, price.tokens), min(wanted, _FIRST * full))
    total = state.total + np.log1p(moved) if step + 1 > _first_averaged(steps) else state.total
    passed = state.passed
    if price.smooth(moved)[0].sum() <= 0.5 ** ((len(passed) + 1) / 2) * full:
        passed = (*passed, moved)
    return DescentState(step + 1, steps, moved, mean, square, total, recent, passed)


def _first_averaged(steps: int) -> int:
    return int(_AVERAGED * steps)


def _gradient(price: Price, gradient: Gradient, spans: Spans, step: int) -> tuple[float, Spans]:
    """Return the increase of the loss at whole spans, and its gradient, summed over groups."""
    heads = price.of_heads(price.round_down(spans))
    pair = gradient(heads, step)
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise TypeError(f"gradient must return the increase of the loss and an array, not {_check.describe(pair)}")
    slopes = _check.real_array("what gradient returns", pair[1]).astype(np.float64)
    if slopes.shape != heads.shape:
        raise ValueError(f"gradient must return an array of the shape of spans, {heads.shape}, not {slopes.shape}")
    return _check.number("what gradient returns", pair[0]), slopes.reshape(*spans.shape, -1).sum(axis=-1)
