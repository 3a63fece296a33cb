"""Engines, which compute the loss of a batch and its gradient. The rest of a run does not depend on the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from numpy.typing import NDArray

from headspan import _extra
from headspan.lab.config import ModelConfig
from headspan.lab.model import Parameters
from headspan.lab.model.forward import forward, mean_spans
from headspan.lab.model.memory import Memory

Array = NDArray[Any]


class Computed(NamedTuple):
    """The loss of a batch in nats, its gradients with respect to the parameters, and the mean span of each head."""

    nats: float
    gradients: Parameters
    spans: Array


Objective = Callable[[Parameters, Array, Memory | None], Computed]
"""Function of the parameters, the windows (batch, context + 1) and the memory of the characters before them."""


def objective(engine: str, model: ModelConfig, penalty: float) -> Objective:
    """Return the training objective for an engine of `headspan.lab.config.ENGINES`.

    Each character of mean span costs `penalty` nats. The gradient includes the penalty, the returned loss does not.

    Raises
    ------
    ModuleNotFoundError
        If the library of the engine is not installed.
    """
    module = _engine(engine)
    layers = module.layers

    def computed(parameters: Parameters, windows: Array, memory: Memory | None = None) -> Computed:
        traced: list[Any] = []

        def penalised(parameters: Any) -> Any:
            result = forward(layers, parameters, model, windows[:, :-1], memory)
            nats = layers.cross_entropy(result.scores, windows[:, 1:])
            traced.extend((layers.value_of(nats), [layers.value_of(span) for span in result.spans]))
            if model.span_kind == "fixed":
                return nats
            mean = sum(span.mean() for span in result.spans)
            return nats + (penalty / model.layers) * mean

        gradients = module.gradient(penalised, parameters)
        nats, spans = traced
        return Computed(float(nats), gradients, mean_spans(model.heads, spans))

    return computed


def _engine(name: str) -> Any:
    if name == "torch":
        try:
            from headspan.lab.training.engines import by_torch
        except ModuleNotFoundError as error:
            raise _extra.missing("the engine torch", "PyTorch", "torch", "torch") from error
        return by_torch
    from headspan.lab.training.engines import by_autograd

    return by_autograd
