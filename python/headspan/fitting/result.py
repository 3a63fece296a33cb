"""What was found: spans, what they cost, and what they lose."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headspan._help import as_written


class Point(NamedTuple):
    """Spans that were measured on the way, on the data that they were fitted to.

    Attributes
    ----------
    pairs, cache_bytes : int
    loss : float
    """

    pairs: int
    cache_bytes: int
    loss: float


class Window(NamedTuple):
    """One span for all heads.

    Attributes
    ----------
    span : float
        In tokens.
    pairs, cache_bytes : int
    fitted_loss, loss : float
        On the data that spans were fitted to, and held out.
    """

    span: float
    pairs: int
    cache_bytes: int
    fitted_loss: float
    loss: float


@as_written
class SpanFit(NamedTuple):
    """What `headspan.fit_spans` found.

    Attributes
    ----------
    spans : ndarray, shape (layers, heads)
        In tokens, whole numbers; a head whose span is the number of tokens sees all of them.
    ramp : float
    loss_before, loss_after : float
        Held out: of full attention, and of the spans.
    fitted_before, fitted_after : float
        The same on the data that the spans were fitted to.
    pairs, full_pairs : int
        Of all heads of all layers, of one text.
    cache_bytes, full_cache_bytes : int
        What the caches of all layers hold at the last token.
    curve, uniform_curve : tuple of Point
        What was measured on the way, and one span for all heads, both with falling pairs.
    uniform : Window
        The largest one span for all heads that has no more pairs than these.
    uniform_wins : bool
        Whether nothing better than one span for all heads was found, which then `spans` are.
    evaluations : int
        How often a loss was measured, with a gradient or without, beside the held-out ones.
    """

    spans: npt.NDArray[np.float64]
    ramp: float
    loss_before: float
    loss_after: float
    fitted_before: float
    fitted_after: float
    pairs: int
    full_pairs: int
    cache_bytes: int
    full_cache_bytes: int
    curve: tuple[Point, ...]
    uniform_curve: tuple[Point, ...]
    uniform: Window
    uniform_wins: bool
    evaluations: int

    @property
    def share(self) -> float:
        """Pairs as a share of those of full attention."""
        return self.pairs / self.full_pairs

    @property
    def excess(self) -> float:
        """By how much the held-out loss is larger than that of full attention, as a share of it."""
        return self.loss_after / self.loss_before - 1

    @property
    def uniform_excess(self) -> float:
        """The same for one span for all heads, at equal pairs."""
        return self.uniform.loss / self.loss_before - 1

    def __str__(self) -> str:
        """Say what was found, what it loses, and who won."""
        if self.uniform_wins:
            who = "one span for all heads did as well as anything found"
        else:
            who = f"one span of {self.uniform.span:g} for all heads, of as many pairs: {self.uniform_excess:+.2%}"
        return (
            f"{self.share:.1%} of the pairs, {self.cache_bytes / self.full_cache_bytes:.1%} of the cache; "
            f"held-out loss {self.loss_before:.4f} before and {self.loss_after:.4f} after, {self.excess:+.2%}; {who}"
        )
