"""Attention on tensors: check the arguments and convert them for the torch operator."""

from __future__ import annotations

import functools
from typing import Any, Literal, Unpack, overload

import numpy as np
import torch

from headspan import _check
from headspan.ops.arguments.options import DEFAULTS, PLAIN_OPTIONS, Options, refuse_unknown, takes_options
from headspan.torch import operator, schema
from headspan.torch.arrays import HALF, READABLE
from headspan.torch.functional.nested import nested_attention


@overload
def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    return_lse: Literal[False] = ...,
    **options: Unpack[Options],
) -> torch.Tensor: ...
@overload
def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    return_lse: Literal[True],
    **options: Unpack[Options],
) -> tuple[torch.Tensor, torch.Tensor]: ...
@takes_options
def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    return_lse: bool = False,
    **options: Any,
) -> Any:
    """Compute attention on tensors; every head, or every token, has its own span.

    Attention is causal by default: pass ``causal=False`` to let queries see later keys. The arguments are those of
    `headspan.attention`, which documents them, and the results on the CPU are bitwise equal. Every option may also be a
    tensor, and the options in `headspan.Gradients` have a gradient. Tensors are read in place, whatever their strides;
    only 16-bit floats on the CPU and a last axis that is not contiguous require a copy. On a CUDA device, kernels of
    Triton take the options that leave one range of keys to each query.

    Parameters
    ----------
    query : Tensor, shape (batch, heads, tokens, head_dim)
        float32, float64, bfloat16 or float16; leading axes may be omitted. 16-bit types are computed in float32, but
        stored for the backward pass in their own type. Nested if `key` and `value` are nested, with
        ``layout=torch.jagged`` and sequences of different lengths.
    key, value : Tensor, shape (batch, key heads, key tokens, head_dim)
        Of the same type as `query`. Under `torch.autocast` the types may differ; all three are then converted to the
        widest of them and never to a narrower type.
    **options
        See `headspan.attention`.
    return_lse : bool
        Whether to return the log-sum-exp as well.

    Returns
    -------
    out : Tensor, shape (batch, heads, tokens, head_dim of value)
        Of the type of `query`, and nested if `query` is. The heads of a token are adjacent in memory, so that
        ``out.transpose(1, 2).flatten(2)`` copies nothing.
    lse : Tensor, shape (batch, heads, tokens)
        Returned only if `return_lse` is True; float32 for 16-bit inputs.

    Raises
    ------
    ValueError
        If the tensors are not all on the CPU, on one CUDA device, or on "meta".
    TypeError
        If `query`, `key` and `value` differ in type outside autocast.
    NotImplementedError
        For second derivatives and forward-mode derivatives, which are not supported, and on a CUDA device for options
        that its kernels do not take.

    See Also
    --------
    headspan.attention : The same for NumPy arrays, with a description of every option.
    AdaptiveSpanAttention : Self-attention with learned spans.
    SpanCache : Cache of keys and values for tensors.
    halo_attention : Attention over tokens split over ranks.

    Notes
    -----
    Attention is an operator of torch. `torch.compile` and `torch.export` keep it as one node (create patterns outside
    the compiled function), activation checkpointing recomputes it, and `torch.func` differentiates it. `vmap` maps it
    as one larger batch, or call by call with persistent keys, a table of biases or dropout. Only the required gradients
    are computed. The number of threads is ``torch.get_num_threads()``.

    If the arguments are `DTensor`, each rank computes its own shards of heads and batch items with the matching parts
    of the options. Plain tensors are then assumed to be the same on all ranks. For other shards, a pattern for each
    head or dropout, torch gathers the tensors first. `halo_attention` handles tokens that are distributed over ranks.

    Examples
    --------
    >>> import torch
    >>> from headspan.torch import attention
    >>> query, key, value = torch.randn(3, 1, 2, 100, 16)
    >>> span = torch.tensor([4.0, 50.0], requires_grad=True)
    >>> attention(query, key, value, span=span).sum().backward()
    >>> span.grad.shape
    torch.Size([2])
    """
    with_lse = _check.flag("return_lse", return_lse)
    if getattr(query, "is_nested", False) or getattr(key, "is_nested", False) or getattr(value, "is_nested", False):
        if with_lse:
            raise NotImplementedError("return_lse is not supported for nested tensors")
        return nested_attention(attention, {"query": query, "key": key, "value": value}, options)
    query, key, value = check_inputs(query, key, value, instead="headspan.attention", on_gpu=True)
    refuse_unknown(options)
    return compute(query, key, value, convert_options(options, query), with_lse=with_lse)


def compute(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: dict[str, Any], *, with_lse: bool
) -> Any:
    """Call the operator with checked tensors and with options from `convert_options`."""
    options = replicate_like(query, options)
    results = operator.call(query, key, value, options, with_lse)
    return tuple(results) if with_lse else results[0]


def replicate_like(tensor: torch.Tensor, others: dict[str, Any]) -> dict[str, Any]:
    """Return values for use with a tensor: if it is a `DTensor`, plain tensors are replicated on its mesh."""
    if type(tensor) is torch.Tensor or not hasattr(tensor, "device_mesh"):
        return others
    # Imported here because it loads all of torch's modules for distributed tensors.
    from headspan.torch.sharding import replicated

    return replicated(tensor.device_mesh, others)


def check_inputs(query: Any, key: Any, value: Any, *, instead: str, on_gpu: bool = False) -> tuple[torch.Tensor, ...]:
    """Return supported tensors of one type, or raise an error that names `instead`, the function for arrays."""
    # Fast path for the usual case.
    if type(query) is type(key) is type(value) is torch.Tensor:
        on_cpu = query.is_cpu and key.is_cpu and value.is_cpu
        if on_cpu and query.dtype is key.dtype is value.dtype and query.dtype in READABLE:
            return query, key, value
    arguments = (("query", query), ("key", key), ("value", value))
    tensors = [check_input(*argument, instead=instead, on_gpu=on_gpu) for argument in arguments]
    for (name, _), other in zip(arguments[1:], tensors[1:], strict=True):
        check_device(name, other, tensors[0])
    return unify_dtypes(*tensors)


def check_input(name: str, argument: object, *, instead: str, on_gpu: bool = False) -> torch.Tensor:
    """Return a supported tensor, or raise an error that names `instead`, the function for arrays."""
    if not isinstance(argument, torch.Tensor):
        raise TypeError(f"{name} must be a tensor of torch, not {type(argument).__name__}; {instead} takes arrays")
    return check_tensor(name, argument, on_gpu=on_gpu)


def unify_dtypes(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Convert mixed types to the widest one under autocast; otherwise reject mixtures that float32 would hide."""
    types = (query.dtype, key.dtype, value.dtype)
    if types[0] is types[1] is types[2]:
        return query, key, value
    if torch.is_autocast_enabled(query.device.type):
        widest = functools.reduce(torch.promote_types, types)
        return query.to(widest), key.to(widest), value.to(widest)
    for name, dtype in zip(("key", "value"), types[1:], strict=True):
        if dtype is not types[0] and (dtype in HALF or types[0] in HALF):
            raise TypeError(f"{name} is {dtype} but query is {types[0]}; {name}.to({types[0]}) makes them alike")
    return query, key, value


def check_tensor(name: str, tensor: torch.Tensor, *, on_gpu: bool = False) -> torch.Tensor:
    """Return the tensor if it is supported, or raise an error that says how to convert it."""
    if not (tensor.is_cpu or tensor.is_meta or (on_gpu and tensor.is_cuda)):
        devices = "the CPU or a CUDA device" if on_gpu else "the CPU"
        raise ValueError(f"{name} must be on {devices}, not on {tensor.device}; see {name}.cpu()")
    if tensor.dtype not in READABLE:
        raise TypeError(
            f"{name} must be of a type of NumPy, or bfloat16, not {tensor.dtype}; {name}.float() converts it"
        )
    return tensor


def check_device(name: str, tensor: torch.Tensor, query: torch.Tensor) -> None:
    """Raise an error unless a tensor is on the device of `query`; both passed `check_tensor`."""
    if tensor.device.type != query.device.type or tensor.get_device() != query.get_device():
        raise ValueError(f"{name} must be on the device of query, {query.device}, not on {tensor.device}")


def convert_options(options: dict[str, Any], query: torch.Tensor) -> dict[str, Any]:
    """Convert options to the arguments that the operator takes with this query."""
    for name, option in options.items():
        if isinstance(option, torch.Tensor) and name in schema.TENSORS:
            check_device(name, check_tensor(name, option, on_gpu=True), query)
    return {name: _convert_option(name, option, query.device) for name, option in options.items()}


def _convert_option(name: str, option: Any, device: torch.device) -> Any:
    if option is None and name not in DEFAULTS:
        return None
    if name == "seed":
        return _convert_seed(option)
    if name in schema.TENSORS:
        tensor = as_tensor(name, option)
        return tensor.to(device, non_blocking=True) if device.type == "cuda" else tensor
    if name == "pattern":
        return schema.written_pattern(option)
    return PLAIN_OPTIONS[name].check(name, option)


def _convert_seed(seed: Any) -> torch.Tensor:
    """Return a seed as a tensor, which the operator takes; a number is converted."""
    if not isinstance(seed, torch.Tensor):
        number: Any = PLAIN_OPTIONS["seed"].check("seed", seed)
        return torch.tensor(schema.written_seed(number), device="cpu")
    if seed.shape or seed.is_floating_point() or seed.is_complex() or seed.dtype == torch.bool:
        raise TypeError(f"seed must be one integer, got a tensor of {seed.dtype} and shape {tuple(seed.shape)}")
    return check_tensor("seed", seed, on_gpu=True)


def as_tensor(name: str, option: Any) -> torch.Tensor:
    """Return a supported tensor: the option itself, or its values in the type in which NumPy reads them."""
    if isinstance(option, torch.Tensor):
        return check_tensor(name, option, on_gpu=True)
    if type(option) is float:
        return torch.tensor(option, dtype=torch.float64, device="cpu")
    # The compiler cannot trace the NumPy checks below.
    if torch.compiler.is_compiling():
        tensor = torch.as_tensor(option)
        keeps_dtype = isinstance(option, np.ndarray) or not tensor.is_floating_point()
        return tensor if keeps_dtype else torch.as_tensor(option, dtype=torch.float64)
    array = _check.as_array(name, option)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} must be real numbers, not {array.dtype}")
    dtype = np.dtype(np.float64) if array.dtype.itemsize > 8 else array.dtype.newbyteorder("=")
    return torch.from_numpy(np.require(array, dtype, ["C", "W"]))
