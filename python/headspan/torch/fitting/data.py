"""Data of a fit: windows of texts, and batches of windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from headspan import _check

TOKENS = 1024  # default length of the windows of a text


class Data:
    """Batches of windows, in one order for losses and in another for the steps of a descent.

    Parameters
    ----------
    name : str
        Name of the argument in error messages.
    data : Tensor or sequence
        A tensor of windows, which is split into batches of `batch` windows; or a sequence of equally weighted batches.
    batch : int
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

    def mean(self, loss: Callable[[Any], torch.Tensor]) -> float:
        """Return the mean of a loss over all batches."""
        with torch.no_grad():
            losses = [float(scalar(loss(batch))) for batch in self.batches]
        return float(np.dot(losses, self.shares))

    def of_step(self, step: int) -> int:
        """Return the index of the batch of a step: all batches in random order, then all in another order, ..."""
        epoch, place = divmod(step, len(self.batches))
        return int(np.random.default_rng(epoch).permutation(len(self.batches))[place])


def scalar(value: Any) -> torch.Tensor:
    """Return the loss that a function of the caller returned, or raise an error if it is not one number."""
    if not isinstance(value, torch.Tensor) or value.numel() != 1:
        raise TypeError(f"loss must return a tensor of one number, not {_check.describe(value)}")
    return value.reshape(())


def windows_of(name: str, texts: Any, tokenizer: Any, tokens: int) -> torch.Tensor:
    """Cut texts into windows of token ids, (windows, tokens); what is left at the end of each text is dropped.

    Each window begins with the token that the tokenizer puts before a text, if there is one.
    """
    texts = [texts] if isinstance(texts, str) else _check.sequence(name, texts, "texts")
    if not all(isinstance(text, str) for text in texts):
        raise TypeError(f"{name} must be a text or a sequence of texts if a tokenizer is given")
    before = [token for token in tokenizer("").input_ids if token == tokenizer.bos_token_id]
    size = tokens - len(before)
    windows: list[list[int]] = []
    for text in texts:
        ids = tokenizer(text, add_special_tokens=False, verbose=False).input_ids
        windows += [before + ids[start : start + size] for start in range(0, len(ids) - size + 1, size)]
    if not windows:
        raise ValueError(f"{name} must contain a text of at least {size} tokens, the length of a window")
    return torch.tensor(windows)


def evenly(data: Any, count: int) -> Any:
    """Return at most `count` windows or batches, evenly spaced."""
    if len(data) <= count:
        return data
    places = [int(place) for place in np.linspace(0, len(data) - 1, count)]
    return data[places] if isinstance(data, torch.Tensor) else [data[place] for place in places]
