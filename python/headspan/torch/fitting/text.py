"""Measurements for fitting: the loss of a model on data, and the attention mass of its heads by distance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from headspan import _check
from headspan.torch.transformers.recording import record

_ROWS = 512  # number of queries that estimate the attention mass of a sequence
_ROWS_AT_ONCE = 32

Loss = Callable[[nn.Module, Any], torch.Tensor]


def next_token_loss(model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy of next-token prediction, in nats."""
    logits = getattr(model(ids, use_cache=False), "logits", None)
    if logits is None or logits.ndim != 3 or logits.shape[:2] != ids.shape or logits.shape[2] <= int(ids.max()):
        got = "no logits" if logits is None else f"shape {tuple(logits.shape)}"
        raise ValueError(
            f"model must return logits of shape (windows, tokens, vocabulary) if no loss is given, got {got} from "
            f"{type(model).__name__}; pass a loss, or a model for causal language modelling"
        )
    return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())


class Data:
    """Batches with their weights in the mean loss.

    Parameters
    ----------
    name : str
        Name of the argument in error messages.
    data : Tensor or sequence
        A tensor of windows, which is split into batches of `batch` windows; or a sequence of equally weighted batches.
    """

    def __init__(self, name: str, data: Any, batch: int) -> None:
        if isinstance(data, torch.Tensor):
            if data.ndim < 2 or 0 in data.shape:
                raise ValueError(f"{name} must be of shape (windows, tokens, ...), not {tuple(data.shape)}")
            self.batches: Sequence[Any] = data.split(batch)
            self.shares = [len(windows) / len(data) for windows in self.batches]
        else:
            self.batches = _check.sequence(name, data, "batches, or a tensor of windows")
            if not self.batches:
                raise ValueError(f"{name} must contain at least one batch")
            self.shares = [1 / len(self.batches)] * len(self.batches)

    def loss(self, model: nn.Module, loss: Loss) -> float:
        """Return the mean loss."""
        with torch.no_grad():
            losses = [float(_scalar(loss(model, batch))) for batch in self.batches]
        return float(np.dot(losses, self.shares))

    def gradient(self, model: nn.Module, loss: Loss, spans: list[torch.Tensor]) -> tuple[float, list[torch.Tensor]]:
        """Return the mean loss and its gradients with respect to the spans that the model uses."""
        total, sums = 0.0, [torch.zeros(span.shape, dtype=torch.float64) for span in spans]
        for batch, share in zip(self.batches, self.shares, strict=True):
            with torch.enable_grad():
                value = _scalar(loss(model, batch))
                if not value.requires_grad:
                    raise ValueError("loss must depend on the spans of the model, but has no gradient for them")
                slopes = torch.autograd.grad(value, spans, allow_unused=True)
            total += share * float(value.detach())
            for partial_sum, slope in zip(sums, slopes, strict=True):
                if slope is not None:
                    partial_sum += share * slope.detach().to("cpu", torch.float64)
        return total, sums


def _scalar(value: Any) -> torch.Tensor:
    if not isinstance(value, torch.Tensor) or value.numel() != 1:
        raise TypeError(f"loss must return a tensor of one number, not {_check.describe(value)}")
    return value.reshape(())


def mass_by_distance(model: nn.Module, attentions: Sequence[nn.Module], ids: torch.Tensor) -> npt.NDArray[np.float64]:
    """Return the attention mass of each head at each distance, (layers, heads, tokens), for the first window of `ids`.

    To save memory, the model runs once for each layer and keeps only the queries and keys of that layer. The attention
    map is computed for evenly spaced queries, a few rows at a time.
    """
    tokens = ids.shape[1]
    rows = np.unique(np.linspace(0, tokens - 1, min(_ROWS, tokens)).astype(int))
    masses = []
    for attention in attentions:
        with torch.no_grad(), record(attention) as layers:
            model(ids[:1], use_cache=False)
        (layer,) = layers.values()
        mass = np.zeros((layer.query.shape[1], tokens))
        for chunk in np.array_split(rows, -(-len(rows) // _ROWS_AT_ONCE)):
            for row, weights in zip(chunk, np.moveaxis(layer.weights(rows=chunk)[0], 1, 0), strict=True):
                mass[:, : row + 1] += weights[:, row::-1]
        masses.append(mass)
    return np.stack(masses)
