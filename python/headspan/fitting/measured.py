"""A model's loss, measured: every spans once, all of it kept, and the best of it by what is asked for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from headspan import _check
from headspan.fitting.price import Price, Spans
from headspan.fitting.result import Point


@dataclass(frozen=True)
class Aim:
    """What is asked for: the least loss of so many pairs, or the fewest pairs of so much loss."""

    pairs: float = math.inf
    loss: float = math.inf

    @property
    def has_budget(self) -> bool:
        """Whether pairs are bounded, and not the loss."""
        return self.pairs < math.inf

    def met(self, pairs: float, loss: float) -> bool:
        """Whether this is within the bound."""
        return pairs <= self.pairs and loss <= self.loss

    def rank(self, pairs: float, loss: float) -> tuple[bool, float, float]:
        """Return what is the smaller the better."""
        return (not self.met(pairs, loss), *((loss, pairs) if self.has_budget else (pairs, loss)))


class Measured:
    """The loss of spans of key heads, as a function that remembers.

    Attributes
    ----------
    price : Price
    evaluations : int
        How often the model was run on its data, with a gradient or without.
    """

    def __init__(self, price: Price, loss: Callable[[Any], object], gradient: Callable[[Any], Any] | None) -> None:
        self.price = price
        self.evaluations = 0
        self._loss, self._gradient = loss, gradient
        self._known: dict[bytes, tuple[Spans, float]] = {}

    def __call__(self, spans: Spans) -> float:
        """Return the loss of spans, rounded down to whole tokens."""
        whole = np.floor(spans)
        if whole.tobytes() not in self._known:
            self._keep(whole, checked_loss("loss", self._loss(self.price.of_heads(whole))))
        return self._known[whole.tobytes()][1]

    def with_gradient(self, spans: Spans) -> tuple[float, Spans]:
        """Return the loss of spans, rounded down to whole tokens, and its gradient, summed over shared keys."""
        assert self._gradient is not None
        whole = np.floor(spans)
        given = self.price.of_heads(whole)
        pair = self._gradient(given)
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError(f"gradient must return a loss and an array, not {_check.describe(pair)}")
        slopes = _check.real_array("what gradient returns", pair[1]).astype(np.float64)
        if slopes.shape != given.shape:
            raise ValueError(f"gradient must return an array of the shape of spans, {given.shape}, not {slopes.shape}")
        loss = checked_loss("gradient", pair[0])
        self._keep(whole, loss)
        return loss, slopes.reshape(*spans.shape, -1).sum(axis=-1)

    def _keep(self, whole: Spans, loss: float) -> None:
        self.evaluations += 1
        self._known[whole.tobytes()] = whole, loss

    def best(self, aim: Aim) -> Spans:
        """Return the best of all spans that were measured."""
        return min(self._known.values(), key=lambda its: aim.rank(self.price.pairs(its[0]), its[1]))[0]

    def points(self, *, uniform: bool = False) -> tuple[Point, ...]:
        """Return what was measured and nothing beats in both pairs and loss; or all that has one span for all heads.

        Pairs fall.
        """
        rows = sorted(
            ((self.price.pairs(spans), loss, spans) for spans, loss in self._known.values()
             if not uniform or is_uniform(spans)), key=lambda row: row[:2],
        )  # fmt: skip
        found: list[Point] = []
        for pairs, loss, spans in rows:
            if uniform or not found or loss < found[-1].loss:
                found.append(Point(pairs, self.price.cache_bytes(spans), loss))
        return tuple(reversed(found))


def is_uniform(spans: Spans) -> bool:
    """Whether all heads have one span."""
    return bool((spans == spans.flat[0]).all())


def checked_loss(name: str, given: Any) -> float:
    """Return what a function of the caller measured, or say what is wrong with it."""
    loss = _check.number(f"what {name} returns", given)
    if loss <= 0:
        raise ValueError(f"what {name} returns must be a loss greater than 0, not {loss:g}")
    return loss
