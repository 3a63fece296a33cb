"""The measured losses of a model: each set of spans is measured once and remembered."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from headspan import _check
from headspan.fitting.search.price import Price, Spans
from headspan.fitting.search.progress import Progress


class Point(NamedTuple):
    """One measurement of the fit, on the data to which the spans are fitted.

    Attributes
    ----------
    pairs, cache_bytes : int
    loss : float
    """

    pairs: int
    cache_bytes: int
    loss: float


@dataclass(frozen=True)
class Aim:
    """The aim of a fit: the least loss within an amount of pairs or bytes, or the least amount within a loss."""

    amount: float = math.inf
    loss: float = math.inf

    @property
    def has_budget(self) -> bool:
        """Whether the amount is bounded, and not the loss."""
        return self.amount < math.inf

    def met(self, amount: float, loss: float) -> bool:
        """Return whether amount and loss are within the bounds."""
        return amount <= self.amount and loss <= self.loss

    def rank(self, amount: float, loss: float) -> tuple[bool, float, float]:
        """Return a sort key, which is smaller for better results."""
        return (not self.met(amount, loss), *((loss, amount) if self.has_budget else (amount, loss)))


class Measured:
    """The loss of spans of key heads, as a function with a memory.

    Attributes
    ----------
    price : Price
    evaluations : int
        The number of evaluations of the loss.
    """

    def __init__(self, price: Price, loss: Callable[[Any], object], progress: Progress) -> None:
        self.price = price
        self.evaluations = 0
        self._loss, self._progress = loss, progress
        self._known: dict[bytes, tuple[Spans, float]] = {}

    def __call__(self, spans: Spans) -> float:
        """Return the loss of whole spans."""
        rounded = self.price.round_down(spans)
        if rounded.tobytes() not in self._known:
            loss = checked_loss("loss", self._loss(self.price.of_heads(rounded)))
            self.evaluations += 1
            self._known[rounded.tobytes()] = rounded, loss
            self._progress.measured(self.evaluations, loss)
        return self._known[rounded.tobytes()][1]

    def best(self, aim: Aim) -> Spans:
        """Return the best spans measured so far."""
        return min(self._known.values(), key=lambda entry: aim.rank(self.price.amount(entry[0]), entry[1]))[0]

    def points(self, *, uniform: bool = False) -> tuple[Point, ...]:
        """Return the Pareto front of amount and loss, or all points with one span for all heads.

        The points are sorted by falling amount.
        """
        rows = sorted(
            ((self.price.amount(spans), loss, spans) for spans, loss in self._known.values()
             if not uniform or is_uniform(spans)), key=lambda row: row[:2],
        )  # fmt: skip
        front: list[Point] = []
        for _, loss, spans in rows:
            if uniform or not front or loss < front[-1].loss:
                front.append(Point(self.price.pairs(spans), self.price.cache_bytes(spans), loss))
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
