"""Attention on tensors to a window and to keys retrieved from a memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, overload

import numpy.typing as npt
import torch

from headspan import _check
from headspan.memory.retrieval.attention import MemoryPart
from headspan.ops.arguments.options import DIFFERENTIABLE, options_in
from headspan.ops.arguments.rows import In
from headspan.ops.execution.functional import ARRAYS, backward, forward
from headspan.ops.execution.request import Request
from headspan.ops.merge import merge_attention_vjp
from headspan.torch.arrays import array_of, wide_array_of
from headspan.torch.functional.attend import as_tensor, attention, check_device, check_input, check_inputs, check_tensor

_ARRAY_FUNCTION = "headspan.memory.retrieval_attention"
_SHARED = options_in(In.RETRIEVAL)  # options of both parts
_LEARNED = tuple(name for name in _SHARED if name in DIFFERENTIABLE)
_MEMORY_INPUTS = (*ARRAYS, *_LEARNED)


@overload
def retrieval_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    memory_key: torch.Tensor,
    memory_value: torch.Tensor,
    indices: npt.ArrayLike | torch.Tensor,
    *,
    gate: torch.Tensor | float | None = ...,
    return_lse: Literal[False] = ...,
    **options: Any,
) -> torch.Tensor: ...
@overload
def retrieval_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    memory_key: torch.Tensor,
    memory_value: torch.Tensor,
    indices: npt.ArrayLike | torch.Tensor,
    *,
    gate: torch.Tensor | float | None = ...,
    return_lse: Literal[True],
    **options: Any,
) -> tuple[torch.Tensor, torch.Tensor]: ...
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
    """Compute attention to a window and to keys retrieved from a memory in one softmax, on CPU tensors.

    The window is causal by default: pass ``causal=False`` to let queries see later keys. The arguments are those of
    `headspan.memory.retrieval_attention`, which describes the computation. The results are bitwise equal in float32 and
    float64. Every tensor except `indices` has a gradient; models learn `gate`. Python functions compute the memory
    part, so `torch.compile` excludes it from its graphs.

    Parameters
    ----------
    query, key, value : Tensor
        See `headspan.torch.attention`.
    memory_key, memory_value : Tensor, shape (batch, key heads, rows, head_dim)
        The other axes and the types are those of `key` and `value`.
    indices : Tensor or array_like of int, shape (batch, heads, tokens, k)
        The memory rows that each query sees; -1 is an empty entry.
    gate : Tensor or number, optional
        Bias added to the log-sum-exp of the memory part, of shape (), (heads,) or (batch, heads).
    return_lse : bool
        Whether to return the log-sum-exp as well.
    **options
        See `headspan.memory.retrieval_attention`.

    Returns
    -------
    out : Tensor, shape (batch, heads, tokens, head_dim of value)
    lse : Tensor, shape (batch, heads, tokens)
        Returned only if `return_lse` is True; float32 for 16-bit inputs.

    Raises
    ------
    ValueError
        If a tensor is not on the CPU.
    TypeError
        If the memory has another type than `key`.

    See Also
    --------
    headspan.memory.retrieval_attention : The same for NumPy arrays.
    headspan.memory.KeyIndex : Search for the keys with the largest dot products.
    attention : Attention for tensors.

    References
    ----------
    Wu et al., "Memorizing Transformers", ICLR 2022, sections 3.1 and 3.2.

    Examples
    --------
    >>> import torch
    >>> from headspan.torch import retrieval_attention
    >>> query, key, value = torch.randn(3, 2, 10, 16)
    >>> memory, indices = torch.randn(2, 50, 16), torch.randint(50, (2, 10, 4))
    >>> gate = torch.zeros(2, requires_grad=True)
    >>> retrieval_attention(query, key, value, memory, memory, indices, gate=gate, span=4, ramp=2).sum().backward()
    >>> gate.grad.shape
    torch.Size([2])
    """
    with_lse = _check.flag("return_lse", return_lse)
    query, key, value = check_inputs(query, key, value, instead=_ARRAY_FUNCTION)
    if query.is_meta:
        raise ValueError("query must be on the CPU, not on meta, because rows are read by the values of the indices")
    memory = _rows("memory_key", memory_key, key), _rows("memory_value", memory_value, key)
    for name, argument in (("indices", indices), ("gate", gate)):
        if isinstance(argument, torch.Tensor):
            check_device(name, check_tensor(name, argument), query)
    local, local_lse = attention(query, key, value, return_lse=True, **options)
    shared = {name: options[name] for name in _SHARED if name not in _LEARNED and options.get(name) is not None}
    learned = [_optional_tensor(name, options.get(name), local_lse.dtype) for name in _LEARNED]
    beta = _optional_tensor("gate", gate, local_lse.dtype)
    merge = torch.compiler.disable(_merge_memory) if torch.compiler.is_compiling() else _merge_memory
    out, lse = merge((local, local_lse), (query, key, value), memory, indices, beta, learned, shared)
    out = out.to(query.dtype)
    return (out, lse) if with_lse else out


def _rows(name: str, argument: object, key: torch.Tensor) -> torch.Tensor:
    """Return rows of the memory after checking that they have the type of `key`."""
    rows = check_input(name, argument, instead=_ARRAY_FUNCTION)
    check_device(name, rows, key)
    if rows.dtype is not key.dtype:
        raise TypeError(f"{name} is {rows.dtype} but key is {key.dtype}; {name}.to({key.dtype}) makes them alike")
    return rows


def _optional_tensor(name: str, option: Any, dtype: torch.dtype) -> torch.Tensor | None:
    """Return an optional parameter of the heads as a tensor of the given type."""
    return None if option is None else as_tensor(name, option).to(dtype)


def _merge_memory(
    local: tuple[torch.Tensor, torch.Tensor],
    near: tuple[torch.Tensor, ...],
    memory: tuple[torch.Tensor, ...],
    indices: npt.ArrayLike | torch.Tensor,
    gate: torch.Tensor | None,
    learned: Sequence[torch.Tensor | None],
    shared: dict[str, Any],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the memory part and merge it with the local part; return the output and the log-sum-exp."""
    lists = array_of(indices) if isinstance(indices, torch.Tensor) else indices
    query, key, value, memory_key, memory_value = (wide_array_of(x.detach()) for x in (*near, *memory))
    gate_array, *learned_arrays = (None if x is None else array_of(x.detach()) for x in (gate, *learned))
    options = shared | dict(zip(_LEARNED, learned_arrays, strict=True))
    part = MemoryPart(query, key, value, memory_key, memory_value, lists, gate_array, options)
    far, far_lse = _MemoryAttention.apply(part, near[0], *memory, *learned)
    if gate is not None:
        far_lse = far_lse + gate[..., None]
    merged: tuple[torch.Tensor, torch.Tensor] = _Merge.apply(local[0].to(far.dtype), far, local[1], far_lse)
    return merged


class _MemoryAttention(torch.autograd.Function):
    """Compute the memory part; the kernel reads the rows by index, so that no row is copied."""

    @staticmethod
    def forward(ctx: Any, part: MemoryPart, *inputs: Any) -> Any:
        query_array, key_array, value_array = part.arrays
        request = Request(query_array, key_array, value_array, part.options)
        out, lse, saved = forward(request, with_lse=True, threads=torch.get_num_threads())
        ctx.part, ctx.request, ctx.saved = part, request, saved
        ctx.types = [None if x is None else x.dtype for x in inputs]
        return torch.from_numpy(out), torch.from_numpy(lse)

    @staticmethod
    def backward(ctx: Any, grad_out: Any, grad_lse: Any) -> Any:
        needed = ctx.needs_input_grad[1:]
        names = [name for name, wanted in zip(_MEMORY_INPUTS, needed, strict=True) if wanted]
        upstream = array_of(grad_out.contiguous()), array_of(grad_lse.contiguous())
        arrays = backward(ctx.request, ctx.saved, *upstream, needs=names, threads=torch.get_num_threads())
        gradients = []
        for name, wanted, dtype in zip(_MEMORY_INPUTS, needed, ctx.types, strict=True):
            array = arrays[name] if wanted else None
            if array is not None and name in ("key", "value"):
                array = array[..., : ctx.part.rows, :]
            gradients.append(None if array is None else torch.from_numpy(array).to(dtype))
        return None, *gradients


class _Merge(torch.autograd.Function):
    """Merge two parts into the attention over both."""

    @staticmethod
    def forward(ctx: Any, *parts: Any) -> Any:
        outs, lses = ([array_of(x) for x in tensors] for tensors in (parts[:2], parts[2:]))
        (out, lse), vjp = merge_attention_vjp(outs, lses)
        ctx.vjp = vjp
        return torch.from_numpy(out), torch.from_numpy(lse)

    @staticmethod
    def backward(ctx: Any, grad_out: Any, grad_lse: Any) -> Any:
        grads = ctx.vjp(array_of(grad_out.contiguous()), array_of(grad_lse.contiguous()))
        return tuple(torch.from_numpy(array) for arrays in grads for array in arrays)
