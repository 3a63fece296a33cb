"""Patterns that learn: gates of blocks, and the pattern that leaves out the closed ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan._check import Array
from headspan.patterns import Blocks


def learned_blocks(
    gates: npt.ArrayLike, block_size: int | tuple[int, int], *, tokens: int, tied: bool = False
) -> tuple[dict[str, Any], Callable[[npt.ArrayLike], Array]]:
    """Options of an attention whose blocks have learned gates, and the function that takes their gradient back.

    A gate is a factor between 0 and 1 of all pairs of a block in the softmax, ``p = g * m * exp(s)``. One that an L1
    penalty has brought to 0 is closed: its block is left out of the work, and it has no gradient, so that it stays
    closed until somebody sets it to more than 0 by hand. Blocks that hold a token and itself are always open, with a
    factor of 1: a softmax ignores a factor that all blocks of a row share, and a penalty alone would shrink them all.

    Parameters
    ----------
    gates : array_like
        Of shape (query blocks, key blocks) or (heads or 1, query blocks, key blocks), for as many blocks as the tokens
        fill; float32 or float64. What is beyond 0 and 1 is taken for these. Clip gates after each step of a descent,
        so that none goes on from farther out.
    block_size : int or (int, int)
        Tokens of a block, or queries and keys of one, as of `Blocks`.
    tokens : int
        Tokens of the keys.
    tied : bool
        Whether a gate is that of all blocks with as many blocks between query and key: `gates` is of shape (blocks,) or
        (heads or 1, blocks), by how many blocks a key lies from a query, before or after it. For texts, in which the
        same distance means the same wherever it is.

    Returns
    -------
    options : dict
        `pattern`, `block_gates` and `gate_block`, for ``attention(query, key, value, **options)``.
    vjp : callable
        ``vjp(grad_block_gates)`` gives the gradient of `gates`, in their shape and type, from that of the option.

    Raises
    ------
    ValueError
        For a wrong shape or size, or NaN; by `vjp` for a wrong shape.
    TypeError
        For a wrong type; also by `vjp`.

    See Also
    --------
    span_penalty : the L1 penalty, of gates as of spans.

    References
    ----------
    Learned as spans are in Sukhbaatar et al., "Adaptive Attention Span in Transformers", ACL 2019, section 2.2: by an
    L1 penalty on what multiplies the exponentials, there a mask of the distance and here a factor of the block.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 1, 2, 64, 8))
    >>> gates = np.full((2, 4, 4), 0.5)
    >>> options, gates_vjp = hs.learned_blocks(gates, 16, tokens=64)
    >>> out, vjp = hs.attention_vjp(q, k, v, causal=False, **options)
    >>> penalty, grad_penalty = hs.span_penalty(gates, weight=0.01)
    >>> gates -= 0.1 * (gates_vjp(vjp(np.ones_like(out)).block_gates) + grad_penalty)
    >>> gates = gates.clip(0, 1)
    """
    given = _check.real_array("gates", gates)
    sides, blocks = gate_grid(block_size, tokens, tied)
    shape = blocks[:1] if tied else blocks
    if given.ndim not in (len(shape), len(shape) + 1) or given.shape[-len(shape) :] != shape:
        form = ", ".join(map(str, shape))
        lead = "," if tied else ""
        raise ValueError(
            f"gates must be of shape ({form}{lead}) or (heads, {form}) for {tokens} tokens, not of shape {given.shape}"
        )
    dtype = given.dtype if given.dtype in _check.FLOATS else _check.DOUBLE
    of_heads = np.clip(given, 0, 1).astype(dtype).reshape(-1, *shape)
    row, column = np.arange(blocks[0])[:, None], np.arange(blocks[1])
    own, apart = own_blocks(row, column, sides), abs(row - column)
    factors = np.where(own, dtype.type(1), of_heads[:, apart] if tied else of_heads)
    open_ = factors > 0
    options = {"pattern": open_blocks(open_, sides), "block_gates": factors, "gate_block": sides}

    def vjp(grad_block_gates: npt.ArrayLike) -> Array:
        """Gradient of gates."""
        grad = _check.gradient("grad_block_gates", grad_block_gates, factors.shape, beside=("gates", factors))
        learned = np.where(own | ~open_, 0, grad.astype(np.float64))
        if tied:
            sums = np.zeros(of_heads.shape)
            for head, of_head in enumerate(learned):
                np.add.at(sums[head], apart, of_head)
            learned = sums
        result: Array = learned.reshape(given.shape).astype(dtype)
        return result

    return options, vjp


def gate_grid(block_size: int | tuple[int, int], tokens: int, tied: bool) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return queries and keys of a block, and how many blocks of each so many tokens fill."""
    count = _check.integer("tokens", tokens, at_least=1)
    sides = _check.pair("block_size", block_size)
    if _check.flag("tied", tied) and sides[0] != sides[1]:
        raise ValueError(f"block_size must be that of squares where gates are tied, not {block_size}")
    return sides, (-(-count // sides[0]), -(-count // sides[1]))


def own_blocks(row: Any, column: Any, sides: tuple[int, int]) -> Any:
    """Return whether a token of the queries of a block is among its keys, for arrays or tensors of blocks."""
    return (row * sides[0] < (column + 1) * sides[1]) & (column * sides[1] < (row + 1) * sides[0])


def open_blocks(open_: npt.NDArray[np.bool_], sides: tuple[int, int]) -> Blocks:
    """Return the pattern of open blocks, (heads, blocks, blocks); one for all heads where there is one."""
    return Blocks(open_, sides, per_head=True) if len(open_) > 1 else Blocks(open_[0], sides)
