"""`torch.func.vmap` of attention and of its gradient: the mapped axis is folded into that of the batch.

Where that cannot be (see `headspan.ops.adapters.folding`) the calls are made one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from headspan.ops.adapters.folding import Fold, foldable
from headspan.torch.schema import SAVED, TENSORS

_Tensors = Sequence[torch.Tensor | None]


def forward_rule(op: Callable[..., list[torch.Tensor]]) -> Callable[..., Any]:
    """Return the rule of the operator of attention."""

    def rule(info: Any, in_dims: Sequence[int | None], *given: Any, **plain: Any) -> Any:
        tensors, mapped = _in_front(given, in_dims)
        if not foldable(TENSORS, mapped, plain.get("dropout")):
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
        if not foldable(names, [a or b for a, b in zip(mapped, needed, strict=False)], plain.get("dropout")):
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


def _fold(size: int, query: torch.Tensor, mapped: bool) -> Fold:
    ndim = query.ndim - mapped
    return Fold(size, query.shape[-4] if ndim == 4 else 1, ndim, torch.broadcast_to)


def _folded(fold: Fold, names: Sequence[str], tensors: _Tensors, mapped: Sequence[bool], needed: Any) -> list[Any]:
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
