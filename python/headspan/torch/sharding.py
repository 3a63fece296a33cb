"""Attention on `DTensor`s: every rank computes its own shards of heads or of batch items.

The first `DTensor` imports this module. The gradient of a tensor that shards share is the sum over the shards.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from headspan.ops.adapters.options import AXES, PER_TOKEN
from headspan.patterns.base import Pattern
from headspan.torch import operator
from headspan.torch.private import register_shardings
from headspan.torch.schema import PLAIN, SAVED, TENSORS, read_pattern

# How the work is divided along an axis of the mesh: not at all, by batch items, by heads.
_KINDS = ("", "b", "h")


def replicated(mesh: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Convert plain tensors to replicated ones, as torch does with tensors of one element."""
    placements = [Replicate()] * mesh.ndim
    return {
        name: DTensor.from_local(x, mesh, placements, run_check=False)
        if isinstance(x, torch.Tensor) and not isinstance(x, DTensor)
        else x
        for name, x in options.items()
    }


def _axis(name: str, shape: Sequence[int], kind: str, ndim: int) -> int | None:
    """Return the axis that `kind` shards, or None if all ranks need the tensor; a query has `ndim` axes."""
    axes = AXES[name]
    if name in PER_TOKEN and len(shape) < ndim - 1:
        axes = axes[:-1]
    axis = axes[len(axes) - len(shape) :].find(kind) if kind else -1
    return axis if axis >= 0 and shape[axis] > 1 else None


def _kinds(mesh: Any, shapes: Mapping[str, Sequence[int]], plain: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the valid divisions of the work: a kind for each axis of the mesh."""
    spec = plain.get("pattern")
    pattern = None if spec is None else read_pattern(spec)
    shared = pattern is None or (isinstance(pattern, Pattern) and pattern.is_shared and not pattern.grid)
    for kinds in itertools.product(_KINDS, repeat=mesh.ndim):
        parts = math.prod(mesh.size(axis) for axis, kind in enumerate(kinds) if kind == "h")
        # Dropout and unshared patterns depend on the indices of the head and of the batch item.
        if any(kinds) and (plain.get("dropout") or not shared):
            continue
        key_heads = shapes["key"][-3] if len(shapes["key"]) > 2 else 1
        # Query heads stay on the rank of their key head.
        if key_heads == 1 or key_heads % parts == 0:
            yield kinds


def _shardings(results: Any) -> Any:
    """Return the function that lists the shardings of an operator with these results."""

    def shardings(mesh: Any, shapes: Mapping[str, Sequence[int]], plain: Mapping[str, Any]) -> Iterator[Any]:
        ndim = len(shapes["query"])
        for kinds in _kinds(mesh, shapes, plain):
            axes = {name: [_axis(name, shape, kind, ndim) for kind in kinds] for name, shape in shapes.items()}
            if any(kind and axis is None for kind, axis in zip(kinds, axes["query"], strict=True)):
                continue
            placed = {
                name: [Replicate() if axis is None else Shard(axis) for axis in dims] for name, dims in axes.items()
            }
            outputs = [
                [Partial() if summed and kind and axis is None else placement for kind, axis, placement in triples]
                for name, summed in results(plain)
                if (triples := list(zip(kinds, axes[name], placed[name], strict=True)))
            ]
            yield placed, outputs

    return shardings


def _forward_results(plain: Mapping[str, Any]) -> list[tuple[str, bool]]:
    """Return for each result the tensor that it is sharded like, and whether shards are summed."""
    return [("query", False)] * (1 + bool(plain.get("return_lse")) + bool(plain.get("return_statistics")))


def _backward_results(plain: Mapping[str, Any]) -> list[tuple[str, bool]]:
    return [(name, True) for name, needed in zip(TENSORS, plain["needs"], strict=False) if needed]


for _op, _names, _results, _flags in (
    (operator.attention, TENSORS, _forward_results, ("return_lse", "return_statistics")),
    (operator.attention_backward, (*SAVED, *TENSORS), _backward_results, ("needs",)),
):
    register_shardings(_op, _names, (*PLAIN, *_flags), _shardings(_results))
