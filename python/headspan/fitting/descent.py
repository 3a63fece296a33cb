"""Spans by descent: the loss falls, the pairs are what they have to be."""

from __future__ import annotations

import math

import numpy as np

from headspan.fitting.measured import Aim, Measured

STEPS = 60
_FALL = 0.6  # of the steps, in which pairs come down to the budget
_FIRST = 0.99  # of the pairs of full attention, where descent starts: farther out no pair is on a ramp
_RATE = 0.3  # of the logarithm of a span, at first
_PACE = 0.15  # of the logarithm of the pairs, a step, where the loss says how many there may be
_EAGER = 4.0  # at full pace, unless less than a quarter of the tolerance is left, or exceeded
_MOMENTUM, _SCALE = 0.8, 0.95


def by_descent(measured: Measured, aim: Aim) -> None:
    """Measure spans along a descent in the logarithm of spans plus 1.

    All heads start at almost full length, since a head that needs what lies far has a gradient only as long as it
    reaches there. Each step has three parts: loss and gradient; a step of Adam against that part of the gradient along
    which pairs do not change, which is the gradient of loss + price * pairs at the price at which pairs would stay; and
    one factor for all spans that brings the pairs to what they have to be. That is the budget, after a fall to it; or
    what the loss allows, which is fewer as long as the tolerance is not used up, and more when it is exceeded.

    References
    ----------
    Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2015, algorithm 1.
    """
    price = measured.price
    full = price.pairs(price.full)
    before = measured(price.full)
    pairs = _FIRST * full
    spans = price.scaled(price.full, pairs)
    mean, square = np.zeros_like(spans), np.zeros_like(spans)
    for step in range(STEPS):
        loss, slopes = measured.with_gradient(spans)
        counted, more = price.smooth(spans)
        # By the logarithm: what a span changes, times the span.
        of_loss, of_pairs = slopes * (spans + 1), more * (spans + 1)
        at_this_price = -float((of_loss * of_pairs).sum()) / max(float((of_pairs**2).sum()), 1e-300)
        direction = of_loss + at_this_price * of_pairs
        mean = _MOMENTUM * mean + (1 - _MOMENTUM) * direction
        square = _SCALE * square + (1 - _SCALE) * direction**2
        corrected = mean / (1 - _MOMENTUM ** (step + 1)), square / (1 - _SCALE ** (step + 1))
        taken = (1 - step / STEPS) * _RATE * corrected[0] / (np.sqrt(corrected[1]) + 1e-12 * before)
        if aim.has_budget:
            done = min((step + 1) / (_FALL * STEPS), 1.0)
            pairs = full * _FIRST ** (1 - done) * (aim.pairs / full) ** done
        else:
            left = (aim.loss - loss) / (aim.loss - before) if aim.loss > before else -1.0
            pace = _PACE * (1 - step / STEPS) * float(np.clip(_EAGER * left, -1, 1))
            pairs = float(counted.sum()) * math.exp(-pace)
        spans = price.scaled(np.clip((spans + 1) * np.exp(-taken) - 1, 0, price.tokens), min(pairs, _FIRST * full))
    measured(spans)
