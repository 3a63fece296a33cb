"""The result of a fit: the spans, their cost and their loss."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headspan._help import as_written
from headspan.fitting.model_spans import ModelSpans
from headspan.fitting.search.descent import DescentState
from headspan.fitting.search.measured import Point


class Window(NamedTuple):
    """One span for all heads.

    Attributes
    ----------
    span : float
        The span in tokens.
    pairs, cache_bytes : int
    fitted_loss, loss : float
        The loss on the data to which the spans are fitted, and on held-out data.
    """

    span: float
    pairs: int
    cache_bytes: int
    fitted_loss: float
    loss: float


@as_written
class SpanFit(NamedTuple):
    """The result of `headspan.fit_spans`.

    Attributes
    ----------
    spans : ndarray, shape (layers, heads)
        The spans in whole tokens. A head whose span is the number of tokens sees all tokens.
    ramp : float
    tokens, first_tokens, num_key_heads : int
        The arguments of the fit.
    loss_before, loss_after : float
        The loss on held-out data, with full attention and with the spans.
    fitted_before, fitted_after : float
        The same on the data to which the spans are fitted.
    pairs, full_pairs : int
        The pairs of one text in all heads and layers, with the spans and with full attention.
    cache_bytes, full_cache_bytes : int
        The bytes of the caches of all layers at the last token.
    curve, uniform_curve : tuple of Point
        The best measured points, and those of one span for all heads, both sorted by falling pairs.
    uniform : Window
        The largest single span for all heads with at most as many pairs as `spans`.
    uniform_wins : bool
        Whether no spans were better than one span for all heads. `spans` are then uniform.
    evaluations : int
        The number of evaluations of `loss`, without those of `gradient` and `held_out`.
    state : DescentState or None
        The state of the method "learn" after its last step, to go on from after an interrupt.
    is_causal : bool
        Whether pairs are those of causal attention. Other attention has no cache, and bytes are those that a causal
        model of this size would have.

    See Also
    --------
    fit_spans : Finds the spans.
    headspan.plot.span_fit : Draws the result.
    """

    spans: npt.NDArray[np.float64]
    ramp: float
    tokens: int
    first_tokens: int
    num_key_heads: int
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
    state: DescentState | None = None
    is_causal: bool = True

    @property
    def share(self) -> float:
        """The pairs as a share of the pairs of full attention."""
        return self.pairs / self.full_pairs

    @property
    def excess(self) -> float:
        """The relative increase of the held-out loss over full attention."""
        return self.loss_after / self.loss_before - 1

    @property
    def uniform_excess(self) -> float:
        """The relative increase of the held-out loss for one span for all heads, at equal pairs."""
        return self.uniform.loss / self.loss_before - 1

    @property
    def model_spans(self) -> ModelSpans:
        """The spans as other programs and files take them; a head that sees all tokens has no limit."""
        about = {
            "tokens": self.tokens,
            "share_of_pairs": self.share,
            "share_of_cache": self.cache_bytes / self.full_cache_bytes,
            "held_out_loss_of_full_attention": self.loss_before,
            "held_out_loss": self.loss_after,
        }
        spans = np.where(self.spans >= self.tokens, np.inf, self.spans)
        return ModelSpans(spans, self.ramp, self.first_tokens, self.num_key_heads, about)

    def __str__(self) -> str:
        """Summarize the pairs, the losses and the comparison with one span for all heads."""
        if self.uniform_wins:
            window = "one span for all heads did as well as anything found"
        else:
            window = f"one span of {self.uniform.span:g} for all heads, of equal cost: {self.uniform_excess:+.2%}"
        done = ""
        if self.state is not None and self.state.step < self.state.steps:
            done = f"; stopped after {self.state.step} of {self.state.steps} steps"
        cache = f", {self.cache_bytes / self.full_cache_bytes:.1%} of the cache" if self.is_causal else ""
        return (
            f"{self.share:.1%} of the pairs{cache}; "
            f"held-out loss {self.loss_before:.4f} before and {self.loss_after:.4f} after, "
            f"{self.excess:+.2%}; {window}{done}"
        )
