"""Attention of tensors: what is given is brought to what the operator of torch takes."""

from __future__ import annotations

import functools
from typing import Any, Literal, Unpack, overload

import numpy as np
import torch

from headspan import _check
from headspan.ops.arguments.options import DEFAULTS, Options, refuse_unknown, takes_options
from headspan.ops.arguments.request import PLAIN
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
    """Attention in which every head, or every token, has its own span, of tensors on the CPU.

    Takes the arguments of `headspan.attention`, which says what they are, and gives the same numbers, to the bit. Every
    option may be a tensor, too, and those that `headspan.Gradients` lists have a gradient. Tensors are read where they
    are, whatever their strides; only 16-bit floats and a last axis that is not contiguous cost a copy.

    Parameters
    ----------
    query : Tensor, shape (batch, heads, tokens, head_dim)
        float32 or float64; leading axes may be left out. Nested where key and value are, with ``layout=torch.jagged``
        and texts of different lengths. bfloat16 and float16 are computed with in float32, and what
        the backward pass needs of them is kept as it was given.
    key, value : Tensor, shape (batch, key heads, key tokens, head_dim)
        Of the same type. Under `torch.autocast` types may be mixed, and the widest of the three is that of all: nothing
        is converted to a narrower one.
    **options
        See `headspan.attention`.
    return_lse : bool
        Whether to return the log-sum-exp too.

    Returns
    -------
    out : Tensor, shape (batch, heads, tokens, head_dim of value)
        Of the type of query, and nested as it is. In memory the heads of a token lie beside each other, so that
        ``out.transpose(1, 2).flatten(2)`` copies nothing.
    lse : Tensor, shape (batch, heads, tokens)
        Only with `return_lse`; of float32 for narrower types.

    Raises
    ------
    ValueError
        For a wrong shape or value, tensors on another device, or some on "meta" and some on the CPU.
    TypeError
        For a wrong or mixed type.
    NotImplementedError
        For second derivatives and for those in forward mode, which there are none of.

    Notes
    -----
    It is an operator of torch: `torch.compile` and `torch.export` take it as a whole (patterns are made outside of what
    is compiled), checkpoints compute it again, and `torch.func` has its gradient and maps it (`vmap`) as one larger
    batch, or call by call where memory keys, a table of biases or dropout ask for it. Only gradients that are needed
    are computed. As many threads work as `torch.get_num_threads` says.

    Of a `DTensor` the shards of heads and of batch items are computed on the ranks that have them, with their parts of
    options; plain tensors beside it are taken for the same on all ranks. Where more is needed (other shards, a pattern
    for each head, dropout) torch gathers it first. For tokens that lie over ranks see `halo_attention`.

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
            raise NotImplementedError("return_lse cannot be had of nested tensors")
        return nested_attention(attention, {"query": query, "key": key, "value": value}, options)
    query, key, value = checked(query, key, value, instead="headspan.attention")
    refuse_unknown(options)
    return computed(query, key, value, for_torch(options, query), with_lse=with_lse)


def computed(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: dict[str, Any], *, with_lse: bool
) -> Any:
    """Call the operator with checked tensors and options as `for_torch` gives them."""
    options = beside(query, options)
    results = operator.call(query, key, value, options, with_lse)
    return tuple(results) if with_lse else results[0]


def beside(tensor: torch.Tensor, others: dict[str, Any]) -> dict[str, Any]:
    """Return what is used beside a tensor: where that lies over ranks, plain tensors are the same on all of them."""
    if type(tensor) is torch.Tensor or not hasattr(tensor, "device_mesh"):
        return others
    # Loaded only now, with all that torch has for distributed tensors.
    from headspan.torch.sharding import replicated

    return replicated(tensor.device_mesh, others)


def checked(query: Any, key: Any, value: Any, *, instead: str) -> tuple[torch.Tensor, ...]:
    """Return tensors of one type that can be computed with, or say what is wrong and which function takes arrays."""
    if type(query) is type(key) is type(value) is torch.Tensor:  # the usual case, without a detour
        on_cpu = query.is_cpu and key.is_cpu and value.is_cpu
        if on_cpu and query.dtype is key.dtype is value.dtype and query.dtype in READABLE:
            return query, key, value
    given = (("query", query), ("key", key), ("value", value))
    tensors = [tensor(*each, instead=instead) for each in given]
    for (name, _), other in zip(given[1:], tensors[1:], strict=True):
        check_device(name, other, tensors[0])
    return alike(*tensors)


def tensor(name: str, given: object, *, instead: str) -> torch.Tensor:
    """Return a tensor that can be computed with, or say which function takes what is none."""
    if not isinstance(given, torch.Tensor):
        raise TypeError(f"{name} must be a tensor of torch, not {type(given).__name__}; {instead} takes arrays")
    return readable(name, given)


def alike(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Bring what autocast has mixed to the widest type; elsewhere refuse what computing in float32 would hide."""
    types = (query.dtype, key.dtype, value.dtype)
    if types[0] is types[1] is types[2]:
        return query, key, value
    if torch.is_autocast_enabled("cpu"):
        widest = functools.reduce(torch.promote_types, types)
        return query.to(widest), key.to(widest), value.to(widest)
    for name, its in zip(("key", "value"), types[1:], strict=True):
        if its is not types[0] and (its in HALF or types[0] in HALF):
            raise TypeError(f"{name} is {its} but query is {types[0]}; {name}.to({types[0]}) makes them alike")
    return query, key, value


def readable(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor that can be computed with, or say how it becomes one."""
    if not (tensor.is_cpu or tensor.is_meta):
        raise ValueError(
            f"{name} must be on the CPU, where headspan computes, not on {tensor.device}; see {name}.cpu()"
        )
    if tensor.dtype not in READABLE:
        raise TypeError(f"{name} must be of a type of NumPy, or bfloat16, not {tensor.dtype}; see {name}.float()")
    return tensor


def check_device(name: str, tensor: torch.Tensor, query: torch.Tensor) -> None:
    """Refuse a tensor that is not where query is; both are `readable`, on the CPU or without numbers on "meta"."""
    if tensor.device.type != query.device.type:
        raise ValueError(f"{name} must be on the device of query, {query.device}, not on {tensor.device}")


def for_torch(options: dict[str, Any], query: torch.Tensor) -> dict[str, Any]:
    """Return options as the operator takes them beside a query."""
    for name, option in options.items():
        if isinstance(option, torch.Tensor) and name in schema.TENSORS:
            check_device(name, readable(name, option), query)
    return {name: _for_torch(name, given) for name, given in options.items()}


def _for_torch(name: str, given: Any) -> Any:
    if given is None and name not in DEFAULTS:
        return None
    if name == "seed":
        return _seed(given)
    if name in schema.TENSORS:
        return real_tensor(name, given)
    if name == "pattern":
        return schema.written_pattern(given)
    if name == "causal":
        return _check.flag(name, given)
    return PLAIN[name](name, given)


def _seed(given: Any) -> torch.Tensor:
    """Return a seed as the operator takes it: as it was drawn, or of a number."""
    if not isinstance(given, torch.Tensor):
        number: Any = PLAIN["seed"]("seed", given)
        return torch.tensor(schema.written_seed(number), device="cpu")
    if given.shape or given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
        raise TypeError(f"seed must be one integer, got a tensor of {given.dtype} and shape {tuple(given.shape)}")
    return readable("seed", given)


def real_tensor(name: str, given: Any) -> torch.Tensor:
    """Return a tensor that can be computed with: as it is, or of what NumPy reads as an array, in its type."""
    if isinstance(given, torch.Tensor):
        return readable(name, given)
    if type(given) is float:  # the usual case, without a detour
        return torch.tensor(given, dtype=torch.float64, device="cpu")
    if torch.compiler.is_compiling():  # which does not follow what is asked of arrays of NumPy
        tensor = torch.as_tensor(given)
        whole = isinstance(given, np.ndarray) or not tensor.is_floating_point()
        return tensor if whole else torch.as_tensor(given, dtype=torch.float64)
    array = _check.as_array(name, given)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} must be real numbers, not {array.dtype}")
    dtype = np.dtype(np.float64) if array.dtype.itemsize > 8 else array.dtype.newbyteorder("=")
    return torch.from_numpy(np.require(array, dtype, ["C", "W"]))
