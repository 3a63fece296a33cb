"""The shape of the model and the way it is trained, as a run folder keeps them and the command line takes them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headspan import _check
from headspan.ops.spans import farthest
from headspan.patterns.base import MAX_TOKENS

ENGINES = ("numpy", "torch")
SPAN_KINDS = ("adaptive", "dynamic", "fixed")
BATCHES = ("windows", "stream")


@dataclass(frozen=True)
class ModelConfig:
    """The shape of the model.

    Attributes
    ----------
    vocabulary : int
        Number of different characters (byte values).
    layers, heads : int
        Attention layers, and heads in each of them.
    width : int
        Channels of the residual stream; a multiple of twice the heads.
    hidden : int
        Channels inside the perceptron of a block.
    span_limit, span_init : float
        The largest span a head may learn and the span it starts from, in characters.
    ramp : float
        Length of the soft edge of the mask, in characters; `headspan.attention` says how it is chosen.
    span_spread : float
        How many times as far the last head of a layer starts as the first, those between at equal ratios; none beyond
        the limit. A span has a gradient on its ramp alone, so that heads that start apart look for use at several
        distances.
    span_kind : str
        ``"adaptive"``: each head learns its span. ``"dynamic"``: each character predicts its spans, up to the limit.
        ``"fixed"``: all heads have `span_init`, and learn none.
    taps : int
        Each channel of queries and keys is a learned sum of itself at this character and at ``taps - 1`` before (So et
        al., "Primer", 2021, section 3). With a few, a head can look for what once followed the last characters, which
        small models then learn in minutes; with 1 there is no such sum.
    """

    vocabulary: int
    layers: int = 3
    heads: int = 4
    width: int = 128
    hidden: int = 512
    span_limit: float = 512.0
    # A head of span 0 looks a ramp back, and 32 characters are all that minutes of training can use: with a ramp of 32
    # all heads shrank, from 64 as from 16. With 8, from 16, most shrink and two or three grow, to 53 (seed 0) and 75.
    span_init: float = 16.0
    ramp: float = 8.0
    span_spread: float = 1.0
    span_kind: str = "adaptive"
    taps: int = 1

    def __post_init__(self) -> None:
        _check.fields(self, _check.integer, ("vocabulary", "layers", "heads", "width", "hidden", "taps"), at_least=1)
        _one_of("span_kind", self.span_kind, SPAN_KINDS)
        _check.fields(self, _check.number, ("span_limit", "span_init", "ramp"), at_least=0)
        if self.width % (2 * self.heads):
            raise ValueError(f"width must be a multiple of twice the heads ({2 * self.heads}), not {self.width}")
        for name in ("span_limit", "ramp"):
            if getattr(self, name) > MAX_TOKENS:
                raise ValueError(f"{name} must be at most {MAX_TOKENS} characters, not {getattr(self, name):g}")
        if _check.number("span_spread", self.span_spread, at_least=1) > 1 and self.span_kind == "fixed":
            raise ValueError(f"span_spread must be 1 where spans are fixed, not {self.span_spread:g}")
        if self.span_init > self.span_limit:
            raise ValueError(f"span_init must be at most span_limit ({self.span_limit:g}), not {self.span_init:g}")

    @property
    def head_dim(self) -> int:
        """Channels of one head."""
        return self.width // self.heads

    @property
    def first_spans(self) -> NDArray[np.float64]:
        """Where the spans of the heads of a layer start."""
        spans: NDArray[np.float64] = self.span_init * np.geomspace(1, self.span_spread, self.heads)
        return np.minimum(spans, self.span_limit)

    @property
    def reach(self) -> int:
        """How many characters back a head can come to look."""
        return int(farthest(self.span_init if self.span_kind == "fixed" else self.span_limit, self.ramp))


@dataclass(frozen=True)
class TrainConfig:
    """How a model is trained.

    Attributes
    ----------
    steps : int
        Updates in all; the schedule of the learning rate stretches over them.
    batch, context : int
        Windows in a batch, and characters predicted in each.
    learning_rate, warmup, weight_decay : float
        Peak rate of Adam, steps until it is reached, and decay of the weight matrices.
    span_rate : float
        Peak rate of Adam for the spans, in characters.
    span_delay : int
        Steps in which only the other weights learn. Heads that have not learned yet look at random, which is best done
        from near: spans that move from the first step on shrink to nothing.
    span_penalty : float
        What one character of mean span adds to the loss (in nats).
    batches : str
        ``"windows"``: each step draws windows of the text, and nothing before a window is seen. ``"stream"``: each row
        of a batch goes on where it ended in the step before, and heads see the earlier segments as far as they reach
        (Dai et al., "Transformer-XL", 2019, section 3.2), so that spans may be longer than what a step predicts.
    engine : str
        What computes the loss and its gradient: ``"numpy"``, or ``"torch"``, which needs PyTorch. The numbers of a run
        are the same but for rounding, and so is all else of it.
    seed : int
    log_every, evaluate_every : int
        Steps between two rows of the metrics, and between two looks at the validation text (when
        the weights are saved too).
    """

    steps: int = 1900
    batch: int = 3
    context: int = 512
    learning_rate: float = 2.5e-3
    warmup: int = 100
    weight_decay: float = 0.1
    span_rate: float = 1.0
    span_delay: int = 0
    span_penalty: float = 2e-6
    batches: str = "windows"
    engine: str = "numpy"
    seed: int = 0
    log_every: int = 20
    evaluate_every: int = 200

    def __post_init__(self) -> None:
        _check.fields(self, _check.integer, ("steps", "seed", "span_delay"), at_least=0)
        _check.fields(self, _check.integer, ("batch", "context", "warmup", "log_every", "evaluate_every"), at_least=1)
        rates = ("learning_rate", "weight_decay", "span_rate", "span_penalty")
        _check.fields(self, _check.number, rates, at_least=0)
        _one_of("batches", self.batches, BATCHES)
        _one_of("engine", self.engine, ENGINES)
        _check.check_size("a batch", (self.batch, self.context + 1), np.dtype(np.int64).itemsize)
        if self.evaluate_every % self.log_every:
            raise ValueError(
                f"evaluate_every must be a multiple of log_every ({self.log_every}), not {self.evaluate_every}"
            )

    def earlier(self, model: ModelConfig) -> int:
        """How many characters before those of a batch a head of the model can come to see."""
        return model.reach if self.batches == "stream" else 0


def _one_of(name: str, value: object, names: tuple[str, ...]) -> None:
    if value not in names:
        raise ValueError(f"{name} must be of {', '.join(map(repr, names))}, not {value!r}")
