"""Hierarchical attention: near keys are seen one by one, distant keys as means of groups that grow with distance."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan._check import Array
from headspan.ops.arguments.sizes import check_last
from headspan.ops.attention import attention, attention_vjp
from headspan.ops.cost import Cost, cost
from headspan.ops.execution.runtime import empty
from headspan.patterns import Blocks


class Levels(NamedTuple):
    """Layout of the keys and the group means, which come before the keys.

    Attributes
    ----------
    groups : tuple of int
        Numbers of means of 2, 4, 8, ... tokens, in the order of the layout; the tokens follow.
    pattern : Blocks
        Means and tokens that each query sees.
    """

    groups: tuple[int, ...]
    pattern: Blocks


@overload
def hierarchical_attention(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    *,
    block_size: int = ...,
    scale: float | None = ...,
    softcap: float | None = ...,
    sinks: npt.ArrayLike | None = ...,
    return_lse: Literal[False] = ...,
) -> Array: ...
@overload
def hierarchical_attention(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    *,
    block_size: int = ...,
    scale: float | None = ...,
    softcap: float | None = ...,
    sinks: npt.ArrayLike | None = ...,
    return_lse: Literal[True],
) -> tuple[Array, Array]: ...
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
) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
    """Compute causal attention with ``O(n log n)`` pairs, in which groups of keys grow with their distance.

    A query sees the tokens of its own block and of one or two blocks before it individually. It sees earlier tokens in
    groups of 2, then 4, 8 and so on, with one or two runs of `block_size` groups per level. A group of c tokens acts as
    one key and one value, the means of its keys and values, with ``log(c)`` added to the score. The result is exact if
    the keys of each group are equal; otherwise it is an approximation that improves with their similarity. Whether it
    is better than a window with as many pairs depends on the use of distant tokens: measure both.

    Parameters
    ----------
    query : array_like, shape (batch, heads, tokens, head_dim)
        float32 or float64; leading axes may be omitted. The queries of all tokens, or of the last ones.
    key, value : array_like, shape (batch, key heads, key tokens, head_dim)
    block_size : int
        Tokens per block, and groups per run. The number of pairs is proportional to it.
    scale, softcap, sinks
        As for `attention`.
    return_lse : bool
        Whether to also return the log-sum-exp.

    Returns
    -------
    out : ndarray, shape (batch, heads, tokens, head_dim of value)
    lse : ndarray, shape (batch, heads, tokens)
        Only with `return_lse`.

    Raises
    ------
    ValueError
        If there are more queries than keys.
    TypeError
        If the arrays differ in type.

    See Also
    --------
    hierarchical_attention_vjp : The same attention with its gradients.
    hierarchical_cost : The pairs and the operations of hierarchical attention.
    headspan.torch.hierarchical_attention : The same for tensors.
    headspan.plot.hierarchy : Draws the groups of hierarchical attention.

    References
    ----------
    Zhu and Soricut, "H-Transformer-1D: Fast One-Dimensional Hierarchical Attention for Sequences", ACL 2021, section 4.
    Here all levels share one softmax, and the logarithm of its size is added to the score of a group.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 1, 2, 1000, 16))
    >>> hs.sparse.hierarchical_attention(q, k, v, block_size=16).shape
    (1, 2, 1000, 16)
    """
    arrays, layout, _ = _prepared(query, key, value, block_size)
    options = layout | {"scale": scale, "softcap": softcap, "sinks": sinks, "return_lse": return_lse}
    function: Callable[..., np.ndarray | tuple[np.ndarray, np.ndarray]] = attention
    return function(*arrays, **options)


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
    """Compute hierarchical attention and return the function that computes its gradients.

    Parameters
    ----------
    query, key, value, block_size, scale, softcap, sinks, return_lse
        As for `hierarchical_attention`.

    Returns
    -------
    out : ndarray, or (out, lse) with `return_lse`
    vjp : callable
        ``vjp(grad_out, grad_lse=None)`` returns the `Gradients` of query, key, value and sinks.

    See Also
    --------
    hierarchical_attention : The attention without the function for gradients.
    headspan.attention_vjp : The gradients of attention to single keys.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 1, 2, 1000, 16))
    >>> out, vjp = hs.sparse.hierarchical_attention_vjp(q, k, v, block_size=16)
    >>> vjp(np.ones_like(out)).key.shape
    (1, 2, 1000, 16)
    """
    arrays, layout, groups = _prepared(query, key, value, block_size)
    tokens = arrays[1].shape[-2] - sum(groups)
    options = layout | {"scale": scale, "softcap": softcap, "sinks": sinks, "return_lse": return_lse}
    result, inner = attention_vjp(*arrays, **options)

    def vjp(grad_out: npt.ArrayLike, grad_lse: npt.ArrayLike | None = None) -> Any:
        """Return the gradients of query, key, value and sinks."""
        gradients = inner(grad_out) if grad_lse is None else inner(grad_out, grad_lse)
        of_tokens = {name: _from_means(getattr(gradients, name), groups, tokens) for name in ("key", "value")}
        return gradients._replace(**of_tokens, key_bias=None)

    return result, vjp


def hierarchical_cost(
    *, tokens: int, num_heads: int, head_dim: int, key_tokens: int | None = None, block_size: int = 64, batch: int = 1
) -> Cost:
    """Count the pairs and the floating-point operations of `hierarchical_attention`.

    Parameters
    ----------
    tokens, num_heads, head_dim, batch : int
        Sizes of the query.
    key_tokens : int, optional
        Number of key tokens; default: `tokens`. For a decoding step, `tokens` is 1.
    block_size : int
        As for `hierarchical_attention`.

    Returns
    -------
    Cost
        Pairs of a query and a key or mean. Computing the means is not included; there are fewer means than tokens, and
        each costs as much as a pair. `dense_flops` is the cost of attention to every token.

    See Also
    --------
    hierarchical_attention : Attention to groups of keys that grow with their distance.
    headspan.cost : The same for attention to single keys.

    Examples
    --------
    >>> import headspan as hs
    >>> full, means = (f(tokens=10_000, num_heads=1, head_dim=64) for f in (hs.cost, hs.sparse.hierarchical_cost))
    >>> full.pairs, means.pairs
    (50005000, 5386248)
    """
    queries = _check.integer("tokens", tokens, at_least=1)
    keys = queries if key_tokens is None else _check.integer("key_tokens", key_tokens, at_least=1)
    if queries > keys:
        raise ValueError(f"key_tokens must be at least tokens, {queries}, not {keys}")
    levels = levels_of(keys, _check.integer("block_size", block_size, at_least=1))
    sizes: dict[str, Any] = {"tokens": queries, "num_heads": num_heads, "head_dim": head_dim, "batch": batch}
    counted = cost(**sizes, key_tokens=sum(levels.groups) + keys, pattern=levels.pattern, causal=True)
    return counted._replace(dense_flops=4 * head_dim * batch * num_heads * queries * keys)


def _prepared(
    query: npt.ArrayLike, key: npt.ArrayLike, value: npt.ArrayLike, block_size: int
) -> tuple[list[Array], dict[str, Any], tuple[int, ...]]:
    """Return query, key and value (with the means before their tokens), the options, and the sizes of the levels."""
    arguments = {"query": query, "key": key, "value": value}
    arrays = {name: _check.float_array(name, x) for name, x in arguments.items()}
    tokens, side = checked_sizes(**arrays, block_size=block_size)
    levels = levels_of(tokens, side)
    with_means = [arrays["query"], *(_with_means(arrays[name], levels.groups) for name in ("key", "value"))]
    bias = np.repeat(*biases(levels.groups, tokens))
    return with_means, {"pattern": levels.pattern, "key_bias": bias, "causal": True}, levels.groups


def checked_sizes(query: Any, key: Any, value: Any, block_size: int) -> tuple[int, int]:
    """Check the shapes of arrays or tensors; return the numbers of tokens of the keys and of a block."""
    side = _check.integer("block_size", block_size, at_least=1)
    for name, array in (("query", query), ("key", key), ("value", value)):
        if not 2 <= array.ndim <= 4:
            raise ValueError(f"{name} must have 2 to 4 axes, not shape {tuple(array.shape)}")
    queries, tokens = query.shape[-2], key.shape[-2]
    if value.shape[-2] != tokens:
        raise ValueError(f"key and value must have the same number of tokens, got {tokens} and {value.shape[-2]}")
    check_last(queries, tokens)
    return tokens, side


def levels_of(tokens: int, side: int) -> Levels:
    """Return the layout of `tokens` tokens and their group means, with blocks of `side`."""
    groups: list[int] = []  # complete runs only, since queries see no others
    while (runs := tokens // (side << (len(groups) + 1))) > 0:
        groups.append(runs * side)
    return Levels(tuple(groups), Blocks(_mask(tokens, side, groups), side))


def biases(groups: Sequence[int], tokens: int) -> tuple[list[float], list[int]]:
    """Return the score biases of the means of each level and of tokens, and how many of each there are."""
    return [*((i + 1) * math.log(2) for i in range(len(groups))), 0.0], [*groups, tokens]


def _with_means(array: Array, groups: Sequence[int]) -> Array:
    """Return the means of groups of 2, 4, ... rows, each level computed from the one below, followed by the rows."""
    *lead, tokens, dim = array.shape
    before = sum(groups)
    result = empty((*lead, before + tokens, dim), array.dtype)
    result[..., before:, :] = array
    below, start = result[..., before:, :], 0
    for count in groups:
        level = result[..., start : start + count, :]
        np.add(below[..., 0 : 2 * count : 2, :], below[..., 1 : 2 * count : 2, :], out=level)
        level *= 0.5
        below, start = level, start + count
    return result


def _from_means(gradient: Array, groups: Sequence[int], tokens: int) -> Array:
    """Return the gradient of the rows, given the gradient of the rows with their means."""
    starts = np.cumsum([0, *groups])
    *means, rows = (gradient[..., start : start + n, :] for start, n in zip(starts, [*groups, tokens], strict=True))
    above: Array | None = None  # half of its gradient goes to each of the two rows of a mean
    for level in (*reversed(means), rows):
        total = level.copy()
        if above is not None:
            total[..., : 2 * above.shape[-2], :] += np.repeat(0.5 * above, 2, axis=-2)
        above = total
    return total


def _mask(tokens: int, side: int, groups: Sequence[int]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the visible blocks of each block of queries, as (indptr, indices); the means come before the tokens.

    ::

        tokens     |0 ......................... first | first ... own |
        seen as     ... means of 4 | means of 2       | single tokens

    The first visible block of each level is even, because a block of the next level covers two blocks of it.
    """
    blocks = np.arange(-(-tokens // side))
    before = np.cumsum([0, *(n // side for n in groups)])  # blocks before each level, and before the tokens
    rows, columns = [], []

    def see(begin: npt.NDArray[np.int64], end: npt.NDArray[np.int64], offset: int) -> None:
        count = end - begin
        rows.append(np.repeat(blocks, count))
        columns.append(np.arange(count.sum()) - np.repeat(np.cumsum(count) - count - begin, count) + offset)

    first = np.maximum(blocks - 1, 0) // 2 * 2
    see(first, blocks + 1, int(before[-1]))
    for offset in before[:-1]:
        end = first // 2
        first = np.maximum(end - 1, 0) // 2 * 2
        see(first, end, int(offset))
    row, column = np.concatenate(rows), np.concatenate(columns)
    order = np.lexsort((column, row))
    counts = np.concatenate([np.zeros(before[-1], np.int64), np.bincount(row, minlength=len(blocks))])
    return np.concatenate([[0], np.cumsum(counts)]), column[order]
