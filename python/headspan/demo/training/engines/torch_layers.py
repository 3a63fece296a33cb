"""The layers of the small language model on tensors, see `headspan.demo.model.layers`; sums are in another order."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from headspan.demo.model.layers import NORM_EPSILON
from headspan.torch import attention

__all__ = ["attention"]


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """Return ``x @ weight``."""
    return x @ weight


def embed(table: Tensor, tokens: NDArray[Any]) -> Tensor:
    """Return the rows of a table."""
    return F.embedding(torch.from_numpy(tokens), table)


def rms_norm(x: Tensor, gain: Tensor) -> Tensor:
    """Return x of unit mean square, times gain."""
    return F.rms_norm(x, gain.shape, gain, NORM_EPSILON)


def squared_relu(x: Tensor) -> Tensor:
    """Return ``max(x, 0)**2``."""
    return F.relu(x).square()


def rotate(x: Tensor, turn: NDArray[Any]) -> Tensor:
    """Turn neighbouring channels, the parts of a complex number."""
    planes = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    return torch.view_as_real(planes * torch.from_numpy(turn)).flatten(-2)


def mix(x: Tensor, taps: Tensor) -> Tensor:
    """Return x with a share of every channel at the tokens before."""
    padded = F.pad(x, (0, 0, len(taps) - 1, 0))
    first = len(taps) - 1
    return torch.stack([padded[:, first - back :][:, : x.shape[1]] * tap for back, tap in enumerate(taps)]).sum(0)


def dynamic_span(x: Tensor, weight: Tensor, bias: Tensor, limit: float) -> Tensor:
    """Return the spans that tokens predict."""
    return limit * F.linear(x, weight, bias).sigmoid().transpose(1, 2)


def join(before: Tensor, x: Tensor) -> Tensor:
    """Return tokens one after another."""
    return torch.cat([before, x], 1)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """Return x (batch, tokens, width) as (batch, heads, tokens, head_dim)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """Return x (batch, heads, tokens, head_dim) as (batch, tokens, width)."""
    return x.transpose(1, 2).flatten(2)


def cross_entropy(scores: Tensor, targets: NDArray[Any]) -> Tensor:
    """Return the mean of ``-log softmax(scores)[target]``, in nats."""
    return F.cross_entropy(scores.flatten(0, 1), torch.from_numpy(targets).flatten())


def value_of(x: Any) -> Any:
    """Return the array in which a tensor lies."""
    return x.detach().numpy() if isinstance(x, Tensor) else x


def constant(x: NDArray[Any]) -> Tensor:
    """Return an array as these layers take it."""
    return torch.from_numpy(np.ascontiguousarray(x))
