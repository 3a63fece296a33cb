"""Patterns that learn: a gate for each block of pairs, and the blocks whose gates are closed left out of the work."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import torch
from torch import nn

from headspan import _check
from headspan.ops.gates import gate_grid, open_blocks, own_blocks
from headspan.torch.arrays import array_of
from headspan.torch.layers.spans import Shares, whole


class LearnedBlocks(Shares):
    """A gate for each block of pairs, learned: the options of an attention whose pattern learns.

    The numbers are those of `headspan.learned_blocks`: a gate is a factor between 0 and 1 of all pairs of a block, one
    that a penalty has brought to 0 is closed for good and its block left out of the work, and blocks that hold a token
    and itself are always open. Steps of an optimizer are clamped, as those of spans, see `AdaptiveSpan`.

    Parameters
    ----------
    num_heads : int
        How many heads have gates of their own; 1 for gates that all heads share.
    block_size : int or (int, int)
        Tokens of a block, or queries and keys of one.
    tokens : int
        The most keys that there will be.
    tied : bool
        Whether a gate is that of all blocks with as many blocks between query and key.
    initial : array_like
        Where gates start: a number, or what broadcasts to the shape of `gates`.

    Attributes
    ----------
    gates : Parameter, shape (num_heads, query blocks, key blocks) or, where they are tied, (num_heads, blocks)

    Raises
    ------
    ValueError
        For a value out of its range.
    TypeError
        For a wrong type.

    Notes
    -----
    Which blocks are closed is read from the numbers, so that there is no pattern where these cannot be looked at: in
    what `torch.compile` compiles, within `torch.func` and on the device "meta". Closed blocks are computed there, with
    a weight of 0. To leave them out, call the module outside and hand its options in.

    Examples
    --------
    >>> import torch
    >>> from headspan.torch import LearnedBlocks, attention
    >>> query, key, value = torch.randn(3, 1, 4, 100, 16)
    >>> blocks = LearnedBlocks(4, 16, tokens=100)
    >>> out = attention(query, key, value, causal=False, **blocks())
    >>> (out.square().mean() + 0.01 * blocks.penalty()).backward()
    >>> blocks.gates.grad.shape
    torch.Size([4, 7, 7])
    """

    def __init__(
        self,
        num_heads: int,
        block_size: int | tuple[int, int],
        *,
        tokens: int,
        tied: bool = False,
        initial: npt.ArrayLike = 1.0,
    ) -> None:
        super().__init__()
        heads = _check.integer("num_heads", num_heads, at_least=1)
        self.sides, blocks = gate_grid(block_size, tokens, tied)
        self.tokens, self.tied = int(tokens), bool(tied)
        shape = (heads, *(blocks[:1] if self.tied else blocks))
        given = torch.as_tensor(_check.real_array("initial", initial), device="cpu")
        if given.numel() and (given.min() < 0 or given.max() > 1):
            wrong = given.min() if given.min() < 0 else given.max()
            raise ValueError(f"initial must lie between 0 and 1, but holds {wrong:g}")
        try:
            given = given.expand(shape)
        except RuntimeError:
            raise ValueError(f"initial must broadcast to {shape}, not be of shape {tuple(given.shape)}") from None
        self.gates = nn.Parameter(torch.empty(shape).copy_(given))

    def forward(self, tokens: int | None = None) -> dict[str, Any]:
        """Return `block_gates`, `gate_block` and `pattern`, options of `headspan.torch.attention`.

        Parameters
        ----------
        tokens : int, optional
            Keys of this call, where they are fewer than the module is for: these have the first blocks.
        """
        count = self.tokens if tokens is None else _check.integer("tokens", tokens, at_least=1)
        if count > self.tokens:
            raise ValueError(f"tokens must be at most the {self.tokens} that there are gates for, not {count}")
        row, column = (torch.arange(-(-count // side), device=self.gates.device) for side in self.sides)
        row = row[:, None]
        gates = self._within(self.gates)
        of_blocks = gates[:, (row - column).abs()] if self.tied else gates[:, : row.numel(), : column.numel()]
        factors = of_blocks.masked_fill(own_blocks(row, column, self.sides), 1)
        options: dict[str, Any] = {"block_gates": factors, "gate_block": self.sides}
        if not _can_be_looked_at(factors):
            return options
        return options | {"pattern": open_blocks(array_of(factors.detach()) > 0, self.sides)}

    def penalty(self) -> torch.Tensor:
        """Return the mean gate; added to a loss with a weight it closes those that earn less."""
        return whole(self._within(self.gates)).mean()

    def extra_repr(self) -> str:
        """Return what the layer shows of itself."""
        return f"num_heads={len(self.gates)}, block_size={self.sides}, tokens={self.tokens}, tied={self.tied}"


def _can_be_looked_at(tensor: torch.Tensor) -> bool:
    if tensor.is_meta or torch.compiler.is_compiling():
        return False
    return not torch._C._are_functorch_transforms_active()
