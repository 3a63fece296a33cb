"""Learned block patterns: gates of blocks, and the pattern that skips closed blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan._check import Array
from headspan._help import as_written
from headspan.patterns import Blocks


@as_written
class GateGradients(NamedTuple):
    """The gradient of `learned_blocks`."""

    gates: Array


def learned_blocks(
    gates: npt.ArrayLike, block_size: int | tuple[int, int], *, tokens: int, tied: bool = False
) -> dict[str, Any]:
    """Return the attention options for learned block gates.

    A gate is a factor between 0 and 1 of all pairs of a block in the softmax, ``p = g * m * exp(s)``. A gate that an L1
    penalty has driven to 0 is closed: its block is not computed and its gradient is 0, so it stays closed until you set
    it to a positive value. Blocks that contain a diagonal pair are always open, with a factor of 1: the softmax ignores
    a factor that all blocks of a row share, so the penalty alone would otherwise shrink all of them.

    Parameters
    ----------
    gates : array_like
        float32 or float64, of shape (query blocks, key blocks) or (heads or 1, query blocks, key blocks), where the
        blocks cover all tokens. Values are clipped to [0, 1]. Clip the gates themselves after each optimizer step, so
        that they do not drift outside.
    block_size : int or (int, int)
        Tokens of a block, or (queries, keys) of a block, as in `Blocks`.
    tokens : int
        Number of key tokens.
    tied : bool
        Whether all blocks at the same block distance share a gate. `gates` then has shape (blocks,) or
        (heads or 1, blocks) and is indexed by the number of blocks between query and key, in either direction. This
        suits texts, where a distance means the same at every position.

    Returns
    -------
    dict
        `pattern`, `block_gates` and `gate_block_size`, for ``attention(query, key, value, **options)``.

    Raises
    ------
    ValueError
        If a gate is NaN.

    See Also
    --------
    learned_blocks_vjp : The same options with the gradient of the gates.
    headspan.span_penalty : The L1 penalty, for gates as well as spans.
    headspan.torch.LearnedBlocks : The same as a module of PyTorch.
    headspan.plot.block_gates : Draws the gates of blocks.

    References
    ----------
    The method follows Sukhbaatar et al., "Adaptive Attention Span in Transformers", ACL 2019, section 2.2. The L1
    penalty applies to the factor of the exponentials: there a mask of the distance, here a factor per block.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 1, 2, 64, 8))
    >>> options = hs.sparse.learned_blocks(np.full((2, 4, 4), 0.5), 16, tokens=64)
    >>> hs.attention(q, k, v, causal=False, **options).shape
    (1, 2, 64, 8)
    """
    return learned_blocks_vjp(gates, block_size, tokens=tokens, tied=tied)[0]


def learned_blocks_vjp(
    gates: npt.ArrayLike, block_size: int | tuple[int, int], *, tokens: int, tied: bool = False
) -> tuple[dict[str, Any], Callable[[npt.ArrayLike], GateGradients]]:
    """Return the attention options for learned block gates, and the function that computes the gradient of the gates.

    Parameters
    ----------
    gates, block_size, tokens, tied
        As for `learned_blocks`.

    Returns
    -------
    options : dict
        As from `learned_blocks`.
    vjp : callable
        ``vjp(grad_block_gates)`` returns the gradient as a named tuple with the field `gates`, of their shape and type.

    See Also
    --------
    learned_blocks : The options alone.
    headspan.attention_vjp : Returns the gradient of `block_gates`, which the function returned here takes.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 1, 2, 64, 8))
    >>> gates = np.full((2, 4, 4), 0.5)
    >>> options, gates_vjp = hs.sparse.learned_blocks_vjp(gates, 16, tokens=64)
    >>> out, vjp = hs.attention_vjp(q, k, v, causal=False, **options)
    >>> penalty, penalty_vjp = hs.span_penalty_vjp(gates, weight=0.01)
    >>> gates -= 0.1 * (gates_vjp(vjp(np.ones_like(out)).block_gates).gates + penalty_vjp().span)
    >>> gates = gates.clip(0, 1)
    """
    array = _check.real_array("gates", gates)
    sides, blocks = gate_grid(block_size, tokens, tied)
    shape = blocks[:1] if tied else blocks
    if array.ndim not in (len(shape), len(shape) + 1) or array.shape[-len(shape) :] != shape:
        form = ", ".join(map(str, shape))
        lead = "," if tied else ""
        raise ValueError(
            f"gates must be of shape ({form}{lead}) or (heads, {form}) for {tokens} tokens, not of shape {array.shape}"
        )
    dtype = array.dtype if array.dtype in _check.FLOATS else _check.DOUBLE
    of_heads = np.clip(array, 0, 1).astype(dtype).reshape(-1, *shape)
    row, column = np.arange(blocks[0])[:, None], np.arange(blocks[1])
    diagonal, distance = diagonal_blocks(row, column, sides), abs(row - column)
    factors = np.where(diagonal, dtype.type(1), of_heads[:, distance] if tied else of_heads)
    open_ = factors > 0
    options = {"pattern": open_blocks(open_, sides), "block_gates": factors, "gate_block_size": sides}

    def vjp(grad_block_gates: npt.ArrayLike) -> GateGradients:
        """Return the gradient of the gates."""
        grad = _check.gradient("grad_block_gates", grad_block_gates, factors.shape, like=("gates", factors))
        learned = np.where(diagonal | ~open_, 0, grad.astype(np.float64))
        if tied:
            sums = np.zeros(of_heads.shape)
            for head, of_head in enumerate(learned):
                np.add.at(sums[head], distance, of_head)
            learned = sums
        return GateGradients(learned.reshape(array.shape).astype(dtype))

    return options, vjp


def gate_grid(block_size: int | tuple[int, int], tokens: int, tied: bool) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the queries and keys of a block, and how many blocks of queries and of keys cover the tokens."""
    count = _check.integer("tokens", tokens, at_least=1)
    sides = _check.pair("block_size", block_size)
    if _check.flag("tied", tied) and sides[0] != sides[1]:
        raise ValueError(f"block_size must be square if gates are tied, not {block_size}")
    return sides, (-(-count // sides[0]), -(-count // sides[1]))


def diagonal_blocks(row: Any, column: Any, sides: tuple[int, int]) -> Any:
    """Return whether blocks contain a pair of a token with itself, for arrays or tensors of block indices."""
    return (row * sides[0] < (column + 1) * sides[1]) & (column * sides[1] < (row + 1) * sides[0])


def open_blocks(open_: npt.NDArray[np.bool_], sides: tuple[int, int]) -> Blocks:
    """Return the pattern of open blocks, of shape (heads, blocks, blocks) or, for all heads, (1, blocks, blocks)."""
    return Blocks(open_, sides, per_head=True) if len(open_) > 1 else Blocks(open_[0], sides)
