"""Attention of `DTensor`s: shards of heads, or of batch items, are computed where they are.

Loaded when the first one comes. What is shared by shards has the sum of their gradients.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._op_schema import OpSpec, OpStrategy, RuntimeSchemaInfo
from torch.distributed.tensor._ops.utils import generate_redistribute_costs, is_tensor_shardable

from headspan.ops.adapters.options import AXES, PER_TOKEN
from headspan.patterns.base import Pattern
from headspan.torch import operator
from headspan.torch.schema import PLAIN, SAVED, TENSORS, read_pattern

_KINDS = ("", "b", "h")  # how the work is shared along an axis of the mesh: not at all, by batch items, by heads


def replicated(mesh: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Take plain tensors for the same on all ranks, as torch does with those of one number."""
    everywhere = [Replicate()] * mesh.ndim
    return {
        name: DTensor.from_local(x, mesh, everywhere, run_check=False)
        if isinstance(x, torch.Tensor) and not isinstance(x, DTensor)
        else x
        for name, x in options.items()
    }


def _axis(name: str, shape: Sequence[int], kind: str, ndim: int) -> int | None:
    """Return which axis of a tensor is shared in that way, beside a query of so many axes; none if all need all."""
    axes = AXES[name]
    if name in PER_TOKEN and len(shape) < ndim - 1:
        axes = axes[:-1]
    axis = axes[len(axes) - len(shape) :].find(kind) if kind else -1
    return axis if axis >= 0 and shape[axis] > 1 else None


def _kinds(mesh: Any, shapes: Mapping[str, Sequence[int]], plain: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Return how the work may be shared along the axes of the mesh."""
    written = plain.get("pattern")
    pattern = None if written is None else read_pattern(written)
    shared = pattern is None or (isinstance(pattern, Pattern) and pattern._is_shared and not pattern.grid)
    for kinds in itertools.product(_KINDS, repeat=mesh.ndim):
        parts = math.prod(mesh.size(axis) for axis, kind in enumerate(kinds) if kind == "h")
        if any(kinds) and (plain.get("dropout") or not shared):
            continue  # they go by the number of head and item
        key_heads = shapes["key"][-3] if len(shapes["key"]) > 2 else 1
        if key_heads == 1 or key_heads % parts == 0:  # heads stay with their key heads
            yield kinds


def _strategy(names: Sequence[str], results: Any) -> Any:
    """Return what torch asks for how an operator with these tensors may be computed."""

    def strategy(schema: Any) -> OpStrategy:
        mesh = schema.get_mesh_from_args()
        given = {name: its for name, its in zip(names, schema.args_schema, strict=False) if its is not None}
        shapes = {name: its.shape for name, its in given.items()}
        plain, ndim = schema.kwargs_schema, len(shapes["query"])
        specs = []
        for kinds in _kinds(mesh, shapes, plain):
            axes = {name: [_axis(name, shape, kind, ndim) for kind in kinds] for name, shape in shapes.items()}
            if any(kind and axis is None for kind, axis in zip(kinds, axes["query"], strict=True)):
                continue
            placed = {
                name: [Replicate() if axis is None else Shard(axis) for axis in its] for name, its in axes.items()
            }
            inputs = [
                DTensorSpec(mesh, tuple(placed[name]), tensor_meta=its.tensor_meta) for name, its in given.items()
            ]
            if not all(is_tensor_shardable(its.shape, spec) for its, spec in zip(given.values(), inputs, strict=True)):
                continue
            outputs = [
                [Partial() if summed and kind and axis is None else at for kind, axis, at in each]
                for name, summed in results(plain)
                if (each := list(zip(kinds, axes[name], placed[name], strict=True)))
            ]
            costs = [generate_redistribute_costs(its, spec) for its, spec in zip(given.values(), inputs, strict=True)]
            specs.append(OpSpec(tuple(DTensorSpec(mesh, tuple(its)) for its in outputs), inputs, costs))
        return OpStrategy(specs)

    return strategy


def _forward_results(plain: Mapping[str, Any]) -> list[tuple[str, bool]]:
    """Return as what results are shared, and whether those of shards are summed."""
    return [("query", False)] * (1 + bool(plain.get("return_lse")) + bool(plain.get("return_statistics")))


def _backward_results(plain: Mapping[str, Any]) -> list[tuple[str, bool]]:
    return [(name, True) for name, needed in zip(TENSORS, plain["needs"], strict=False) if needed]


for _op, _names, _results, _flags in (
    (operator.attention, TENSORS, _forward_results, ("return_lse", "return_statistics")),
    (operator.attention_backward, (*SAVED, *TENSORS), _backward_results, ("needs",)),
):
    DTensor._op_dispatcher.sharding_propagator.register_op_strategy(
        _op,
        _strategy(_names, _results),
        RuntimeSchemaInfo(len(_names), [*PLAIN, *_flags], needs_pytree=True),
    )
