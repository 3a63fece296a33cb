"""Rows of tokens that other ranks hold, brought here, and their gradients back to their owners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from headspan.ops.halo import halo


class Exchange(NamedTuple):
    """Who gets what.

    Attributes
    ----------
    group : ProcessGroup or None
    starts : ndarray of int64, shape (ranks + 1,)
        Where the tokens of each rank begin, and where they end.
    windows : ndarray of int64, shape (ranks, heads, 2)
        The tokens that each rank needs of each head: the first and the one after the last.
    first, last : int
        The tokens that are laid out here, the first and the one after the last; what nobody brings of them is 0.
    """

    group: Any
    starts: npt.NDArray[np.int64]
    windows: npt.NDArray[np.int64]
    first: int
    last: int

    def gather(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return what is needed of tensors of shape (batch, heads, tokens, dims), each laid out in one of its own.

        All ranks have to call it together, and what it does backward, too.
        """
        laid_out: tuple[torch.Tensor, ...] = _Gather.apply(self, *tensors)
        return laid_out

    @property
    def rank(self) -> int:
        """Which rank this is."""
        rank: int = dist.get_rank(self.group)
        return rank

    @property
    def own(self) -> slice:
        """Where the own tokens are laid out."""
        start, stop = self.starts[self.rank : self.rank + 2] - self.first
        return slice(int(start), int(stop))

    def parts(self, tensors: Sequence[torch.Tensor], origin: int, *, given: bool) -> list[list[torch.Tensor]]:
        """Return views, for each rank, of what it is given, or of what it gives; rows of tensors count from origin."""
        ranks = range(len(self.starts) - 1)
        pairs = [(self.rank, other) if given else (other, self.rank) for other in ranks]
        return [
            [
                x[:, head, a - origin : b - origin]
                for head, a, b in halo(self.windows, self.starts, *pair)
                for x in tensors
            ]
            for pair in pairs
        ]

    def swap(self, outgoing: list[list[torch.Tensor]], incoming: list[list[torch.Tensor]]) -> list[list[torch.Tensor]]:
        """Send to each rank what is outgoing; return what comes from each, in the shapes of what is incoming."""
        some = [x for parts in (*outgoing, *incoming) for x in parts]
        sent = [sum(x.numel() for x in parts) for parts in outgoing]
        received = [sum(x.numel() for x in parts) for parts in incoming]
        dtype = some[0].dtype if some else torch.float32
        packed = torch.cat([torch.empty(0, dtype=dtype), *(x.reshape(-1) for parts in outgoing for x in parts)])
        come = torch.empty(sum(received), dtype=dtype)
        # As bytes, which every backend sends, whatever they mean.
        size = dtype.itemsize
        dist.all_to_all_single(
            come.view(torch.uint8),
            packed.view(torch.uint8),
            [size * n for n in received],
            [size * n for n in sent],
            group=self.group,
        )
        each = iter(come.split([x.numel() for parts in incoming for x in parts]))
        return [[next(each).view(x.shape) for x in parts] for parts in incoming]


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, exchange: Exchange, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.exchange = exchange
        start = int(exchange.starts[exchange.rank])
        own = exchange.own
        laid_out = tuple(x.new_empty(*x.shape[:2], exchange.last - exchange.first, x.shape[3]) for x in tensors)
        for into, x in zip(laid_out, tensors, strict=True):
            into[:, :, own] = x
            into[:, :, : own.start] = 0
            into[:, :, own.stop :] = 0
        outgoing = exchange.parts(tensors, start, given=True)
        incoming = exchange.parts(laid_out, exchange.first, given=False)
        for places, found in zip(incoming, exchange.swap(outgoing, incoming), strict=True):
            for place, x in zip(places, found, strict=True):
                place.copy_(x)
        return laid_out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        exchange = ctx.exchange
        start = int(exchange.starts[exchange.rank])
        # These gradients are nobody else's, since what is laid out has one use: they are added to where they are.
        own = [x[:, :, exchange.own] for x in gradients]
        outgoing = exchange.parts(gradients, exchange.first, given=False)
        incoming = exchange.parts(own, start, given=True)
        for places, found in zip(incoming, exchange.swap(outgoing, incoming), strict=True):
            for place, x in zip(places, found, strict=True):
                place.add_(x)
        return None, *own
