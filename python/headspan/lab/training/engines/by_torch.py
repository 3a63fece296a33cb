"""The engine that computes gradients with PyTorch on tensors that share the memory of the parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headspan.lab.training.engines import torch_layers as layers  # first, since its error names the missing extra

# isort: split
import torch

from headspan.lab.model import Parameters

__all__ = ["gradient", "layers"]


def gradient(function: Callable[[Any], Any], parameters: Parameters) -> Parameters:
    """Return the gradient of a scalar function with respect to each parameter."""
    tensors = {name: torch.from_numpy(array).requires_grad_() for name, array in parameters.items()}
    gradients = torch.autograd.grad(function(tensors), list(tensors.values()))
    return {name: gradient.numpy() for name, gradient in zip(tensors, gradients, strict=True)}
