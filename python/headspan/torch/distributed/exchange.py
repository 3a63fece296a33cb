"""Exchange of token rows between ranks: gather the rows that a rank needs, and return their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from headspan.ops.halo import halo


class Exchange(NamedTuple):
    """The plan of an exchange between ranks.

    Attributes
    ----------
    group : ProcessGroup or None
    starts : ndarray of int64, shape (ranks + 1,)
        First token of each rank, followed by the number of all tokens.
    windows : ndarray of int64, shape (ranks, heads, 2)
        Tokens that each rank needs of each head: the first token and the one after the last.
    first, last : int
        First token of the local buffer and the one after the last; rows that no rank sends are 0.
    """

    group: Any
    starts: npt.NDArray[np.int64]
    windows: npt.NDArray[np.int64]
    first: int
    last: int

    def gather(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return for each tensor, (batch, heads, tokens, dims), a buffer with the rows that this rank needs.

        All ranks must call the function together, and also run its backward pass together.
        """
        buffers: tuple[torch.Tensor, ...] = _Gather.apply(self, *tensors)
        return buffers

    @property
    def rank(self) -> int:
        """The index of this rank."""
        rank: int = dist.get_rank(self.group)
        return rank

    @property
    def local(self) -> slice:
        """The rows of the local tokens in the buffer."""
        start, stop = self.starts[self.rank : self.rank + 2] - self.first
        return slice(int(start), int(stop))

    def parts(self, tensors: Sequence[torch.Tensor], origin: int, *, is_sent: bool) -> list[list[torch.Tensor]]:
        """Return views of the rows sent to each rank, or received from it; row 0 of the tensors is token `origin`."""
        ranks = range(len(self.starts) - 1)
        pairs = [(self.rank, other) if is_sent else (other, self.rank) for other in ranks]
        return [
            [
                x[:, head, a - origin : b - origin]
                for head, a, b in halo(self.windows, self.starts, *pair)
                for x in tensors
            ]
            for pair in pairs
        ]

    def swap(self, outgoing: list[list[torch.Tensor]], incoming: list[list[torch.Tensor]]) -> list[list[torch.Tensor]]:
        """Send `outgoing` to the ranks; return the tensors received from each, in the shapes of `incoming`."""
        tensors = [x for parts in (*outgoing, *incoming) for x in parts]
        sent = [sum(x.numel() for x in parts) for parts in outgoing]
        received = [sum(x.numel() for x in parts) for parts in incoming]
        dtype = tensors[0].dtype if tensors else torch.float32
        packed = torch.cat([torch.empty(0, dtype=dtype), *(x.reshape(-1) for parts in outgoing for x in parts)])
        buffer = torch.empty(sum(received), dtype=dtype)
        # Every backend can send bytes, but not every type.
        size = dtype.itemsize
        dist.all_to_all_single(
            buffer.view(torch.uint8),
            packed.view(torch.uint8),
            [size * n for n in received],
            [size * n for n in sent],
            group=self.group,
        )
        rows = iter(buffer.split([x.numel() for parts in incoming for x in parts]))
        return [[next(rows).view(x.shape) for x in parts] for parts in incoming]


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, exchange: Exchange, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.exchange = exchange
        start = int(exchange.starts[exchange.rank])
        local = exchange.local
        buffers = tuple(x.new_empty(*x.shape[:2], exchange.last - exchange.first, x.shape[3]) for x in tensors)
        for buffer, x in zip(buffers, tensors, strict=True):
            buffer[:, :, local] = x
            buffer[:, :, : local.start] = 0
            buffer[:, :, local.stop :] = 0
        outgoing = exchange.parts(tensors, start, is_sent=True)
        incoming = exchange.parts(buffers, exchange.first, is_sent=False)
        for views, received in zip(incoming, exchange.swap(outgoing, incoming), strict=True):
            for view, x in zip(views, received, strict=True):
                view.copy_(x)
        return buffers

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        exchange = ctx.exchange
        start = int(exchange.starts[exchange.rank])
        # No other code uses these gradients, because a buffer has a single use, so they can be modified in place.
        local = [x[:, :, exchange.local] for x in gradients]
        outgoing = exchange.parts(gradients, exchange.first, is_sent=False)
        incoming = exchange.parts(local, start, is_sent=True)
        for views, received in zip(incoming, exchange.swap(outgoing, incoming), strict=True):
            for view, x in zip(views, received, strict=True):
                view.add_(x)
        return None, *local
