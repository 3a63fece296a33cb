"""Fit spans by gradient descent on the loss with a prescribed number of pairs."""

from __future__ import annotations

import math

import numpy as np

from headspan.fitting.measured import Aim, Measured

STEPS = 60
_FALL = 0.6  # share of the steps in which the pairs fall to the budget
_FIRST = 0.99  # initial share of the pairs of full attention; with more, no pair is on a ramp
_RATE = 0.3  # initial step size, in the logarithm of a span
_PACE = 0.15  # largest change per step of the logarithm of the pairs, with a tolerance
_EAGER = 4.0  # full pace if more than 1 / _EAGER of the tolerance is left
_MOMENTUM, _SCALE = 0.8, 0.95


def by_descent(measured: Measured, aim: Aim) -> None:
    """Measure spans along a descent in the logarithm of spans plus 1.

    All heads start at almost full length, since a head that needs distant tokens has a gradient only while it reaches
    them. A step computes the loss and its gradient, takes a step of Adam against the component of the gradient that
    keeps the number of pairs, and scales all spans by one factor to the prescribed number of pairs. The component is
    the gradient of loss + price * pairs at the price that keeps the pairs. With a budget, the number falls to the
    budget. With a tolerance, it falls while the loss is within the tolerance and grows when the loss exceeds it.

    References
    ----------
    Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2015, algorithm 1.
    """
    price = measured.price
    full = price.pairs(price.full)
    full_loss = measured(price.full)
    pairs = _FIRST * full
    spans = price.scaled(price.full, pairs)
    mean, square = np.zeros_like(spans), np.zeros_like(spans)
    for step in range(STEPS):
        loss, slopes = measured.with_gradient(spans)
        counted, pair_slopes = price.smooth(spans)
        # Derivatives with respect to the logarithm of span + 1.
        loss_gradient, pair_gradient = slopes * (spans + 1), pair_slopes * (spans + 1)
        price_of_pair = -float((loss_gradient * pair_gradient).sum()) / max(float((pair_gradient**2).sum()), 1e-300)
        direction = loss_gradient + price_of_pair * pair_gradient
        mean = _MOMENTUM * mean + (1 - _MOMENTUM) * direction
        square = _SCALE * square + (1 - _SCALE) * direction**2
        corrected = mean / (1 - _MOMENTUM ** (step + 1)), square / (1 - _SCALE ** (step + 1))
        update = (1 - step / STEPS) * _RATE * corrected[0] / (np.sqrt(corrected[1]) + 1e-12 * full_loss)
        if aim.has_budget:
            progress = min((step + 1) / (_FALL * STEPS), 1.0)
            pairs = full * _FIRST ** (1 - progress) * (aim.pairs / full) ** progress
        else:
            margin = (aim.loss - loss) / (aim.loss - full_loss) if aim.loss > full_loss else -1.0
            pace = _PACE * (1 - step / STEPS) * float(np.clip(_EAGER * margin, -1, 1))
            pairs = float(counted.sum()) * math.exp(-pace)
        spans = price.scaled(np.clip((spans + 1) * np.exp(-update) - 1, 0, price.tokens), min(pairs, _FIRST * full))
    measured(spans)
