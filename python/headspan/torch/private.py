"""The private names of PyTorch that headspan uses, as functions that say why no public name serves.

All other modules call these functions. `tests/integrations/torch/test_private.py` reports what a new version lacks.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import torch
from torch.autograd import forward_ad

F = TypeVar("F", bound=Callable[..., Any])

# ---- what is active


def is_transformed() -> bool:
    """Whether a transform of `torch.func` is active; `torch.func` has no such question."""
    active: bool = torch._C._are_functorch_transforms_active()
    return active


def is_in_forward_mode() -> bool:
    """Whether forward-mode derivatives are active; `torch.autograd.forward_ad` only enters and leaves a level."""
    active: bool = forward_ad._current_level >= 0
    return active


def is_observed() -> bool:
    """Whether a mode, a transform, forward mode, a tracer or a profiler must see every call of an operator.

    Except for the tracer, PyTorch has no public question for what is active. This is one function, because every call
    of attention asks for all of them.
    """
    return bool(
        torch._C._len_torch_dispatch_stack()
        or torch._C._len_torch_function_stack()
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
        or torch.jit.is_tracing()
        or torch.autograd._profiler_enabled()
    )


def version_of(tensor: torch.Tensor) -> int:
    """Return how often a tensor was written to; PyTorch documents the number only for errors of autograd."""
    version: int = tensor._version
    return version


# ---- automatic differentiation


def enable_forward_mode() -> AbstractContextManager[None]:
    """Return a context in which operations are recorded for forward mode, the counterpart of `torch.enable_grad`."""
    context: AbstractContextManager[None] = forward_ad._set_fwd_grad_enabled(True)
    return context


def enable_functions_of_one_level() -> AbstractContextManager[None]:
    """Return a context for `apply_at_one_level` within `torch.func`, which otherwise allows `Function.apply` alone."""
    from torch._functorch.autograd_function import enable_single_level_autograd_function

    context: AbstractContextManager[None] = enable_single_level_autograd_function()
    return context


def apply_at_one_level(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    """Apply a function at one level of `torch.func` or at none.

    `Function.apply` would restart dispatch at the outermost level, but an autograd kernel is already at its level.
    """
    return super(torch.autograd.Function, function).apply(*arguments)


# ---- dispatch


def keys_below_autograd(keys: Any) -> Any:
    """Return the dispatch keys that come after autograd; kernels get key sets, but PyTorch documents no use of them."""
    return keys & torch._C._after_autograd_keyset


@functools.cache
def cpu_keys() -> Any:
    """Return the dispatch keys of a plain CPU tensor after autograd, which have no public constructor."""
    return torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)


def redispatch_below_autograd(op: Any, keys: Any, *tensors: Any, **plain: Any) -> Any:
    """Call an operator for these dispatch keys; a public call would start at the first key and differentiate again."""
    with torch._C._AutoDispatchBelowAutograd():
        return op.redispatch(keys, *tensors, **plain)


# ---- the compiler


def constant_when_compiled(function: F) -> F:
    """Mark a function as constant for given arguments, on which `torch.compile` guards.

    The public `torch.compiler.assume_constant_result` imports the compiler, which takes a second.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def is_compiler_loaded() -> bool:
    """Whether `torch.compile` has been used; what is public in `torch.compiler` imports the compiler."""
    return "torch._dynamo" in sys.modules


def assert_on_device(condition: torch.Tensor, message: str) -> None:
    """Raise an error when a condition computed on the device is false; it may occur later and within compiled code.

    A Python `assert` would wait for the device, and it would end the graph of the compiler.
    """
    torch._assert_async(condition, message)


# ---- tensors and modules


def ragged_axis(nested: torch.Tensor) -> int:
    """Return the axis along which the parts of a jagged tensor differ in length; it has no public attribute."""
    axis: int = nested._ragged_idx
    return axis


def disable_fast_path(attention: torch.nn.MultiheadAttention) -> None:
    """Stop the layers of PyTorch from bypassing an attention in eval mode.

    The public `torch.backends.mha.set_fastpath_enabled` would stop it for all attentions of the process.
    """
    attention._qkv_same_embed_dim = False


# ---- distributed tensors


def register_shardings(
    op: Any,
    names: Sequence[str],
    options: Sequence[str],
    shardings: Callable[..., Iterable[tuple[Mapping[str, Sequence[Any]], Sequence[Sequence[Any]]]]],
) -> None:
    """Register how `DTensor` divides the work of an operator; it chooses the valid sharding that moves the least data.

    The public `torch.distributed.tensor.experimental.register_sharding` asks for one axis of the mesh at a time, but
    which heads may be divided depends on all axes.

    Parameters
    ----------
    op : OpOverload
    names : sequence of str
        Names of all tensors of the operator, in their order.
    options : sequence of str
        Names of its keyword arguments.
    shardings : callable
        Receives the mesh, the shapes of the tensors that are not None by name, and the keyword arguments. Returns the
        placements of these tensors by name, in the same order, and those of the results.
    """
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._dtensor_spec import DTensorSpec
    from torch.distributed.tensor._op_schema import OpSpec, OpStrategy, RuntimeSchemaInfo
    from torch.distributed.tensor._ops.utils import generate_redistribute_costs, is_tensor_shardable

    def strategy(schema: Any) -> OpStrategy:
        mesh = schema.get_mesh_from_args()
        tensors = {name: x for name, x in zip(names, schema.args_schema, strict=False) if x is not None}
        specs = []
        for placed, results in shardings(mesh, {name: x.shape for name, x in tensors.items()}, schema.kwargs_schema):
            inputs = [DTensorSpec(mesh, tuple(placed[name]), tensor_meta=x.tensor_meta) for name, x in tensors.items()]
            if not all(is_tensor_shardable(x.shape, spec) for x, spec in zip(tensors.values(), inputs, strict=True)):
                continue
            outputs = tuple(DTensorSpec(mesh, tuple(placements)) for placements in results)
            costs = [generate_redistribute_costs(x, spec) for x, spec in zip(tensors.values(), inputs, strict=True)]
            specs.append(OpSpec(outputs, inputs, costs))
        return OpStrategy(specs)

    information = RuntimeSchemaInfo(len(names), list(options), needs_pytree=True)
    DTensor._op_dispatcher.sharding_propagator.register_op_strategy(op, strategy, information)
