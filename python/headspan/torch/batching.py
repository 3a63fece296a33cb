"""`torch.func.vmap` of attention and of its gradient: the mapped axis is folded into that of the batch.

Where an argument has no axis of batch items (memory keys, tables of biases), and for dropout, which goes by the number
of the batch item, the calls are made one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from headspan.ops.functional import ARRAYS
from headspan.torch.schema import SAVED, TENSORS

_Tensors = Sequence[torch.Tensor | None]
# How many axes there are, in full, of what has an axis of batch items, which is the first of them.
_AXES = dict.fromkeys((*ARRAYS, "grad_out", "out", "statistics", "pair_bias"), 4)
_AXES |= dict.fromkeys(("grad_lse", "span", "temperature", "key_bias", "key_ranges"), 3)
_AXES |= dict.fromkeys(("alibi_slopes", "sinks", "query_positions", "key_positions"), 2)
_AXES |= dict.fromkeys(("segment_ids", "query_segments", "key_segments"), 2)
_AXES |= dict.fromkeys(("key_begin", "key_lengths", "prefix_lengths"), 1)
_PER_TOKEN = ("span", "temperature")  # or without their last axis


class _Fold(NamedTuple):
    """The mapped axis, and the batch of each call."""

    size: int
    batch: int
    ndim: int  # of the query of each call

    def full(self, name: str, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of an argument of one call with all axes."""
        if name in _PER_TOKEN and len(shape) < self.ndim - 1:
            shape = (*shape, 1)
        return (1,) * (_AXES[name] - len(shape)) + tuple(shape)

    def fold(self, name: str, tensor: torch.Tensor, mapped: bool, needed: bool) -> torch.Tensor:
        """Bring an argument to all its axes, for the batch items of all calls; what all share stays as it is."""
        if name not in _AXES:
            return tensor
        form = self.full(name, tensor.shape[1:] if mapped else tensor.shape)
        if not (mapped or needed or form[0] > 1 or name in ARRAYS or name in SAVED):
            return tensor.reshape(form)
        each = tensor.reshape(-1 if mapped else 1, *form)
        return each.expand(self.size, self.batch, *form[1:]).flatten(0, 1)

    def unfold(self, result: torch.Tensor) -> torch.Tensor:
        """Take apart what each call gives."""
        parts = result.unflatten(0, (self.size, self.batch))
        return parts if self.ndim == 4 else parts[(slice(None), *(0,) * (4 - self.ndim))]

    def unfold_gradient(self, name: str, gradient: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
        """Take apart the gradient of an argument of that shape, over all batch items that shared it."""
        parts = gradient.unflatten(0, (self.size, self.batch))
        if self.full(name, shape)[0] == 1:
            parts = parts.sum(1)
        return parts.reshape(self.size, *shape)


def forward_rule(op: Callable[..., list[torch.Tensor]]) -> Callable[..., Any]:
    """Return the rule of the operator of attention."""

    def rule(info: Any, in_dims: Sequence[int | None], *given: Any, **plain: Any) -> Any:
        tensors, mapped = _in_front(given, in_dims)
        if not _foldable(TENSORS, mapped, plain):
            return _one_by_one(op, info.batch_size, tensors, mapped, plain)
        fold = _fold(info.batch_size, tensors[0], mapped[0])
        folded = _folded(fold, TENSORS, tensors, mapped, [False] * len(tensors))
        return _all([fold.unfold(result) for result in op(*folded, **plain)])

    return rule


def backward_rule(op: Callable[..., list[torch.Tensor]]) -> Callable[..., Any]:
    """Return the rule of the operator of its gradient."""
    names = (*SAVED, *TENSORS)

    def rule(info: Any, in_dims: Sequence[int | None], *given: Any, needs: Sequence[bool], **plain: Any) -> Any:
        tensors, mapped = _in_front(given, in_dims)
        needed = [False] * len(SAVED) + list(needs) + [False] * (len(names) - len(SAVED) - len(needs))
        if not _foldable(names, [a or b for a, b in zip(mapped, needed, strict=False)], plain):
            return _one_by_one(op, info.batch_size, tensors, mapped, plain | {"needs": needs})
        fold = _fold(info.batch_size, tensors[len(SAVED)], mapped[len(SAVED)])
        folded = _folded(fold, names, tensors, mapped, needed)
        wanted = [(n, x.shape[m:]) for n, x, m, its in zip(names, tensors, mapped, needed, strict=False) if its]
        found = zip(wanted, op(*folded, needs=needs, **plain), strict=True)
        return _all([fold.unfold_gradient(name, gradient, shape) for (name, shape), gradient in found])

    return rule


def _in_front(given: Sequence[Any], in_dims: Sequence[int | None]) -> tuple[list[Any], list[bool]]:
    tensors = [x if axis is None else x.movedim(axis, 0) for x, axis in zip(given, in_dims, strict=True)]
    return tensors, [axis is not None for axis in in_dims]


def _foldable(names: Sequence[str], concerned: Sequence[bool], plain: dict[str, Any]) -> bool:
    """Whether all that is mapped, or has a gradient for each call, has an axis of batch items."""
    return not plain.get("dropout") and all(name in _AXES for name, its in zip(names, concerned, strict=False) if its)


def _fold(size: int, query: torch.Tensor, mapped: bool) -> _Fold:
    ndim = query.ndim - mapped
    return _Fold(size, query.shape[-4] if ndim == 4 else 1, ndim)


def _folded(fold: _Fold, names: Sequence[str], tensors: _Tensors, mapped: Sequence[bool], needed: Any) -> list[Any]:
    arguments = zip(names, tensors, mapped, needed, strict=False)
    return [None if x is None else fold.fold(name, x, its, wanted) for name, x, its, wanted in arguments]


def _one_by_one(op: Any, size: int, tensors: _Tensors, mapped: Sequence[bool], plain: dict[str, Any]) -> Any:
    calls = [
        op(*[x[i] if x is not None and its else x for x, its in zip(tensors, mapped, strict=True)], **plain)
        for i in range(size)
    ]
    return _all([torch.stack(each) for each in zip(*calls, strict=True)])


def _all(results: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[int]]:
    return results, [0] * len(results)
