"""`torch.func.vmap` rules of attention and its gradient: the mapped axis is folded into the batch axis.

If folding is impossible (see `headspan.ops.adapters.folding`), the calls are made one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from headspan.ops.adapters.folding import Fold, foldable
from headspan.torch.schema import SAVED, TENSORS

_Tensors = Sequence[torch.Tensor | None]


def forward_rule(op: Callable[..., list[torch.Tensor]]) -> Callable[..., Any]:
    """Return the `vmap` rule of the attention operator."""

    def rule(info: Any, in_dims: Sequence[int | None], *arguments: Any, **plain: Any) -> Any:
        tensors, mapped = _move_axes(arguments, in_dims)
        if not foldable(TENSORS, mapped, plain.get("dropout")):
            return _call_each(op, info.batch_size, tensors, mapped, plain)
        fold = _fold(info.batch_size, tensors[0], mapped[0])
        folded = _fold_all(fold, TENSORS, tensors, mapped, [False] * len(tensors))
        return _with_out_dims([fold.unfold(result) for result in op(*folded, **plain)])

    return rule


def backward_rule(op: Callable[..., list[torch.Tensor]]) -> Callable[..., Any]:
    """Return the `vmap` rule of the gradient operator."""
    names = (*SAVED, *TENSORS)

    def rule(info: Any, in_dims: Sequence[int | None], *arguments: Any, needs: Sequence[bool], **plain: Any) -> Any:
        tensors, mapped = _move_axes(arguments, in_dims)
        needed = [False] * len(SAVED) + list(needs) + [False] * (len(names) - len(SAVED) - len(needs))
        if not foldable(names, [a or b for a, b in zip(mapped, needed, strict=False)], plain.get("dropout")):
            return _call_each(op, info.batch_size, tensors, mapped, plain | {"needs": needs})
        fold = _fold(info.batch_size, tensors[len(SAVED)], mapped[len(SAVED)])
        folded = _fold_all(fold, names, tensors, mapped, needed)
        wanted = [(n, x.shape[m:]) for n, x, m, need in zip(names, tensors, mapped, needed, strict=False) if need]
        gradients = zip(wanted, op(*folded, needs=needs, **plain), strict=True)
        return _with_out_dims([fold.unfold_gradient(name, gradient, shape) for (name, shape), gradient in gradients])

    return rule


def _move_axes(arguments: Sequence[Any], in_dims: Sequence[int | None]) -> tuple[list[Any], list[bool]]:
    tensors = [x if axis is None else x.movedim(axis, 0) for x, axis in zip(arguments, in_dims, strict=True)]
    return tensors, [axis is not None for axis in in_dims]


def _fold(size: int, query: torch.Tensor, mapped: bool) -> Fold:
    ndim = query.ndim - mapped
    return Fold(size, query.shape[-4] if ndim == 4 else 1, ndim, torch.broadcast_to)


def _fold_all(fold: Fold, names: Sequence[str], tensors: _Tensors, mapped: Sequence[bool], needed: Any) -> list[Any]:
    arguments = zip(names, tensors, mapped, needed, strict=False)
    return [None if x is None else fold.fold(name, x, is_mapped, wanted) for name, x, is_mapped, wanted in arguments]


def _call_each(op: Any, size: int, tensors: _Tensors, mapped: Sequence[bool], plain: dict[str, Any]) -> Any:
    calls = [
        op(*[x[i] if x is not None and is_mapped else x for x, is_mapped in zip(tensors, mapped, strict=True)], **plain)
        for i in range(size)
    ]
    return _with_out_dims([torch.stack(results) for results in zip(*calls, strict=True)])


def _with_out_dims(results: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[int]]:
    return results, [0] * len(results)
