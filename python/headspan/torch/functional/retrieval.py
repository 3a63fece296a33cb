"""Attention of tensors to a window and to keys retrieved from a memory."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import torch

from headspan import _check
from headspan.ops.arguments.request import Request
from headspan.ops.functional import backward, forward
from headspan.ops.merge import merge_attention_vjp
from headspan.retrieval.attention import MemoryPart
from headspan.torch.arrays import array_of, wide_array_of
from headspan.torch.functional.attend import attention, check_device, checked, readable, real_tensor, tensor

_OF_ARRAYS = "headspan.retrieval_attention"
_OF_MEMORY = ("query", "key", "value", "temperature")


def retrieval_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    memory_key: torch.Tensor,
    memory_value: torch.Tensor,
    indices: npt.ArrayLike | torch.Tensor,
    *,
    gate: torch.Tensor | float | None = None,
    return_lse: bool = False,
    **options: Any,
) -> Any:
    """Attention to the keys around a query and to those retrieved for it from a memory, in one softmax, of tensors.

    Takes the arguments of `headspan.retrieval_attention`, which says what is computed, and gives the same numbers, to
    the bit in float32 and float64. Every tensor but `indices` has a gradient: gate is what a model learns. The memory
    part is computed by functions of Python, so that `torch.compile` leaves it out of its graphs.

    Parameters
    ----------
    query, key, value : Tensor
        As for `headspan.torch.attention`.
    memory_key, memory_value : Tensor, shape (batch, key heads, rows, head_dim)
        Other axes and types as those of key and value.
    indices : Tensor or array_like of int, shape (batch, heads, tokens, k)
        The rows that each query sees; -1 stands for none.
    gate : Tensor or number, optional
        Added to the log-sum-exp of the memory part: of shape (), (heads,) or (batch, heads).
    return_lse : bool
        Whether to return the log-sum-exp too.
    **options
        As for `headspan.retrieval_attention`.

    Returns
    -------
    out : Tensor, shape (batch, heads, tokens, head_dim of value)
    lse : Tensor, shape (batch, heads, tokens)
        Only with `return_lse`; of float32 for narrower types.

    Raises
    ------
    ValueError
        For a wrong shape or value, or tensors on another device.
    TypeError
        For a wrong or mixed type.

    References
    ----------
    Wu et al., "Memorizing Transformers", ICLR 2022, sections 3.1 and 3.2.

    Examples
    --------
    >>> import torch
    >>> from headspan.torch import retrieval_attention
    >>> query, key, value = torch.randn(3, 2, 10, 16)
    >>> memory, found = torch.randn(2, 50, 16), torch.randint(50, (2, 10, 4))
    >>> gate = torch.zeros(2, requires_grad=True)
    >>> retrieval_attention(query, key, value, memory, memory, found, gate=gate, span=4).sum().backward()
    >>> gate.grad.shape
    torch.Size([2])
    """
    with_lse = _check.flag("return_lse", return_lse)
    query, key, value = checked(query, key, value, instead=_OF_ARRAYS)
    if query.is_meta:
        raise ValueError("query must be on the CPU, not on meta: what the indices name is read by its numbers")
    memory = _rows("memory_key", memory_key, key), _rows("memory_value", memory_value, key)
    for name, given in (("indices", indices), ("gate", gate)):
        if isinstance(given, torch.Tensor):
            check_device(name, readable(name, given), query)
    local, local_lse = attention(query, key, value, return_lse=True, **options)
    shared = {name: options[name] for name in ("scale", "softcap") if options.get(name) is not None}
    temperature = _or_none("temperature", options.get("temperature"), local_lse.dtype)
    beta = _or_none("gate", gate, local_lse.dtype)
    joined = torch.compiler.disable(_joined) if torch.compiler.is_compiling() else _joined
    out, lse = joined((local, local_lse), (query, key, value), memory, indices, beta, temperature, shared)
    out = out.to(query.dtype)
    return (out, lse) if with_lse else out


def _rows(name: str, given: object, key: torch.Tensor) -> torch.Tensor:
    """Return rows of the memory, which are of the type of key."""
    rows = tensor(name, given, instead=_OF_ARRAYS)
    check_device(name, rows, key)
    if rows.dtype is not key.dtype:
        raise TypeError(f"{name} is {rows.dtype} but key is {key.dtype}; {name}.to({key.dtype}) makes them alike")
    return rows


def _or_none(name: str, given: Any, dtype: torch.dtype) -> torch.Tensor | None:
    """Return a parameter of heads as a tensor of the type of what it is added to."""
    return None if given is None else real_tensor(name, given).to(dtype)


def _joined(
    local: tuple[torch.Tensor, torch.Tensor],
    near: tuple[torch.Tensor, ...],
    memory: tuple[torch.Tensor, ...],
    indices: npt.ArrayLike | torch.Tensor,
    gate: torch.Tensor | None,
    temperature: torch.Tensor | None,
    shared: dict[str, Any],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the results and the log-sum-exp of the local part, as given, and of the memory part as one."""
    found = array_of(indices) if isinstance(indices, torch.Tensor) else indices
    query, key, value, memory_key, memory_value = (wide_array_of(x.detach()) for x in (*near, *memory))
    its_gate, its_temperature = (None if x is None else array_of(x.detach()) for x in (gate, temperature))
    options = {**shared, "temperature": its_temperature}
    part = MemoryPart(query, key, value, memory_key, memory_value, found, its_gate, options)
    far, far_lse = _Far.apply(part, near[0], *memory, temperature)
    if gate is not None:
        far_lse = far_lse + gate[..., None]
    merged: tuple[torch.Tensor, torch.Tensor] = _Merge.apply(local[0].to(far.dtype), far, local[1], far_lse)
    return merged


class _Far(torch.autograd.Function):
    """The memory part: its lists are indices of the kernel, so that no row is copied."""

    @staticmethod
    def forward(ctx: Any, part: MemoryPart, query: Any, key: Any, value: Any, temperature: Any) -> Any:
        its_query, its_key, its_value = part.arrays
        request = Request(its_query, its_key, its_value, part.options)
        out, lse, saved = forward(request, with_lse=True, threads=torch.get_num_threads())
        ctx.part, ctx.request, ctx.saved = part, request, saved
        ctx.types = [None if x is None else x.dtype for x in (query, key, value, temperature)]
        return torch.from_numpy(out), torch.from_numpy(lse)

    @staticmethod
    def backward(ctx: Any, grad_out: Any, grad_lse: Any) -> Any:
        needed = ctx.needs_input_grad[1:]
        names = [name for name, wanted in zip(_OF_MEMORY, needed, strict=True) if wanted]
        upstream = array_of(grad_out.contiguous()), array_of(grad_lse.contiguous())
        found = backward(ctx.request, ctx.saved, *upstream, needs=names, threads=torch.get_num_threads())
        gradients = []
        for name, wanted, dtype in zip(_OF_MEMORY, needed, ctx.types, strict=True):
            its = found[name] if wanted else None
            if its is not None and name in ("key", "value"):
                its = its[..., : ctx.part.rows, :]
            gradients.append(None if its is None else torch.from_numpy(its).to(dtype))
        return None, *gradients


class _Merge(torch.autograd.Function):
    """Two parts as one attention."""

    @staticmethod
    def forward(ctx: Any, *parts: Any) -> Any:
        outs, lses = ([array_of(x) for x in its] for its in (parts[:2], parts[2:]))
        (out, lse), vjp = merge_attention_vjp(outs, lses)
        ctx.vjp = vjp
        return torch.from_numpy(out), torch.from_numpy(lse)

    @staticmethod
    def backward(ctx: Any, grad_out: Any, grad_lse: Any) -> Any:
        grads = ctx.vjp(array_of(grad_out.contiguous()), array_of(grad_lse.contiguous()))
        return tuple(torch.from_numpy(its) for part in grads for its in part)
