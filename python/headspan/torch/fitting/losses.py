"""Losses of a fit: distance to the model's own predictions, loss of the next token, and a loss of the caller."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from headspan.torch.fitting.data import scalar

Loss = Callable[[nn.Module, Any], torch.Tensor]


class Losses:
    """The loss of a model, and its increase over full attention.

    Parameters
    ----------
    model : Module
    loss : callable, optional
        ``loss(model, batch)``; the loss of the next token by default.
    distills : bool
        Whether the increase is the distance to the model's own predictions with full attention.
    """

    def __init__(self, model: nn.Module, loss: Loss | None, distills: bool) -> None:
        self._model = model
        self._loss = next_token_loss if loss is None else loss
        self._distills = distills
        self._full: dict[int, float] = {}

    def loss(self, batch: Any) -> torch.Tensor:
        """Return the mean loss of a batch, as it is measured and reported."""
        return self._loss(self._model, batch)

    def increase(self, number: int, batch: Any, full: Callable[[], object], part: Callable[[], object]) -> torch.Tensor:
        """Return the increase of the loss of batch `number` with spans over full attention, with a gradient.

        `full` and `part` set full attention and the spans in the model.
        """
        if self._distills:
            full()
            with torch.no_grad():
                expected = _log_probabilities(self._model, batch)
            part()
            seen = _log_probabilities(self._model, batch)
            return F.kl_div(seen, expected, reduction="sum", log_target=True) / seen[..., 0].numel()
        if number not in self._full:
            full()
            with torch.no_grad():
                self._full[number] = float(scalar(self.loss(batch)))
        part()
        return scalar(self.loss(batch)) - self._full[number]


def next_token_loss(model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy of the tokens in the second half of each window, in nats."""
    logits = _logits(model, ids)
    return F.cross_entropy(logits.flatten(0, 1).float(), ids[:, -logits.shape[1] :].flatten())


def _log_probabilities(model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    return _logits(model, ids).float().log_softmax(dim=-1)


def _logits(model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """Return the logits of the tokens in the second half of each window, each given the tokens before."""
    predicted = ids.shape[1] - ids.shape[1] // 2
    options: dict[str, Any] = {"use_cache": False}
    if "logits_to_keep" in inspect.signature(model.forward).parameters:
        options["logits_to_keep"] = predicted + 1  # saves the memory of all others
    logits = getattr(model(ids, **options), "logits", None)
    kept = (len(ids), options.get("logits_to_keep", ids.shape[1]))
    if logits is None or logits.ndim != 3 or logits.shape[:2] != kept or logits.shape[2] <= int(ids.max()):
        got = "no logits" if logits is None else f"shape {tuple(logits.shape)}"
        raise ValueError(
            f"model must return logits of shape (windows, tokens, vocabulary) if no loss is given, got {got} from "
            f"{type(model).__name__}; pass a loss, or a model for causal language modelling"
        )
    return logits[:, -predicted - 1 : -1]
