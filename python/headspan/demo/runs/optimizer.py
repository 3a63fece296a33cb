"""Adam, and the learning rate at each step."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]

EPSILON = 1e-8


def schedule(step: int, steps: int, warmup: int, final: float = 0.0) -> float:
    """Return the share of the learning rate used at step 0, 1, ... of steps.

    It rises in a line over the first `warmup` steps and falls to `final` along a cosine.
    """
    if step < warmup:
        return (step + 1) / warmup
    progress = (step - warmup) / max(1, steps - warmup)
    return final + (1 - final) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


@dataclass
class Adam:
    """Adam with decoupled weight decay, on a dict of arrays changed in place.

    Attributes
    ----------
    beta1, beta2 : float
        Decay of the running mean of the gradient and of its square.
    mean, square : dict of str to ndarray
        Those running means, by name of the parameter.
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
        """Take step number 0, 1, ... with a rate and a decay for every parameter."""
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
