"""The engine that computes gradients with the package autograd on NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headspan.autograd import value_and_grad
from headspan.lab.model import Parameters, layers

__all__ = ["gradient", "layers"]


def gradient(function: Callable[[Any], Any], parameters: Parameters) -> Parameters:
    """Return the gradient of a scalar function with respect to each parameter."""
    gradients: Parameters = value_and_grad(function)(parameters)[1]
    return gradients
