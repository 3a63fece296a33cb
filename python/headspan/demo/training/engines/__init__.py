"""What computes the loss of a batch and its gradient; all else of a run is the same for each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from numpy.typing import NDArray

from headspan.demo.config import ModelConfig
from headspan.demo.model import Parameters
from headspan.demo.model.forward import forward, mean_spans
from headspan.demo.model.memory import Memory

Array = NDArray[Any]


class Computed(NamedTuple):
    """Of a batch: the loss in nats, its gradient by each parameter, and the mean span of every head."""

    nats: float
    gradients: Parameters
    spans: Array


Objective = Callable[[Parameters, Array, Memory | None], Computed]
"""Of parameters, windows (batch, context + 1) and what came before them."""


def objective(engine: str, model: ModelConfig, penalty: float) -> Objective:
    """Return what an engine of `headspan.demo.config.ENGINES` computes; a character of mean span costs a penalty.

    The penalty is in the gradient and not in the loss.

    Raises
    ------
    ModuleNotFoundError
        If what it needs is not installed.
    """
    its = _engine(engine)
    layers = its.layers

    def computed(parameters: Parameters, windows: Array, memory: Memory | None = None) -> Computed:
        seen: list[Any] = []

        def penalised(parameters: Any) -> Any:
            passed = forward(layers, parameters, model, windows[:, :-1], memory)
            nats = layers.cross_entropy(passed.scores, windows[:, 1:])
            seen.extend((layers.value_of(nats), [layers.value_of(span) for span in passed.spans]))
            if model.span_kind == "fixed":
                return nats
            mean = sum(span.mean() for span in passed.spans)
            return nats + (penalty / model.layers) * mean

        gradients = its.gradient(penalised, parameters)
        nats, spans = seen
        return Computed(float(nats), gradients, mean_spans(model.heads, spans))

    return computed


def _engine(name: str) -> Any:
    if name == "torch":
        try:
            from headspan.demo.training.engines import by_torch
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "the engine torch needs PyTorch: pip install 'headspan[torch]'", name="torch"
            ) from error
        return by_torch
    from headspan.demo.training.engines import by_autograd

    return by_autograd
