"""What is measured: the loss of a model on its data, and where its heads look."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from headspan import _check
from headspan.torch.transformers.recording import record

_ROWS = 512  # queries of a text by which its attention mass is estimated
_ROWS_AT_ONCE = 32

Loss = Callable[[nn.Module, Any], torch.Tensor]


def next_token_loss(model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy of each next token, in nats."""
    logits = model(ids, use_cache=False).logits
    return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())


class Data:
    """Batches, each with its share of the loss.

    Parameters
    ----------
    name : str
        How it is called in errors.
    given : Tensor or sequence
        Windows, cut into batches of `batch`; or batches as they are, which count alike.
    """

    def __init__(self, name: str, given: Any, batch: int) -> None:
        if isinstance(given, torch.Tensor):
            if given.ndim < 2 or 0 in given.shape:
                raise ValueError(f"{name} must be of shape (windows, tokens, ...), not {tuple(given.shape)}")
            self.batches: Sequence[Any] = given.split(batch)
            self.shares = [len(its) / len(given) for its in self.batches]
        else:
            self.batches = _check.sequence(name, given, "batches, or a tensor of windows")
            if not self.batches:
                raise ValueError(f"{name} must hold at least one batch")
            self.shares = [1 / len(self.batches)] * len(self.batches)

    def loss(self, model: nn.Module, loss: Loss) -> float:
        """Return the mean loss."""
        with torch.no_grad():
            each = [float(_scalar(loss(model, its))) for its in self.batches]
        return float(np.dot(each, self.shares))

    def gradient(self, model: nn.Module, loss: Loss, of: list[torch.Tensor]) -> tuple[float, list[torch.Tensor]]:
        """Return the mean loss and its gradients, of tensors that the model computes with."""
        total, sums = 0.0, [torch.zeros(its.shape, dtype=torch.float64) for its in of]
        for batch, share in zip(self.batches, self.shares, strict=True):
            with torch.enable_grad():
                value = _scalar(loss(model, batch))
                if not value.requires_grad:
                    raise ValueError("loss must depend on the spans of the model, and has no gradient for them")
                slopes = torch.autograd.grad(value, of, allow_unused=True)
            total += share * float(value.detach())
            for so_far, slope in zip(sums, slopes, strict=True):
                if slope is not None:
                    so_far += share * slope.detach().to("cpu", torch.float64)
        return total, sums


def _scalar(value: Any) -> torch.Tensor:
    if not isinstance(value, torch.Tensor) or value.numel() != 1:
        raise TypeError(f"loss must return a tensor of one number, not {_check.describe(value)}")
    return value.reshape(())


def mass_by_distance(model: nn.Module, attentions: Sequence[nn.Module], ids: torch.Tensor) -> npt.NDArray[np.float64]:
    """Return the attention mass of each head at each distance, (layers, heads, tokens), for one window of tokens.

    Queries and keys are kept of one layer at a time, for which the model runs anew, and of its map some rows at a time,
    of queries evenly apart.
    """
    tokens = ids.shape[1]
    rows = np.unique(np.linspace(0, tokens - 1, min(_ROWS, tokens)).astype(int))
    found = []
    for attention in attentions:
        with torch.no_grad(), record(attention) as layers:
            model(ids[:1], use_cache=False)
        (layer,) = layers.values()
        mass = np.zeros((layer.query.shape[1], tokens))
        for some in np.array_split(rows, -(-len(rows) // _ROWS_AT_ONCE)):
            for row, weights in zip(some, np.moveaxis(layer.weights(rows=some)[0], 1, 0), strict=True):
                mass[:, : row + 1] += weights[:, row::-1]
        found.append(mass)
    return np.stack(found)
