"""The gradient by the package autograd, on arrays of NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headspan.autograd import value_and_grad
from headspan.demo.model import Parameters, layers

__all__ = ["gradient", "layers"]


def gradient(function: Callable[[Any], Any], parameters: Parameters) -> Parameters:
    """Return the gradient of a number that is computed from parameters, by each of them."""
    found: Parameters = value_and_grad(function)(parameters)[1]
    return found
