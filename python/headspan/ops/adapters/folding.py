"""Mapped calls of attention (`vmap`) as one call with a larger batch.

The calls are made one after another if a mapped argument has no batch axis (persistent keys, tables of biases), and
with dropout, which depends on the index of the batch item.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from headspan.ops.adapters.options import AXES, PER_TOKEN, SAVED
from headspan.ops.execution.functional import ARRAYS


class Fold(NamedTuple):
    """The size of the mapped axis and the batch size of each call."""

    size: int
    batch: int
    ndim: int  # of the query of each call
    broadcast: Callable[[Any, Any], Any]  # the function (tensor, shape) of the framework

    def full(self, name: str, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of an argument of one call, with all axes."""
        if name in PER_TOKEN and len(shape) < self.ndim - 1:
            shape = (*shape, 1)
        return (1,) * (len(AXES[name]) - len(shape)) + tuple(shape)

    def fold(self, name: str, tensor: Any, mapped: bool, needed: bool) -> Any:
        """Return an argument with all axes for the batch items of all calls; shared arguments are not expanded."""
        if not _has_items(name):
            return tensor
        form = self.full(name, tensor.shape[1:] if mapped else tensor.shape)
        if not (mapped or needed or form[0] > 1 or name in ARRAYS or name in SAVED):
            return tensor.reshape(form)
        each = tensor.reshape((self.size if mapped else 1, *form))
        inner = form[1:]
        return self.broadcast(each, (self.size, self.batch, *inner)).reshape((self.size * self.batch, *inner))

    def unfold(self, result: Any) -> Any:
        """Split a result into the results of the calls."""
        parts = result.reshape((self.size, self.batch, *result.shape[1:]))
        return parts if self.ndim == 4 else parts[(slice(None), *(0,) * (4 - self.ndim))]

    def unfold_gradient(self, name: str, gradient: Any, shape: Sequence[int]) -> Any:
        """Split the gradient of an argument of that shape into those of the calls, summed over shared batch items."""
        parts = gradient.reshape((self.size, self.batch, *gradient.shape[1:]))
        if self.full(name, shape)[0] == 1:
            parts = parts.sum(1)
        return parts.reshape((self.size, *shape))


def _has_items(name: str) -> bool:
    return AXES[name].startswith("b")


def foldable(names: Sequence[str], mapped: Sequence[bool], dropout: Any) -> bool:
    """Return whether all arguments that are mapped, or have a gradient per call, have a batch axis."""
    return not dropout and all(_has_items(name) for name, is_mapped in zip(names, mapped, strict=False) if is_mapped)
