"""Attention to near keys one by one and to farther ones as means of groups that double with the distance."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan._check import Array
from headspan.ops.arguments.sizes import check_last
from headspan.ops.attention import attention, attention_vjp
from headspan.ops.cost import Cost, cost
from headspan.ops.runtime import empty
from headspan.patterns import Blocks


class Levels(NamedTuple):
    """How keys are laid out, their means in front of them.

    Attributes
    ----------
    groups : tuple of int
        How many means of 2, 4, 8, ... tokens there are, which lie in this order; the tokens follow.
    pattern : Blocks
        Which of all these a query sees.
    """

    groups: tuple[int, ...]
    pattern: Blocks


def hierarchical_attention(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    *,
    block_size: int = 64,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: npt.ArrayLike | None = None,
    return_lse: bool = False,
) -> Any:
    """Causal attention whose work is that of ``n log n`` pairs: the farther away keys are, the larger are their groups.

    A query sees the tokens of its own block and of one or two before it one by one. What lies before them it sees in
    groups of 2, then of 4, of 8 and so on, one or two stretches of `block_size` groups each. A group of c tokens counts
    as one key, the mean of theirs, with a score that is ``log(c)`` higher, and the mean of their values: exact where
    the keys of a group are equal, and else an approximation that is the better, the more alike they are. Whether it is
    better than a window of as many pairs depends on what is asked for far away: measure both.

    Parameters
    ----------
    query : array_like, shape (batch, heads, tokens, head_dim)
        float32 or float64; leading axes may be left out. As many as there are keys, or fewer, the last ones.
    key, value : array_like, shape (batch, key heads, key tokens, head_dim)
    block_size : int
        Tokens of a block, and groups of a stretch: more of them see more, and pairs grow in proportion.
    scale, softcap, sinks
        As for `attention`.
    return_lse : bool
        Whether to return the log-sum-exp too.

    Returns
    -------
    out : ndarray, shape (batch, heads, tokens, head_dim of value)
    lse : ndarray, shape (batch, heads, tokens)
        Only with `return_lse`.

    Raises
    ------
    ValueError
        For a wrong shape or value.
    TypeError
        For a wrong or mixed type.

    References
    ----------
    Zhu and Soricut, "H-Transformer-1D: Fast One-Dimensional Hierarchical Attention for Sequences", ACL 2021, section 4,
    with one softmax over all levels and the logarithm of the size of a group as its weight.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 1, 2, 1000, 16))
    >>> hs.hierarchical_attention(q, k, v, block_size=16).shape
    (1, 2, 1000, 16)
    """
    arrays, layout, _ = _prepared(query, key, value, block_size)
    options = layout | {"scale": scale, "softcap": softcap, "sinks": sinks, "return_lse": return_lse}
    return attention(*arrays, **options)


def hierarchical_attention_vjp(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    *,
    block_size: int = 64,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: npt.ArrayLike | None = None,
    return_lse: bool = False,
) -> tuple[Any, Callable[..., Any]]:
    """Hierarchical attention, and the function that takes a gradient back through it.

    Parameters
    ----------
    query, key, value, block_size, scale, softcap, sinks, return_lse
        As for `hierarchical_attention`.

    Returns
    -------
    out : ndarray, or (out, lse) with `return_lse`
    vjp : callable
        ``vjp(grad_out, grad_lse=None)`` gives the `Gradients` of query, key, value and sinks.

    Raises
    ------
    ValueError
        For a wrong shape or value; also by `vjp`.
    TypeError
        For a wrong or mixed type; also by `vjp`.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 1, 2, 1000, 16))
    >>> out, vjp = hs.hierarchical_attention_vjp(q, k, v, block_size=16)
    >>> vjp(np.ones_like(out)).key.shape
    (1, 2, 1000, 16)
    """
    arrays, layout, groups = _prepared(query, key, value, block_size)
    tokens = arrays[1].shape[-2] - sum(groups)
    options = layout | {"scale": scale, "softcap": softcap, "sinks": sinks, "return_lse": return_lse}
    result, inner = attention_vjp(*arrays, **options)

    def vjp(grad_out: npt.ArrayLike, grad_lse: npt.ArrayLike | None = None) -> Any:
        """Gradients of query, key, value and sinks."""
        found = inner(grad_out) if grad_lse is None else inner(grad_out, grad_lse)
        of_tokens = {name: _from_means(getattr(found, name), groups, tokens) for name in ("key", "value")}
        return found._replace(**of_tokens, key_bias=None)

    return result, vjp


def hierarchical_cost(
    *, tokens: int, heads: int, head_dim: int, key_tokens: int | None = None, block_size: int = 64, batch: int = 1
) -> Cost:
    """Count the pairs and the floating-point operations of `hierarchical_attention`.

    Parameters
    ----------
    tokens, heads, head_dim, batch : int
        Sizes of the query.
    key_tokens : int, optional
        As many as tokens unless given; for a token that continues a text `tokens` is 1.
    block_size : int
        As for `hierarchical_attention`.

    Returns
    -------
    Cost
        A pair is one of a query and a key or a mean. What the means take, of which there are fewer than tokens, is not
        among it: each as much as a pair. `dense_flops` are those of attention to every token.

    Raises
    ------
    ValueError
        For a value out of its range.
    TypeError
        For a wrong type.

    Examples
    --------
    >>> import headspan as hs
    >>> full, means = (f(tokens=10_000, heads=1, head_dim=64) for f in (hs.cost, hs.hierarchical_cost))
    >>> full.pairs, means.pairs
    (50005000, 5386248)
    """
    queries = _check.integer("tokens", tokens, at_least=1)
    keys = queries if key_tokens is None else _check.integer("key_tokens", key_tokens, at_least=1)
    if queries > keys:
        raise ValueError(f"key_tokens must be at least tokens, {queries}, not {keys}")
    levels = levels_of(keys, _check.integer("block_size", block_size, at_least=1))
    sizes: dict[str, Any] = {"tokens": queries, "heads": heads, "head_dim": head_dim, "batch": batch}
    counted = cost(**sizes, key_tokens=sum(levels.groups) + keys, pattern=levels.pattern, causal=True)
    return counted._replace(dense_flops=4 * head_dim * batch * heads * queries * keys)


def _prepared(
    query: npt.ArrayLike, key: npt.ArrayLike, value: npt.ArrayLike, block_size: int
) -> tuple[list[Array], dict[str, Any], tuple[int, ...]]:
    """Return the query, and keys and values behind their means; the options for these; and how many means there are."""
    given = {"query": query, "key": key, "value": value}
    arrays = {name: _check.float_array(name, x) for name, x in given.items()}
    tokens, side = checked_sizes(**arrays, block_size=block_size)
    levels = levels_of(tokens, side)
    with_means = [arrays["query"], *(_with_means(arrays[name], levels.groups) for name in ("key", "value"))]
    bias = np.repeat(*biases(levels.groups, tokens))
    return with_means, {"pattern": levels.pattern, "key_bias": bias, "causal": True}, levels.groups


def checked_sizes(query: Any, key: Any, value: Any, block_size: int) -> tuple[int, int]:
    """Return the tokens of keys and of a block, if the shapes of the arrays or tensors suit."""
    side = _check.integer("block_size", block_size, at_least=1)
    for name, array in (("query", query), ("key", key), ("value", value)):
        if not 2 <= array.ndim <= 4:
            raise ValueError(f"{name} must have 2 to 4 axes, not shape {tuple(array.shape)}")
    queries, tokens = query.shape[-2], key.shape[-2]
    if value.shape[-2] != tokens:
        raise ValueError(f"key and value must have as many tokens, not {tokens} and {value.shape[-2]}")
    check_last(queries, tokens)
    return tokens, side


def levels_of(tokens: int, side: int) -> Levels:
    """Return how so many tokens and the means of groups of them are laid out."""
    groups: list[int] = []  # whole stretches, as far as any query sees them
    while (stretches := tokens // (side << (len(groups) + 1))) > 0:
        groups.append(stretches * side)
    return Levels(tuple(groups), Blocks(_mask(tokens, side, groups), side))


def biases(groups: Sequence[int], tokens: int) -> tuple[list[float], list[int]]:
    """Return what is added to the scores of a mean of each level and of tokens, and how many of each there are."""
    return [*((i + 1) * math.log(2) for i in range(len(groups))), 0.0], [*groups, tokens]


def _with_means(array: Array, groups: Sequence[int]) -> Array:
    """Return rows behind the means of groups of 2 of them, of 4 and so on, each level from the one below."""
    *lead, tokens, dim = array.shape
    before = sum(groups)
    whole = empty((*lead, before + tokens, dim), array.dtype)
    whole[..., before:, :] = array
    below, start = whole[..., before:, :], 0
    for count in groups:
        level = whole[..., start : start + count, :]
        np.add(below[..., 0 : 2 * count : 2, :], below[..., 1 : 2 * count : 2, :], out=level)
        level *= 0.5
        below, start = level, start + count
    return whole


def _from_means(gradient: Array, groups: Sequence[int], tokens: int) -> Array:
    """Return the gradient of the rows from that of the rows with their means."""
    starts = np.cumsum([0, *groups])
    *means, rows = (gradient[..., start : start + n, :] for start, n in zip(starts, [*groups, tokens], strict=True))
    above: Array | None = None  # what the level above is the mean of has a half of its gradient each
    for level in (*reversed(means), rows):
        whole = level.copy()
        if above is not None:
            whole[..., : 2 * above.shape[-2], :] += np.repeat(0.5 * above, 2, axis=-2)
        above = whole
    return whole


def _mask(tokens: int, side: int, groups: Sequence[int]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the blocks that the blocks of queries see, as (indptr, indices), the means counting as tokens before all.

    ::

        tokens     |0 ......................... first | first ... own |
        seen as     ... means of 4 | means of 2       | one by one

    A level begins at an even block of the one below, so that a stretch of its groups is two blocks of that.
    """
    own = np.arange(-(-tokens // side))
    before = np.cumsum([0, *(n // side for n in groups)])  # blocks in front of each level, and of the tokens
    rows, columns = [], []

    def see(begin: npt.NDArray[np.int64], end: npt.NDArray[np.int64], offset: int) -> None:
        count = end - begin
        rows.append(np.repeat(own, count))
        columns.append(np.arange(count.sum()) - np.repeat(np.cumsum(count) - count - begin, count) + offset)

    first = np.maximum(own - 1, 0) // 2 * 2
    see(first, own + 1, int(before[-1]))
    for offset in before[:-1]:
        end = first // 2
        first = np.maximum(end - 1, 0) // 2 * 2
        see(first, end, int(offset))
    row, column = np.concatenate(rows), np.concatenate(columns)
    order = np.lexsort((column, row))
    counts = np.concatenate([np.zeros(before[-1], np.int64), np.bincount(row, minlength=len(own))])
    return np.concatenate([[0], np.cumsum(counts)]), column[order]
