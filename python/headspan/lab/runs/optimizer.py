"""The Adam optimizer and its learning rate schedule."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]

EPSILON = 1e-8


def schedule(step: int, steps: int, warmup: int, final: float = 0.0) -> float:
    """Return the factor of the peak learning rate at step 0, 1, ... of `steps`.

    The factor rises linearly over the first `warmup` steps and then falls to `final` along a cosine.
    """
    if step < warmup:
        return (step + 1) / warmup
    progress = (step - warmup) / max(1, steps - warmup)
    return final + (1 - final) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


@dataclass
class Adam:
    """Adam with decoupled weight decay, which updates a dict of arrays in place.

    Attributes
    ----------
    beta1, beta2 : float
        Decay rates of the running means of the gradient and of its square.
    mean, square : dict of str to ndarray
        The running means of the gradient and of its square, by parameter name.
    """

    beta1: float = 0.9
    beta2: float = 0.98
    mean: Arrays = field(default_factory=dict)
    square: Arrays = field(default_factory=dict)

    def update(
        self,
        parameters: Arrays,
        gradients: Arrays,
        *,
        step: int,
        rates: dict[str, float],
        decays: dict[str, float],
    ) -> None:
        """Apply update number `step`, counted from 0, with a learning rate and a decay for each parameter."""
        unbias1 = 1 - self.beta1 ** (step + 1)
        unbias2 = 1 - self.beta2 ** (step + 1)
        for name, value in parameters.items():
            gradient = gradients[name]
            mean = self.mean.setdefault(name, np.zeros_like(value))
            square = self.square.setdefault(name, np.zeros_like(value))
            mean *= self.beta1
            scratch = gradient * value.dtype.type(1 - self.beta1)
            mean += scratch
            square *= self.beta2
            np.multiply(gradient, gradient, out=scratch)
            scratch *= 1 - self.beta2
            square += scratch
            np.multiply(square, 1 / unbias2, out=scratch)
            np.sqrt(scratch, out=scratch)
            scratch += EPSILON
            np.divide(mean, scratch, out=scratch)
            scratch *= rates[name] / unbias1
            if decays[name]:
                value *= 1 - rates[name] * decays[name]
            value -= scratch
