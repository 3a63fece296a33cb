"""The layers of `headspan.lab.model.layers` on tensors. The order of summation can differ."""

from __future__ import annotations

from typing import Any

from headspan.torch import attention  # imported first, since its error names the missing extra

# isort: split
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from headspan.lab.model.layers import NORM_EPSILON

__all__ = ["attention"]


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """Return ``x @ weight``."""
    return x @ weight


def embed(table: Tensor, tokens: NDArray[Any]) -> Tensor:
    """Return the rows of `table` at the indices `tokens`."""
    return F.embedding(torch.from_numpy(tokens), table)


def rms_norm(x: Tensor, gain: Tensor) -> Tensor:
    """Scale `x` to a mean square of 1 and multiply it by `gain`."""
    return F.rms_norm(x, gain.shape, gain, NORM_EPSILON)


def squared_relu(x: Tensor) -> Tensor:
    """Return ``max(x, 0)**2``."""
    return F.relu(x).square()


def rotate(x: Tensor, turn: NDArray[Any]) -> Tensor:
    """Multiply pairs of neighbouring channels, as complex numbers, by `turn`."""
    planes = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    return torch.view_as_real(planes * torch.from_numpy(turn)).flatten(-2)


def mix(x: Tensor, taps: Tensor) -> Tensor:
    """Convolve each channel of `x` causally with `taps`."""
    padded = F.pad(x, (0, 0, len(taps) - 1, 0))
    first = len(taps) - 1
    return torch.stack([padded[:, first - back :][:, : x.shape[1]] * tap for back, tap in enumerate(taps)]).sum(0)


def dynamic_span(x: Tensor, weight: Tensor, bias: Tensor, max_span: float) -> Tensor:
    """Return the predicted spans of the tokens `x`."""
    return max_span * F.linear(x, weight, bias).sigmoid().transpose(1, 2)


def join(before: Tensor, x: Tensor) -> Tensor:
    """Concatenate `before` and `x` along the axis of tokens."""
    return torch.cat([before, x], 1)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """Reshape `x` from (batch, tokens, width) to (batch, heads, tokens, head_dim)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """Reshape `x` from (batch, heads, tokens, head_dim) to (batch, tokens, width)."""
    return x.transpose(1, 2).flatten(2)


def cross_entropy(scores: Tensor, targets: NDArray[Any]) -> Tensor:
    """Return the mean of ``-log softmax(scores)[target]``, in nats."""
    return F.cross_entropy(scores.flatten(0, 1), torch.from_numpy(targets).flatten())


def value_of(x: Any) -> Any:
    """Return a tensor as a detached NumPy array, and any other value unchanged."""
    return x.detach().numpy() if isinstance(x, Tensor) else x


def constant(x: NDArray[Any]) -> Tensor:
    """Return an array in the form that these layers accept."""
    return torch.from_numpy(np.ascontiguousarray(x))
