"""Hierarchical attention of tensors: means in front of the tokens, and one call of attention."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy.typing as npt
import torch

from headspan import _check
from headspan.ops.hierarchical import biases, checked_sizes, levels_of
from headspan.patterns.base import Pattern
from headspan.torch.arrays import HALF
from headspan.torch.functional.attend import checked, computed, for_torch
from headspan.torch.schema import written_pattern


def hierarchical_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    block_size: int = 64,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: npt.ArrayLike | torch.Tensor | None = None,
    return_lse: bool = False,
) -> Any:
    """Causal attention to near keys one by one and to farther ones as means, of tensors on the CPU.

    Takes the arguments of `headspan.hierarchical_attention`, which says what is computed, and gives the same numbers,
    to the bit, with the gradient of `query`, `key`, `value` and `sinks`. It consists of operations of torch around
    `headspan.torch.attention`, and compiles (for each length apart), exports and maps as that does.

    Parameters
    ----------
    query : Tensor, shape (batch, heads, tokens, head_dim)
        Leading axes may be left out. As many tokens as there are keys, or fewer, the last ones.
    key, value : Tensor, shape (batch, key heads, key tokens, head_dim)
        Of the same type. Means of bfloat16 and float16 are computed in float32 and rounded once.
    block_size : int
        Tokens of a block, and groups of a stretch.
    scale, softcap, sinks
        As for `headspan.attention`.
    return_lse : bool
        Whether to return the log-sum-exp too.

    Returns
    -------
    out : Tensor, shape (batch, heads, tokens, head_dim of value)
    lse : Tensor, shape (batch, heads, tokens)
        Only with `return_lse`.

    Raises
    ------
    ValueError
        For a wrong shape or value, or tensors on another device.
    TypeError
        For a wrong or mixed type.
    NotImplementedError
        For second derivatives and for those in forward mode, which there are none of.

    References
    ----------
    Zhu and Soricut, "H-Transformer-1D: Fast One-Dimensional Hierarchical Attention for Sequences", ACL 2021, section 4.

    Examples
    --------
    >>> import torch
    >>> from headspan.torch import hierarchical_attention
    >>> query, key, value = torch.randn(3, 1, 2, 1000, 16, requires_grad=True)
    >>> hierarchical_attention(query, key, value, block_size=16).shape
    torch.Size([1, 2, 1000, 16])
    """
    query, key, value = checked(query, key, value, instead="headspan.hierarchical_attention")
    # Numbers, where they are symbols to the compiler: each length has a layout of its own.
    tokens, side = (len(range(n)) for n in checked_sizes(query, key, value, block_size))
    groups, pattern = _levels(tokens, side)
    counts = zip(*biases(groups, tokens), strict=True)
    bias = torch.cat([torch.full((n,), x, dtype=torch.float64, device=query.device) for x, n in counts])
    given = {"key_bias": bias, "causal": True, "scale": scale, "softcap": softcap, "sinks": sinks}
    options = for_torch(given, query) | {"pattern": pattern}
    with_lse = _check.flag("return_lse", return_lse)
    return computed(query, _with_means(key, groups), _with_means(value, groups), options, with_lse=with_lse)


def _levels(tokens: int, side: int) -> tuple[tuple[int, ...], str]:
    return _written_levels(tokens, side)[:2]


_levels._dynamo_marked_constant = True  # type: ignore[attr-defined]  # as in headspan.torch.schema


@functools.lru_cache(maxsize=8)  # layers of a model have the same
def _written_levels(tokens: int, side: int) -> tuple[tuple[int, ...], str, Pattern]:
    """Return how many means there are, and the pattern as text; and itself, so that it is not read anew."""
    groups, pattern = levels_of(tokens, side)
    return groups, written_pattern(pattern), pattern


def _with_means(x: torch.Tensor, groups: Sequence[int]) -> torch.Tensor:
    """Return tokens behind the means of groups of 2 of them, of 4 and so on, each level from the one below."""
    below, levels = x.float() if x.dtype in HALF else x, []
    for count in groups:
        below = below[..., : 2 * count, :].unflatten(-2, (count, 2)).mean(-2)
        levels.append(below.to(x.dtype))
    return torch.cat([*levels, x], -2)
