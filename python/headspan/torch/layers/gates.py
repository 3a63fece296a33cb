"""Learned block patterns: each block of pairs has a gate, and blocks with closed gates are not computed."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import torch
from torch import nn

from headspan import _check
from headspan.sparse.gates import diagonal_blocks, gate_grid, open_blocks
from headspan.torch import private
from headspan.torch.arrays import array_of
from headspan.torch.layers.spans import Shares, full_tensor


class LearnedBlocks(Shares):
    """Learned gates for blocks of pairs; calling the module returns options of attention.

    The computation is that of `headspan.sparse.learned_blocks`. A gate is a factor between 0 and 1 for all pairs of a
    block. A gate that a penalty has reduced to 0 stays closed, and its block is not computed. Blocks that contain a
    token and itself are always open. Gates are clamped after optimizer steps in the same way as spans, see
    `AdaptiveSpan`.

    Parameters
    ----------
    num_heads : int
        Number of heads with separate gates; 1 if all heads share the gates.
    block_size : int or (int, int)
        Size of a block in tokens, or its numbers of queries and keys.
    tokens : int
        Maximum number of keys.
    tied : bool
        Whether all blocks at the same distance between query and key, in blocks, share a gate.
    initial : array_like
        Initial gates: a number, or an array that broadcasts to the shape of `gates`.

    Attributes
    ----------
    gates : Parameter, shape (num_heads, query blocks, key blocks), or (num_heads, blocks) if `tied`

    Raises
    ------
    ValueError
        If a size is less than 1, or if `initial` is not between 0 and 1 or does not broadcast.
    TypeError
        If a size is not an integer, or if `initial` does not hold real numbers.

    See Also
    --------
    headspan.sparse.learned_blocks : The same for NumPy arrays.
    parameter_groups : Parameter groups with a learning rate for spans.

    Notes
    -----
    The pattern of open blocks depends on the values of the gates. Code that cannot read values gets no pattern: code
    compiled by `torch.compile`, code within `torch.func`, and modules on the device "meta". It computes closed blocks
    with a weight of 0. To skip them, call the module outside and pass its options in.

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
        start = torch.as_tensor(_check.real_array("initial", initial), device="cpu")
        if start.numel() and (start.min() < 0 or start.max() > 1):
            extreme = start.min() if start.min() < 0 else start.max()
            raise ValueError(f"initial must be between 0 and 1, got {extreme:g}")
        try:
            start = start.expand(shape)
        except RuntimeError:
            raise ValueError(f"initial must broadcast to {shape}, got of shape {tuple(start.shape)}") from None
        self.gates = nn.Parameter(torch.empty(shape).copy_(start))

    def forward(self, tokens: int | None = None) -> dict[str, Any]:
        """Return `block_gates`, `gate_block_size` and `pattern`, options of `headspan.torch.attention`.

        Parameters
        ----------
        tokens : int, optional
            Number of keys in this call, which then uses the first blocks. Default: `tokens` of the module.
        """
        count = self.tokens if tokens is None else _check.integer("tokens", tokens, at_least=1)
        if count > self.tokens:
            raise ValueError(f"tokens must be at most {self.tokens}, the number of tokens with gates, not {count}")
        row, column = (torch.arange(-(-count // side), device=self.gates.device) for side in self.sides)
        row = row[:, None]
        gates = self._clamped(self.gates)
        of_blocks = gates[:, (row - column).abs()] if self.tied else gates[:, : row.numel(), : column.numel()]
        factors = of_blocks.masked_fill(diagonal_blocks(row, column, self.sides), 1)
        options: dict[str, Any] = {"block_gates": factors, "gate_block_size": self.sides}
        if not _is_readable(factors):
            return options
        return options | {"pattern": open_blocks(array_of(factors.detach()) > 0, self.sides)}

    def penalty(self) -> torch.Tensor:
        """Return the mean gate; added to the loss with a weight, it closes gates that do not reduce the loss enough."""
        return full_tensor(self._clamped(self.gates)).mean()

    def extra_repr(self) -> str:
        """Return the settings that the representation of the module shows."""
        return f"num_heads={len(self.gates)}, block_size={self.sides}, tokens={self.tokens}, tied={self.tied}"


def _is_readable(tensor: torch.Tensor) -> bool:
    if tensor.is_meta or torch.compiler.is_compiling():
        return False
    return not private.is_transformed()
