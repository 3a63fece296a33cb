"""Attention over tokens distributed over ranks: each rank holds a slice and receives the keys in its heads' reach."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from headspan.ops.arguments.options import ARRAY_OPTIONS, refuse_unknown, takes_options
from headspan.ops.halo import Layout, starts_of
from headspan.torch.distributed.exchange import Exchange
from headspan.torch.functional import attention, check_device, check_tensor, unify_dtypes

# Options that may differ between tokens, with the value for tokens of other ranks.
_PER_TOKEN = {name: row.neutral for name, row in ARRAY_OPTIONS.items() if row.per_token}


@takes_options
def halo_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, group: Any = None, **options: Any
) -> torch.Tensor:
    """Compute attention over tokens that are distributed over the ranks of `torch.distributed`, in rank order.

    Attention is causal by default: pass ``causal=False`` to let queries see later keys. For each key head, the ranks
    send only the keys and values that spans, ramp and pattern let its queries reach, over as many ranks as necessary.
    Each rank gets the result of its own tokens, bitwise equal to `headspan.torch.attention` over all tokens. Gradients
    of keys and values return to the ranks that hold them.

    Parameters
    ----------
    query : Tensor, shape (batch, heads, tokens of this rank, head_dim)
        Slices may have different lengths and may be empty.
    key, value : Tensor, shape (batch, key heads, tokens of this rank, head_dim)
        For the same tokens and of the same type as `query`.
    **options
        See `headspan.attention`. Options that differ between tokens (`span`, `temperature`) hold the values for the
        tokens of this rank; all others must be the same on all ranks.
    group : ProcessGroup or DeviceMesh, optional
        The ranks; a mesh must have one dimension. Default: all ranks.

    Returns
    -------
    Tensor, shape (batch, heads, tokens of this rank, head_dim of value)

    Raises
    ------
    ValueError
        If there is no process group; for options that a slice and its halo do not determine: positions, padding,
        ranges, segments, biases of keys and of pairs, dropout, and patterns with global tokens, random pairs, grids or
        `Blocks`.
    TypeError
        If an argument is not a tensor, has an unsupported type, or has another type than `query`.

    See Also
    --------
    attention : Attention over tokens on one device.
    headspan.cost : With `ranks`, the bytes that ranks send.

    Notes
    -----
    All ranks must call the function equally often and run its backward pass: the loss of every rank must depend on the
    result, even if its slice is empty. For a tensor that the ranks share (a span for each head, sinks, slopes), the
    gradient covers only the tokens of this rank; `torch.distributed.all_reduce` sums it to the gradient of all tokens.
    `DistributedDataParallel` averages instead, which suits a loss that is a mean over each rank's tokens.

    `headspan.cost` counts the sent bytes with ``ranks=``. In addition, each rank copies its slice and halo to a buffer
    that zeros extend to the start of a group of queries. Groups start at multiples of 64 tokens, and with blocks or
    strides also of their sizes. Slices that start there cost least.

    References
    ----------
    Liu et al., "Ring Attention with Blockwise Transformers for Near-Infinite Context", 2023. Ring attention circulates
    all keys; `halo_attention` sends each key within reach once.

    Examples
    --------
    In this example one rank holds all tokens; ``torchrun --nproc-per-node 2`` starts two ranks.

    >>> import torch
    >>> import torch.distributed as dist
    >>> from headspan.torch import halo_attention
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> query, key, value = torch.randn(3, 1, 2, 1000, 16)
    >>> halo_attention(query, key, value, span=[64, 256]).shape
    torch.Size([1, 2, 1000, 16])
    >>> dist.destroy_process_group()
    """
    refuse_unknown(options)
    query, key, value = _checked(query, key, value)
    for name, option in options.items():
        if isinstance(option, torch.Tensor):
            check_device(name, check_tensor(name, option), query)
    group = _group_of(group)
    starts = starts_of(_lengths(group, query, key, value))
    batch, heads, tokens, _ = query.shape
    dtype = np.dtype(np.float64 if query.dtype == torch.float64 else np.float32)
    sizes = {"tokens": int(starts[-1]), "batch": batch, "heads": heads, "key_heads": key.shape[1]}
    layout = Layout.of(options, **sizes, dtype=dtype)
    start, stop = (int(end) for end in starts[dist.get_rank(group) :][:2])
    first, last = layout.neighbours(start, stop)

    options = {name: _per_token(x, batch, heads, tokens) if name in _PER_TOKEN else x for name, x in options.items()}
    span: Any = options.get("span")
    wide_span = span
    if _differs(span):
        # The keys of a group of queries start at those of its first query, which another rank may hold.
        windows = np.array([[layout.neighbours(*ends)] for ends in itertools.pairwise(starts.tolist())])
        exchange = Exchange(group, starts, windows, first, last)
        (spans,) = exchange.gather(span.detach().transpose(1, 2)[:, None])
        wide_span = spans[:, 0].transpose(1, 2)
        options["span"] = torch.cat([wide_span[..., : start - first], span, wide_span[..., stop - first :]], -1)
    windows = _windows(group, layout.window(_array(span), start, stop))
    reach = layout.window(_array(wide_span), first, last)
    begin, end = layout.stretch(min(first, int(reach.min())), max(last, int(reach.max())))

    key, value = Exchange(group, starts, windows, begin, end).gather(key, value)
    query = _padded(query, start - begin, end - stop)
    for name, interval in (("span", (first, last)), ("temperature", (start, stop))):
        if _differs(options.get(name)):
            sides = interval[0] - begin, end - interval[1]
            options[name] = _padded(options[name][..., None], *sides, _PER_TOKEN[name])[..., 0]
    # Queries outside [first, last) fill the buffer but are not computed.
    if (first, last) != (begin, end):
        ranges = torch.zeros(end - begin, 2, dtype=torch.int64)
        ranges[first - begin : last - begin, 1] = end - begin
        options["key_ranges"] = ranges
    out = attention(query, key, value, **options)
    return out.split((start - begin, stop - start, end - stop), 2)[1]


def _checked(query: Any, key: Any, value: Any) -> tuple[torch.Tensor, ...]:
    """Return tensors of one type, or raise an error for tensors that cannot be exchanged."""
    tensors = {"query": query, "key": key, "value": value}
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} must be a tensor of torch, not {type(tensor).__name__}")
        if check_tensor(name, tensor).is_meta:
            raise ValueError(f"{name} must be on the CPU, not on meta, which has no data to send")
        if tensor.ndim != 4:
            shape = tuple(tensor.shape)
            raise ValueError(f"{name} must have the axes (batch, heads, tokens, head_dim), not shape {shape}")
    if value.shape[:3] != key.shape[:3] or (query.shape[0], query.shape[2]) != (key.shape[0], key.shape[2]):
        shapes = ", ".join(str(tuple(x.shape)) for x in (query, key, value))
        raise ValueError(
            "query, key and value must have the same tokens of this rank, and key and value the same heads, got "
            f"shapes {shapes}"
        )
    unified = unify_dtypes(query, key, value)
    for name, tensor in zip(tensors, unified, strict=True):
        if tensor.dtype != unified[0].dtype:
            raise TypeError(
                f"{name} is {tensor.dtype} but query is {query.dtype}; {name}.to({query.dtype}) makes them alike"
            )
    return unified


def _group_of(group: Any) -> Any:
    if not (dist.is_available() and dist.is_initialized()):
        raise ValueError("halo_attention requires ranks; call torch.distributed.init_process_group first")
    if not hasattr(group, "get_group"):
        return group
    if group.ndim != 1:
        raise ValueError(f"group must be a mesh of one dimension, such as mesh['sequence'], not of {group.ndim}")
    return group.get_group()


def _lengths(group: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> list[int]:
    """Return the number of tokens of each rank, after checking that all other sizes agree."""
    batch, heads, tokens, dim = query.shape
    local = (batch, heads, key.shape[1], dim, value.shape[3], query.dtype.itemsize, tokens)
    sizes = _gathered(group, torch.tensor(local))
    for rank, row in enumerate(sizes):
        if row[:-1] != sizes[0][:-1]:
            names = "batch, heads, key heads, head_dim, that of value and bytes of a number"
            raise ValueError(
                f"{names} must be the same on all ranks, not {sizes[0][:-1]} and {row[:-1]} on rank {rank}"
            )
    return [row[-1] for row in sizes]


def _windows(group: Any, local: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the windows of all ranks, given the local one."""
    rows = _gathered(group, torch.from_numpy(local.reshape(-1)))
    return np.array(rows).reshape(-1, *local.shape)


def _gathered(group: Any, local: torch.Tensor) -> list[list[int]]:
    rows = [torch.empty_like(local) for _ in range(dist.get_world_size(group))]
    dist.all_gather(rows, local, group=group)
    return [row.tolist() for row in rows]


def _padded(tensor: torch.Tensor, before: int, after: int, value: float = 0.0) -> torch.Tensor:
    """Pad the third axis, the tokens; unlike `pad` this makes a single pass, and none in the backward pass."""
    sides = (tensor.new_full((*tensor.shape[:2], count, tensor.shape[3]), value) for count in (before, after))
    return torch.cat([next(sides), tensor, next(sides)], 2)


def _per_token(option: Any, batch: int, heads: int, tokens: int) -> Any:
    """Expand an option that differs between tokens to a tensor with all axes; return other options unchanged."""
    if option is None or np.ndim(option) != 3:
        return option
    tensor = option if isinstance(option, torch.Tensor) else torch.from_numpy(np.array(option))
    return tensor.expand(batch, heads, tokens)


def _differs(option: Any) -> bool:
    return option is not None and np.ndim(option) == 3


def _array(option: Any) -> Any:
    if not isinstance(option, torch.Tensor):
        return option
    return option.detach().to(torch.promote_types(option.dtype, torch.float32)).numpy()
