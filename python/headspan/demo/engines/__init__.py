"""What computes the loss of a batch and its gradient; all else of a run is the same for each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from headspan.demo.config import ModelConfig
from headspan.demo.model import Parameters

Objective = Callable[[Parameters, NDArray[Any]], tuple[float, Parameters]]
"""Of parameters and windows (batch, context + 1): the loss in nats, and its gradient by each parameter."""


def objective(engine: str, model: ModelConfig, penalty: float) -> Objective:
    """Return what an engine of `headspan.demo.config.ENGINES` computes; a character of mean span costs a penalty.

    Raises
    ------
    ModuleNotFoundError
        If what it needs is not installed.
    """
    if engine == "torch":
        try:
            from headspan.demo.engines import by_torch
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "the engine torch needs PyTorch: pip install 'headspan[torch]'", name="torch"
            ) from error
        return by_torch.objective(model, penalty)
    from headspan.demo.engines import by_autograd

    return by_autograd.objective(model, penalty)
