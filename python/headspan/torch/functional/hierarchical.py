"""Hierarchical attention on tensors: one call of attention over group means followed by the tokens."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Literal, overload

import numpy.typing as npt
import torch

from headspan import _check
from headspan.patterns.base import Pattern
from headspan.sparse.hierarchical import biases, checked_sizes, levels_of
from headspan.torch.arrays import HALF
from headspan.torch.functional.attend import check_inputs, compute, convert_options
from headspan.torch.private import constant_when_compiled
from headspan.torch.schema import written_pattern


@overload
def hierarchical_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    block_size: int = ...,
    scale: float | None = ...,
    softcap: float | None = ...,
    sinks: npt.ArrayLike | torch.Tensor | None = ...,
    return_lse: Literal[False] = ...,
) -> torch.Tensor: ...
@overload
def hierarchical_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    block_size: int = ...,
    scale: float | None = ...,
    softcap: float | None = ...,
    sinks: npt.ArrayLike | torch.Tensor | None = ...,
    return_lse: Literal[True],
) -> tuple[torch.Tensor, torch.Tensor]: ...
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
    """Compute causal attention to near keys individually and to distant keys as means, on CPU tensors.

    The arguments are those of `headspan.sparse.hierarchical_attention`, which describes the computation, and the
    results are bitwise equal. `query`, `key`, `value` and `sinks` have a gradient. The function consists of torch
    operations around `headspan.torch.attention` and supports `torch.compile` (once for each length), `torch.export` and
    `vmap`.

    Parameters
    ----------
    query : Tensor, shape (batch, heads, tokens, head_dim)
        Leading axes may be omitted. If there are fewer queries than keys, the queries are the last tokens.
    key, value : Tensor, shape (batch, key heads, key tokens, head_dim)
        Of the same type as `query`. Means of bfloat16 and float16 are computed in float32 and rounded once.
    block_size : int
        Number of tokens in a block, and of groups in a stretch; see `headspan.sparse.hierarchical_attention`.
    scale, softcap, sinks
        See `headspan.attention`.
    return_lse : bool
        Whether to return the log-sum-exp as well.

    Returns
    -------
    out : Tensor, shape (batch, heads, tokens, head_dim of value)
    lse : Tensor, shape (batch, heads, tokens)
        Returned only if `return_lse` is True.

    Raises
    ------
    ValueError
        If the tensors are not on the same device.
    TypeError
        If `query`, `key` and `value` differ in type outside autocast.
    NotImplementedError
        For second derivatives and forward-mode derivatives, which are not supported.

    See Also
    --------
    headspan.sparse.hierarchical_attention : The same for NumPy arrays.
    attention : Attention for tensors.

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
    query, key, value = check_inputs(query, key, value, instead="headspan.sparse.hierarchical_attention")
    # Turn symbolic sizes of the compiler into integers, because each length has its own layout.
    tokens, side = (len(range(n)) for n in checked_sizes(query, key, value, block_size))
    groups, pattern = _levels(tokens, side)
    counts = zip(*biases(groups, tokens), strict=True)
    bias = torch.cat([torch.full((n,), x, dtype=torch.float64, device=query.device) for x, n in counts])
    named = {"key_bias": bias, "causal": True, "scale": scale, "softcap": softcap, "sinks": sinks}
    options = convert_options(named, query) | {"pattern": pattern}
    with_lse = _check.flag("return_lse", return_lse)
    return compute(query, _with_means(key, groups), _with_means(value, groups), options, with_lse=with_lse)


@constant_when_compiled
def _levels(tokens: int, side: int) -> tuple[tuple[int, ...], str]:
    return _written_levels(tokens, side)[:2]


# All layers of a model use the same levels.
@functools.lru_cache(maxsize=8)
def _written_levels(tokens: int, side: int) -> tuple[tuple[int, ...], str, Pattern]:
    """Return the number of means on each level, the pattern as text, and the pattern itself to keep it cached."""
    groups, pattern = levels_of(tokens, side)
    return groups, written_pattern(pattern), pattern


def _with_means(x: torch.Tensor, groups: Sequence[int]) -> torch.Tensor:
    """Prepend the means of groups of 2, 4, 8, ... tokens; each level is computed from the previous one."""
    means, levels = x.float() if x.dtype in HALF else x, []
    for count in groups:
        means = means[..., : 2 * count, :].unflatten(-2, (count, 2)).mean(-2)
        levels.append(means.to(x.dtype))
    return torch.cat([*levels, x], -2)
