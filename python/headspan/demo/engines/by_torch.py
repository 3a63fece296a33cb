"""The loss and its gradient by PyTorch, in whose tensors the parameters lie where they are.

The model is that of `headspan.demo.model`, layer by layer; sums are taken in another order.
"""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from headspan.demo.config import ModelConfig
from headspan.demo.engines import Objective
from headspan.demo.layers import NORM_EPSILON
from headspan.demo.model import Parameters, turns
from headspan.torch import attention


def objective(model: ModelConfig, penalty: float) -> Objective:
    """Return the loss with its penalty, and the gradient."""

    def computed(parameters: Parameters, windows: NDArray[Any]) -> tuple[float, Parameters]:
        tensors = {name: torch.from_numpy(array).requires_grad_() for name, array in parameters.items()}
        tokens = torch.from_numpy(windows)
        scores = logits(tensors, model, tokens[:, :-1])
        nats = F.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
        value = nats + penalty * tensors["span"].mean()
        found = torch.autograd.grad(value, list(tensors.values()))
        return value.item(), {name: grad.numpy() for name, grad in zip(tensors, found, strict=True)}

    return computed


def logits(parameters: dict[str, Tensor], config: ModelConfig, tokens: Tensor) -> Tensor:
    """Score every character as the next one, (batch, tokens, vocabulary)."""
    x = F.embedding(tokens, parameters["embedding"])
    turn = torch.from_numpy(turns(tokens.shape[1], config, parameters["embedding"].detach().numpy().dtype))
    for layer in range(config.layers):
        its = {name.partition(".")[2]: p for name, p in parameters.items() if name.startswith(f"{layer}.")}
        normed = _rms_norm(x, its["attention_gain"])
        query, key = (_rotated(normed @ its[name], turn) for name in ("query", "key"))
        heads = (
            part.unflatten(-1, (config.heads, config.head_dim)).transpose(1, 2)
            for part in (query, key, normed @ its["value"])
        )
        found = attention(*heads, span=parameters["span"][layer], ramp=config.ramp)
        x = x + found.transpose(1, 2).flatten(2) @ its["project"]
        normed = _rms_norm(x, its["hidden_gain"])
        x = x + F.relu(normed @ its["expand"]).square() @ its["contract"]
    return _rms_norm(x, parameters["gain"]) @ parameters["head"]


def _rms_norm(x: Tensor, gain: Tensor) -> Tensor:
    return F.rms_norm(x, gain.shape, gain, NORM_EPSILON)


def _rotated(x: Tensor, turn: Tensor) -> Tensor:
    """Turn neighbouring channels, the parts of a complex number, as `headspan.demo.layers.rotate` does."""
    planes = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    return torch.view_as_real(planes * turn).flatten(-2)
