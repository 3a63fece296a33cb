"""The configurations of model and training, which a run folder stores and the command line sets."""

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
    """Configuration of the model.

    Attributes
    ----------
    vocabulary : int
        Number of different characters (byte values).
    layers, heads : int
        Number of attention layers, and of heads in each layer.
    width : int
        Channels of the residual stream; a multiple of ``2 * heads``.
    hidden : int
        Hidden channels of the perceptron in a block.
    span_limit, span_init : float
        The largest span that a head can learn, and the span at the start of training, in characters.
    ramp : float
        Length of the soft edge of the mask, in characters. `headspan.attention` describes how to choose it.
    span_spread : float
        Ratio of the initial spans of the last and the first head of a layer. The initial spans of a layer form a
        geometric sequence, capped at `span_limit`. A span only gets a gradient from the distances on its ramp, so
        heads with different initial spans learn from several distances.
    span_kind : str
        ``"adaptive"``: each head learns its span. ``"dynamic"``: each character predicts its spans, up to the limit.
        ``"fixed"``: all heads have the span `span_init`, which is not learned.
    taps : int
        Length of a learned causal convolution over each channel of queries and keys (So et al., "Primer", 2021,
        section 3). With a few taps, a head can search for what followed the last characters earlier in the text, and
        small models learn this in minutes. With 1 there is no convolution.

    See Also
    --------
    init_parameters : Draws the parameters for a configuration.
    headspan.lab.TrainConfig : Configuration of training.
    """

    vocabulary: int
    layers: int = 3
    heads: int = 4
    width: int = 128
    hidden: int = 512
    span_limit: float = 512.0
    # A head of span 0 still sees the ramp, and minutes of training cannot use more than 32 characters. With a ramp of
    # 32 all spans shrank, from 64 and from 16. With 8, from 16, most shrink and 2 or 3 grow, to 53 (seed 0) and 75.
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
            raise ValueError(f"span_spread must be 1 if spans are fixed, not {self.span_spread:g}")
        if self.span_init > self.span_limit:
            raise ValueError(f"span_init must be at most span_limit ({self.span_limit:g}), not {self.span_init:g}")

    @property
    def head_dim(self) -> int:
        """Number of channels of one head."""
        return self.width // self.heads

    @property
    def first_spans(self) -> NDArray[np.float64]:
        """Initial spans of the heads of a layer, in characters."""
        spans: NDArray[np.float64] = self.span_init * np.geomspace(1, self.span_spread, self.heads)
        return np.minimum(spans, self.span_limit)

    @property
    def reach(self) -> int:
        """Largest distance, in characters, that a head can learn to attend to."""
        return int(farthest(self.span_init if self.span_kind == "fixed" else self.span_limit, self.ramp))


@dataclass(frozen=True)
class TrainConfig:
    """Configuration of training.

    Attributes
    ----------
    steps : int
        Total number of updates, which is also the length of the learning rate schedule.
    batch, context : int
        Number of windows in a batch, and of predicted characters in each window.
    learning_rate, warmup, weight_decay : float
        Peak learning rate of Adam, number of warmup steps, and decay of the weight matrices.
    span_rate : float
        Peak learning rate of Adam for the spans, in characters.
    span_delay : int
        Number of steps before the spans start to learn. Untrained heads attend at random, for which short spans are
        best: spans that learn from the first step on shrink to 0.
    span_penalty : float
        Penalty per character of mean span that is added to the loss, in nats.
    batches : str
        ``"windows"``: each step draws random windows, and heads see nothing before a window. ``"stream"``: each row of
        a batch continues where it ended in the previous step, and heads see earlier segments within their reach (Dai
        et al., "Transformer-XL", 2019, section 3.2). Spans can then be longer than `context`.
    engine : str
        Library that computes the loss and its gradient: ``"numpy"``, or ``"torch"``, which needs PyTorch. The results
        of both agree up to rounding.
    seed : int
        Seed of the initial weights and of the batches.
    log_every, evaluate_every : int
        Steps between two rows of the metrics, and between two evaluations on validation text, which save the weights.

    See Also
    --------
    train : Starts or resumes training.
    headspan.lab.lm.ModelConfig : Configuration of the model.
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
        """Return how many characters before a batch the heads of the model can see."""
        return model.reach if self.batches == "stream" else 0


def _one_of(name: str, value: object, names: tuple[str, ...]) -> None:
    if value not in names:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, names))}, not {value!r}")
