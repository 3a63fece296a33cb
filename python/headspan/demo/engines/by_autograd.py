"""The loss and its gradient by the package autograd, on arrays of NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headspan.autograd import value_and_grad
from headspan.demo.config import ModelConfig
from headspan.demo.engines import Objective
from headspan.demo.model import Parameters, loss


def objective(model: ModelConfig, penalty: float) -> Objective:
    """Return the loss with its penalty, and the gradient."""

    def penalised(parameters: Parameters, windows: NDArray[Any]) -> Any:
        nats = loss(parameters, model, windows[:, :-1], windows[:, 1:])
        spans = parameters["span"]
        return nats + np.float32(penalty / spans.size) * spans.sum()

    both = value_and_grad(penalised)

    def computed(parameters: Parameters, windows: NDArray[Any]) -> tuple[float, Parameters]:
        value, gradients = both(parameters, windows)
        return float(value), gradients

    return computed
