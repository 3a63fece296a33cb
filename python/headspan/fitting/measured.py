"""The measured losses of a model: each set of spans is measured once and remembered."""

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
    """The aim of a fit: the least loss within a number of pairs, or the fewest pairs within a loss."""

    pairs: float = math.inf
    loss: float = math.inf

    @property
    def has_budget(self) -> bool:
        """Whether the number of pairs is bounded, and not the loss."""
        return self.pairs < math.inf

    def met(self, pairs: float, loss: float) -> bool:
        """Return whether pairs and loss are within the bounds."""
        return pairs <= self.pairs and loss <= self.loss

    def rank(self, pairs: float, loss: float) -> tuple[bool, float, float]:
        """Return a sort key, which is smaller for better results."""
        return (not self.met(pairs, loss), *((loss, pairs) if self.has_budget else (pairs, loss)))


class Measured:
    """The loss of spans of key heads, as a function with a memory.

    Attributes
    ----------
    price : Price
    evaluations : int
        The number of times that the model was evaluated, with or without a gradient.
    """

    def __init__(self, price: Price, loss: Callable[[Any], object], gradient: Callable[[Any], Any] | None) -> None:
        self.price = price
        self.evaluations = 0
        self._loss, self._gradient = loss, gradient
        self._known: dict[bytes, tuple[Spans, float]] = {}

    def __call__(self, spans: Spans) -> float:
        """Return the loss of spans, rounded down to whole tokens."""
        rounded = np.floor(spans)
        if rounded.tobytes() not in self._known:
            self._keep(rounded, checked_loss("loss", self._loss(self.price.of_heads(rounded))))
        return self._known[rounded.tobytes()][1]

    def with_gradient(self, spans: Spans) -> tuple[float, Spans]:
        """Return the loss of spans, rounded down to whole tokens, and its gradient, summed over shared keys."""
        assert self._gradient is not None
        rounded = np.floor(spans)
        heads = self.price.of_heads(rounded)
        pair = self._gradient(heads)
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError(f"gradient must return a loss and an array, not {_check.describe(pair)}")
        slopes = _check.real_array("what gradient returns", pair[1]).astype(np.float64)
        if slopes.shape != heads.shape:
            raise ValueError(f"gradient must return an array of the shape of spans, {heads.shape}, not {slopes.shape}")
        loss = checked_loss("gradient", pair[0])
        self._keep(rounded, loss)
        return loss, slopes.reshape(*spans.shape, -1).sum(axis=-1)

    def _keep(self, spans: Spans, loss: float) -> None:
        self.evaluations += 1
        self._known[spans.tobytes()] = spans, loss

    def best(self, aim: Aim) -> Spans:
        """Return the best spans measured so far."""
        return min(self._known.values(), key=lambda entry: aim.rank(self.price.pairs(entry[0]), entry[1]))[0]

    def points(self, *, uniform: bool = False) -> tuple[Point, ...]:
        """Return the Pareto front of pairs and loss, or all points with one span for all heads.

        The points are sorted by falling pairs.
        """
        rows = sorted(
            ((self.price.pairs(spans), loss, spans) for spans, loss in self._known.values()
             if not uniform or is_uniform(spans)), key=lambda row: row[:2],
        )  # fmt: skip
        front: list[Point] = []
        for pairs, loss, spans in rows:
            if uniform or not front or loss < front[-1].loss:
                front.append(Point(pairs, self.price.cache_bytes(spans), loss))
        return tuple(reversed(front))


def is_uniform(spans: Spans) -> bool:
    """Return whether all heads have the same span."""
    return bool((spans == spans.flat[0]).all())


def checked_loss(name: str, number: Any) -> float:
    """Return the loss that a function of the caller returned, or raise an error if it is not positive."""
    loss = _check.number(f"what {name} returns", number)
    if loss <= 0:
        raise ValueError(f"what {name} returns must be a loss greater than 0, not {loss:g}")
    return loss
