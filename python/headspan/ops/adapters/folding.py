"""Calls of attention that are mapped (`vmap`) as one of a larger batch.

Where an argument has no axis of batch items (memory keys, tables of biases), and for dropout, which goes by the number
of the batch item, that cannot be, and the calls are made one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from headspan.ops.adapters.options import AXES, PER_TOKEN, SAVED
from headspan.ops.functional import ARRAYS


class Fold(NamedTuple):
    """The mapped axis, and the batch of each call."""

    size: int
    batch: int
    ndim: int  # of the query of each call
    broadcast: Callable[[Any, Any], Any]  # (tensor, shape), the framework's

    def full(self, name: str, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of an argument of one call with all axes."""
        if name in PER_TOKEN and len(shape) < self.ndim - 1:
            shape = (*shape, 1)
        return (1,) * (len(AXES[name]) - len(shape)) + tuple(shape)

    def fold(self, name: str, tensor: Any, mapped: bool, needed: bool) -> Any:
        """Bring an argument to all its axes, for the batch items of all calls; what all share stays as it is."""
        if not _has_items(name):
            return tensor
        form = self.full(name, tensor.shape[1:] if mapped else tensor.shape)
        if not (mapped or needed or form[0] > 1 or name in ARRAYS or name in SAVED):
            return tensor.reshape(form)
        each = tensor.reshape((self.size if mapped else 1, *form))
        inner = form[1:]
        return self.broadcast(each, (self.size, self.batch, *inner)).reshape((self.size * self.batch, *inner))

    def unfold(self, result: Any) -> Any:
        """Take apart what each call gives."""
        parts = result.reshape((self.size, self.batch, *result.shape[1:]))
        return parts if self.ndim == 4 else parts[(slice(None), *(0,) * (4 - self.ndim))]

    def unfold_gradient(self, name: str, gradient: Any, shape: Sequence[int]) -> Any:
        """Take apart the gradient of an argument of that shape, over all batch items that shared it."""
        parts = gradient.reshape((self.size, self.batch, *gradient.shape[1:]))
        if self.full(name, shape)[0] == 1:
            parts = parts.sum(1)
        return parts.reshape((self.size, *shape))


def _has_items(name: str) -> bool:
    return AXES.get(name, "").startswith("b")


def foldable(names: Sequence[str], concerned: Sequence[bool], dropout: Any) -> bool:
    """Whether all that is mapped, or has a gradient for each call, has an axis of batch items."""
    return not dropout and all(_has_items(name) for name, its in zip(names, concerned, strict=False) if its)
