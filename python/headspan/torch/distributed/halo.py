"""Attention over tokens that lie over ranks: each has a slice of them, and gets what its heads can reach."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from headspan.ops.arguments.options import refuse_unknown, takes_options
from headspan.ops.halo import Whole, starts_of
from headspan.torch.distributed.exchange import Exchange
from headspan.torch.functional import alike, attention, check_device, readable

_PER_TOKEN = {"span": 0.0, "temperature": 1.0}  # options that may be, and what they are for tokens of others


@takes_options
def halo_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, group: Any = None, **options: Any
) -> torch.Tensor:
    """Attention over tokens of which every rank of `torch.distributed` holds a slice, in the order of the ranks.

    Of each key head only those keys and values are sent that the spans of its queries, with the ramp and the pattern,
    can reach, over as many ranks as that takes. The result is that of `headspan.torch.attention` of all tokens, to
    the bit, and each rank has its own tokens of it. Gradients of keys and values go back to the ranks that hold them.

    Parameters
    ----------
    query : Tensor, shape (batch, heads, tokens of this rank, head_dim)
        Slices may be of different lengths, and empty.
    key, value : Tensor, shape (batch, key heads, tokens of this rank, head_dim)
        Of the same tokens, and of the same type.
    **options
        See `headspan.attention`. Those that differ between tokens (`span`, `temperature`) are of the tokens of this
        rank; all others must be the same on all ranks.
    group : ProcessGroup or DeviceMesh, optional
        The ranks, a mesh being of one dimension; all of them unless given.

    Returns
    -------
    Tensor, shape (batch, heads, tokens of this rank, head_dim of value)

    Raises
    ------
    ValueError
        For a wrong shape or value; without a process group; for what a slice and its halo do not decide: positions,
        padding, ranges, segments, biases of keys and of pairs, dropout, and patterns with global tokens, random ones,
        grids and `Blocks`.
    TypeError
        For a wrong or mixed type.

    Notes
    -----
    All ranks have to call it, as often as each other, and go backward through it: the loss of every rank has to depend
    on its result, also where its slice is empty. The gradient of what ranks share (a span of each head, sinks, slopes)
    is that of the tokens of this rank: the sum over ranks, as `torch.distributed.all_reduce` gives it, is that of all
    tokens. `DistributedDataParallel` averages instead, as is right for a loss that is a mean over each rank's tokens.

    `headspan.cost` counts with ``ranks=`` the bytes that are sent. Besides, a slice is laid out with its halo, and with
    zeros up to where groups of queries begin: at multiples of 64 tokens, with blocks or strides also of theirs. Slices
    that begin there cost least.

    References
    ----------
    Liu et al., "Ring Attention with Blockwise Transformers for Near-Infinite Context", 2023, where all keys go round;
    here those within reach are sent once.

    Examples
    --------
    One rank holds all tokens here; ``torchrun --nproc-per-node 2`` starts two.

    >>> import torch
    >>> import torch.distributed as dist
    >>> from headspan.torch import halo_attention
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> query, key, value = torch.randn(3, 1, 2, 100, 16)
    >>> halo_attention(query, key, value, span=[4, 50]).shape
    torch.Size([1, 2, 100, 16])
    >>> dist.destroy_process_group()
    """
    refuse_unknown(options)
    query, key, value = _checked(query, key, value)
    for name, option in options.items():
        if isinstance(option, torch.Tensor):
            check_device(name, readable(name, option), query)
    group = _group_of(group)
    starts = starts_of(_lengths(group, query, key, value))
    batch, heads, tokens, _ = query.shape
    dtype = np.dtype(np.float64 if query.dtype == torch.float64 else np.float32)
    sizes = {"tokens": int(starts[-1]), "batch": batch, "heads": heads, "key_heads": key.shape[1]}
    whole = Whole.of(options, **sizes, dtype=dtype)
    start, stop = (int(end) for end in starts[dist.get_rank(group) :][:2])
    first, last = whole.neighbours(start, stop)

    options = {name: _per_token(x, batch, heads, tokens) if name in _PER_TOKEN else x for name, x in options.items()}
    span: Any = options.get("span")
    around = span
    if _differs(span):
        # What a group of queries sees begins where the first of them does, also where another rank has that one.
        windows = np.array([[whole.neighbours(*ends)] for ends in itertools.pairwise(starts.tolist())])
        spread = Exchange(group, starts, windows, first, last)
        (found,) = spread.gather(span.detach().transpose(1, 2)[:, None])
        around = found[:, 0].transpose(1, 2)
        options["span"] = torch.cat([around[..., : start - first], span, around[..., stop - first :]], -1)
    windows = _windows(group, whole.window(_array(span), start, stop))
    reached = whole.window(_array(around), first, last)
    begin, end = whole.stretch(min(first, int(reached.min())), max(last, int(reached.max())))

    key, value = Exchange(group, starts, windows, begin, end).gather(key, value)
    query = _laid_out(query, start - begin, end - stop)
    for name, placed in (("span", (first, last)), ("temperature", (start, stop))):
        if _differs(options.get(name)):
            sides = placed[0] - begin, end - placed[1]
            options[name] = _laid_out(options[name][..., None], *sides, _PER_TOKEN[name])[..., 0]
    if (first, last) != (begin, end):  # others are laid out, but not computed
        ranges = torch.zeros(end - begin, 2, dtype=torch.int64)
        ranges[first - begin : last - begin, 1] = end - begin
        options["key_ranges"] = ranges
    out = attention(query, key, value, **options)
    return out.split((start - begin, stop - start, end - stop), 2)[1]


def _checked(query: Any, key: Any, value: Any) -> tuple[torch.Tensor, ...]:
    """Refuse what could not be sent as it is."""
    tensors = {"query": query, "key": key, "value": value}
    for name, given in tensors.items():
        if not isinstance(given, torch.Tensor):
            raise TypeError(f"{name} must be a tensor of torch, not {type(given).__name__}")
        if readable(name, given).is_meta:
            raise ValueError(f"{name} must be on the CPU, not on meta, which has no numbers to send")
        if given.ndim != 4:
            shape = tuple(given.shape)
            raise ValueError(f"{name} must have the axes (batch, heads, tokens, head_dim), not shape {shape}")
    if value.shape[:3] != key.shape[:3] or (query.shape[0], query.shape[2]) != (key.shape[0], key.shape[2]):
        shapes = ", ".join(str(tuple(x.shape)) for x in (query, key, value))
        raise ValueError(
            f"query, key and value must be of the same tokens of this rank, value of the heads of key, not of {shapes}"
        )
    alike_tensors = alike(query, key, value)
    for name, given in zip(tensors, alike_tensors, strict=True):
        if given.dtype != alike_tensors[0].dtype:
            raise TypeError(
                f"{name} is {given.dtype} but query is {query.dtype}; {name}.to({query.dtype}) makes them alike"
            )
    return alike_tensors


def _group_of(given: Any) -> Any:
    if not (dist.is_available() and dist.is_initialized()):
        raise ValueError("halo_attention needs ranks, which torch.distributed.init_process_group makes")
    if not hasattr(given, "get_group"):
        return given
    if given.ndim != 1:
        raise ValueError(f"group must be a mesh of one dimension, such as mesh['sequence'], not of {given.ndim}")
    return given.get_group()


def _lengths(group: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> list[int]:
    """Return how many tokens each rank has, and see that all else is alike."""
    batch, heads, tokens, dim = query.shape
    own = (batch, heads, key.shape[1], dim, value.shape[3], query.dtype.itemsize, tokens)
    every = _gathered(group, torch.tensor(own))
    for rank, its in enumerate(every):
        if its[:-1] != every[0][:-1]:
            names = "batch, heads, key heads, head_dim, that of value and bytes of a number"
            raise ValueError(
                f"{names} must be the same on all ranks, not {every[0][:-1]} and {its[:-1]} on rank {rank}"
            )
    return [its[-1] for its in every]


def _windows(group: Any, own: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return what all ranks need."""
    every = _gathered(group, torch.from_numpy(own.reshape(-1)))
    return np.array(every).reshape(-1, *own.shape)


def _gathered(group: Any, own: torch.Tensor) -> list[list[int]]:
    every = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(every, own, group=group)
    return [its.tolist() for its in every]


def _laid_out(tensor: torch.Tensor, before: int, after: int, value: float = 0.0) -> torch.Tensor:
    """Return tokens, the third axis, with others around them; unlike pad it is one pass, and backward none."""
    sides = (tensor.new_full((*tensor.shape[:2], count, tensor.shape[3]), value) for count in (before, after))
    return torch.cat([next(sides), tensor, next(sides)], 2)


def _per_token(given: Any, batch: int, heads: int, tokens: int) -> Any:
    """Return an option that differs between tokens as a tensor of all axes; others as they are."""
    if given is None or np.ndim(given) != 3:
        return given
    tensor = given if isinstance(given, torch.Tensor) else torch.from_numpy(np.array(given))
    return tensor.expand(batch, heads, tokens)


def _differs(given: Any) -> bool:
    return given is not None and np.ndim(given) == 3


def _array(given: Any) -> Any:
    if not isinstance(given, torch.Tensor):
        return given
    return given.detach().to(torch.promote_types(given.dtype, torch.float32)).numpy()
