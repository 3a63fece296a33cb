"""Attention as a torch operator: its schema, its kernels, the shapes of its results, and its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from headspan.ops.execution.functional import ARRAYS, Saved, backward, forward
from headspan.ops.execution.request import Request
from headspan.ops.execution.runtime import empty
from headspan.torch import private, schema
from headspan.torch.arrays import HALF, adjacent_heads, keeps_exact_output, wide_array_of
from headspan.torch.batching import backward_rule, forward_rule
from headspan.torch.schema import TENSORS, WITH_GRADIENT

_OPTIONS = TENSORS[len(ARRAYS) :]
_library = torch.library.Library("headspan", "DEF")
_library.define(schema.FORWARD)
_library.define(schema.BACKWARD)
attention = torch.ops.headspan.attention.default
attention_backward = torch.ops.headspan.attention_backward.default


def _request(tensors: Sequence[Any], plain: dict[str, Any]) -> Request:
    query, key, value, *others = [None if x is None else wide_array_of(x) for x in tensors]
    if others:
        plain |= {name: x for name, x in zip(_OPTIONS, others, strict=False) if x is not None}
    if plain.get("pattern") is not None:
        plain["pattern"] = schema.read_pattern(plain["pattern"])
    if plain.get("seed") is not None:
        plain["seed"] = schema.read_seed(int(plain["seed"]))
    return Request(query, key, value, plain)


def _forward(*tensors: Any, return_lse: bool = False, return_statistics: bool = False, **plain: Any) -> Any:
    request = _request(tensors, plain)
    batch, heads, tokens, _ = request.query.shape
    # The heads of a token are adjacent in memory, so that joining them costs no copy.
    memory = empty((batch, tokens, heads, request.value.shape[3]), request.query.dtype)
    out = request.from_4d(memory.swapaxes(1, 2))
    threads = torch.get_num_threads()
    _, lse, saved = forward(request, out=out, with_lse=return_lse, with_saved=return_statistics, threads=threads)
    exact = torch.from_numpy(out)
    results = [exact if exact.dtype is tensors[0].dtype else exact.to(tensors[0].dtype)]
    if lse is not None:
        results.append(torch.from_numpy(lse))
    if saved is not None:
        if results[0] is not exact:
            results.append(exact)
        results.append(torch.from_numpy(request.from_4d(saved.statistics)))
    return results


def _forward_shapes(*tensors: Any, return_lse: bool = False, return_statistics: bool = False, **plain: Any) -> Any:
    query, _, value, *_ = tensors
    # If any tensor is on "meta", torch asks for shapes only and would return CPU tensors that were never computed.
    for name, x in zip(TENSORS, tensors, strict=False):
        if x is not None and x.is_meta and not query.is_meta:
            raise ValueError(f"{name} must be on the device of query, {query.device}, not on {x.device}")
    exact = torch.float32 if query.dtype in HALF else query.dtype
    shape = (*query.shape[:-1], value.shape[-1])
    results = [adjacent_heads(query, shape)]
    if return_lse:
        results.append(query.new_empty(query.shape[:-1], dtype=exact))
    if return_statistics:
        if query.dtype in HALF and keeps_exact_output(query):
            results.append(adjacent_heads(query, shape, exact))
        results.append(query.new_empty((*query.shape[:-1], 2), dtype=exact))
    return results


def _backward(
    grad_out: Any, grad_lse: Any, out: Any, statistics: Any, *tensors: Any, needs: list[bool], **plain: Any
) -> Any:
    request = _request(tensors, plain)
    saved = Saved(request.to_4d(wide_array_of(out)), request.to_4d(wide_array_of(statistics)))
    names = [name for name, needed in zip(WITH_GRADIENT, needs, strict=False) if needed]
    into = {}
    for name, array in zip(ARRAYS, (request.query, request.key, request.value), strict=True):
        if name in names:
            batch, heads, tokens, dim = array.shape
            into[name] = request.from_4d(empty((batch, tokens, heads, dim), array.dtype).swapaxes(1, 2))
    upstream = (wide_array_of(grad_out), None if grad_lse is None else wide_array_of(grad_lse))
    gradients = backward(request, saved, *upstream, needs=names, into=into, threads=torch.get_num_threads())
    types = [x.dtype for x, needed in zip(tensors, needs, strict=False) if needed]
    results = [torch.from_numpy(gradients[name]) for name in names]
    return [x if x.dtype is dtype else x.to(dtype) for x, dtype in zip(results, types, strict=True)]


def _backward_shapes(
    grad_out: Any, grad_lse: Any, out: Any, statistics: Any, *tensors: Any, needs: list[bool], **plain: Any
) -> Any:
    needed = [x for x, wanted in zip(tensors, needs, strict=False) if wanted]
    arrays = sum(needs[: len(ARRAYS)])
    return [adjacent_heads(x, x.shape) if i < arrays else x.new_empty(x.shape) for i, x in enumerate(needed)]


def _forward_on_gpu(*tensors: Any, **plain: Any) -> Any:
    from headspan.torch.cuda.launch import forward  # imported when first used, as it loads Triton

    with torch.cuda.device_of(tensors[0]):
        return forward(*tensors, **plain)


def _backward_on_gpu(*tensors: Any, **plain: Any) -> Any:
    from headspan.torch.cuda.launch import backward

    with torch.cuda.device_of(tensors[0]):
        return backward(*tensors, **plain)


class _Refusing(torch.autograd.Function):
    """Base class of functions that raise an error for forward-mode derivatives."""

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise NotImplementedError(
            "attention has no forward-mode derivatives; torch.func.vjp, grad and jacrev go backward"
        )


class _Attention(_Refusing):
    @staticmethod
    def forward(ctx: Any, keyset: Any, plain: dict[str, Any], *tensors: Any) -> Any:
        results = _within_function(attention, keyset, *tensors, **plain | {"return_statistics": True})
        ctx.set_materialize_grads(False)
        # Results for the backward pass come last: the output before rounding to 16 bits, and the statistics.
        saved_count = 2 if tensors[0].dtype in HALF and keeps_exact_output(tensors[0]) else 1
        ctx.save_for_backward(results[-2 if saved_count == 2 else 0], results[-1], *tensors)
        ctx.plain = {name: x for name, x in plain.items() if not name.startswith("return_")}
        ctx.with_lse = plain.get("return_lse", False)
        if not plain.get("return_statistics"):
            return tuple(results[:-saved_count])
        ctx.mark_non_differentiable(*results[-saved_count:])
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, grad_out: Any, *others: Any) -> Any:
        out, statistics, *tensors = ctx.saved_tensors
        needed = ctx.needs_input_grad[2:]
        grad_lse = others[0] if ctx.with_lse else None
        if grad_out is None:
            grad_out = torch.zeros_like(out)
        arguments = (grad_out, grad_lse, out, statistics, *tensors)
        plain = not torch.is_grad_enabled() and _is_plain(*arguments)
        derive = _kernel(attention_backward, out) if plain else attention_backward
        gradients = iter(derive(*arguments, **ctx.plain, needs=needed))
        return None, None, *(next(gradients) if wanted else None for wanted in needed)


class _AttentionBackward(_Refusing):
    @staticmethod
    def forward(ctx: Any, keyset: Any, plain: dict[str, Any], *tensors: Any) -> Any:
        return tuple(_within_function(attention_backward, keyset, *tensors, **plain))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise NotImplementedError("attention has no second derivatives")


def call(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: dict[str, Any], with_lse: bool) -> Any:
    """Call the operator with checked tensors and options; plain calls bypass torch's dispatcher.

    The overhead of the dispatcher exceeds the time of a small attention.
    """
    if not _is_plain(query, key, value, *options.values()):
        return attention(query, key, value, **options, return_lse=with_lse)
    tensors: list[Any] = [query, key, value]
    plain: dict[str, Any] = {"return_lse": with_lse}
    if options:
        tensors += [options.get(name) for name in _OPTIONS]
        plain |= {name: option for name, option in options.items() if name in schema.PLAIN}
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors):
        return private.apply_at_one_level(_Attention, None, plain, *tensors)
    return _kernel(attention, query)(*tensors, **plain)


def _kernel(op: Any, tensor: torch.Tensor) -> Any:
    return (_KERNELS if tensor.is_cpu else _GPU_KERNELS)[op]


def _is_plain(*options: Any) -> bool:
    """Whether only autograd needs to see a call: there is no mode, transform, compiler, tracer or profiler."""
    if torch.compiler.is_compiling() or private.is_observed():
        return False
    for x in options:
        if isinstance(x, torch.Tensor) and (type(x) not in _PLAIN_TYPES or not (x.is_cpu or x.is_cuda) or x.is_neg()):
            return False
    return True


def _within_function(op: Any, keyset: Any, *tensors: Any, **plain: Any) -> Any:
    if not private.is_transformed():
        return _below_autograd(op, keyset, *tensors, **plain)
    # An autograd function does not record its operations, but outer transforms of torch.func must.
    with torch.enable_grad(), private.enable_forward_mode():
        return _below_autograd(op, keyset, *tensors, **plain)


def _below_autograd(op: Any, keyset: Any, *tensors: Any, **plain: Any) -> Any:
    # Fast path for the usual case: no other dispatch key is active.
    if keyset is None:
        return _kernel(op, tensors[0])(*tensors, **plain)
    below = private.keys_below_autograd(keyset)
    if below == private.cpu_keys():
        return _KERNELS[op](*tensors, **plain)
    return private.redispatch_below_autograd(op, below, *tensors, **plain)


def _autograd_of(op: Any, function: type[_Refusing]) -> Any:
    def kernel(keyset: Any, *tensors: Any, **plain: Any) -> Any:
        differentiated = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)
        if differentiated or private.is_in_forward_mode():
            if private.is_transformed():
                with private.enable_functions_of_one_level():
                    return list(private.apply_at_one_level(function, keyset, plain, *tensors))
            return list(private.apply_at_one_level(function, keyset, plain, *tensors))
        return _below_autograd(op, keyset, *tensors, **plain)

    return kernel


_PLAIN_TYPES = (torch.Tensor, torch.nn.Parameter)
_KERNELS = {attention: _forward, attention_backward: _backward}
_GPU_KERNELS = {attention: _forward_on_gpu, attention_backward: _backward_on_gpu}
for _op, _shapes, _function, _rule in (
    (attention, _forward_shapes, _Attention, forward_rule),
    (attention_backward, _backward_shapes, _AttentionBackward, backward_rule),
):
    _library.impl(_op, _KERNELS[_op], "CPU")
    _library.impl(_op, _GPU_KERNELS[_op], "CUDA")
    _library.impl(_op, _autograd_of(_op, _function), "Autograd", with_keyset=True)
    torch.library.register_fake(_op, _shapes, lib=_library)
    torch.library.register_vmap(_op, _rule(_op), lib=_library)
