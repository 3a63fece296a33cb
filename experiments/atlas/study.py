"""What the atlas needs to know of a model: how to run it, its data, and its own measure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn


class Study(NamedTuple):
    """A trained model, its data, and its own measure.

    Attributes
    ----------
    model : Module
        The encoder with ``attn_implementation="headspan"``.
    loss : callable
        ``loss(model, batch)`` returns the mean loss of a batch, which the fit lets grow by the tolerance.
    score : callable
        ``score(model, batches)`` returns a second measure that readers know, such as a share of correct answers.
    fitted, held_out : sequence
        Batches for the fit, and others for the results.
    tokens : int
        The number of tokens of the longest text, for which pairs are counted.
    ramp : float
    sha256 : dict
        The SHA-256 of each file of the model and of the data.
    """

    model: nn.Module
    loss: Callable[[nn.Module, Any], Tensor]
    score: Callable[[nn.Module, Sequence[Any]], float]
    fitted: Sequence[Any]
    held_out: Sequence[Any]
    tokens: int
    ramp: float
    sha256: dict[str, str]
