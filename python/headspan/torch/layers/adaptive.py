"""Self-attention whose heads learn how far they look, and the block of a transformer around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Unpack, overload

import torch
from torch import nn

from headspan import _check
from headspan.ops.arguments.options import Options
from headspan.ops.arguments.request import PLAIN
from headspan.patterns.base import Pattern
from headspan.torch.functional import attention, beside
from headspan.torch.layers.spans import AdaptiveSpan, DynamicSpan
from headspan.torch.schema import written_pattern

_ROTARY_BASE = 10000.0


def rotate(x: torch.Tensor, positions: Any) -> torch.Tensor:
    """Turn the halves of each vector by angles that grow with its position, so that products know distances.

    Parameters
    ----------
    x : Tensor, shape (batch, tokens, heads, head_dim)
        head_dim is even.
    positions : array_like, shape (tokens,) or (batch, tokens)

    Returns
    -------
    Tensor, shape (batch, tokens, heads, head_dim)

    References
    ----------
    Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021, equation 34, with the two numbers
    of a pair half a vector apart.
    """
    half = x.shape[-1] // 2
    frequencies = _ROTARY_BASE ** -(torch.arange(half, dtype=torch.float64, device=x.device) / half)
    # float32 cannot tell 1e5 and 1e5 + 0.001 apart.
    angles = torch.as_tensor(positions, dtype=torch.float64, device=x.device)[..., None, None] * frequencies
    turns = {"cosine": angles.cos().to(x.dtype), "sine": angles.sin().to(x.dtype)}
    cosine, sine = beside(x, turns).values()
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1)


class AdaptiveSpanAttention(nn.Module):
    """Self-attention whose heads learn how far they look.

    Parameters
    ----------
    embed_dim, num_heads : int
        The width of a token, a multiple of the number of heads.
    limit : float
        The largest span, in tokens.
    ramp : float
        Tokens over which the mask of a span falls from 1 to 0, see `headspan.attention`.
    dynamic : bool
        Whether every token predicts its spans (`DynamicSpan`); else each head has one (`AdaptiveSpan`).
    pattern : Pattern or list of Pattern, optional
        Which pairs there are at all; a list has one for each head.
    key_heads : int, optional
        Heads of keys and values, which divide those of queries; as many unless given.
    rotary : bool
        Whether queries and keys are turned by their positions.
    sinks : bool
        Whether each head has a learned score that takes weight and gives nothing.
    softcap : float, optional
        Bounds the scaled dot products.

    Attributes
    ----------
    span : AdaptiveSpan or DynamicSpan
    q_proj, k_proj, v_proj, out_proj : Linear
        Without biases.
    sinks : Parameter or None, shape (num_heads,)

    Raises
    ------
    ValueError
        For a value out of its range, or sizes that do not divide.
    TypeError
        For a wrong type.

    References
    ----------
    Sukhbaatar et al., "Adaptive Attention Span in Transformers", ACL 2019.

    Examples
    --------
    >>> import torch
    >>> from headspan.torch import AdaptiveSpanAttention
    >>> layer = AdaptiveSpanAttention(64, 4, limit=1000, ramp=32)
    >>> x = torch.randn(2, 100, 64)
    >>> loss = layer(x).square().mean() + 1e-4 * layer.span.penalty()
    >>> loss.backward()
    >>> layer.span.fraction.grad.shape
    torch.Size([4])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        limit: float,
        ramp: float,
        dynamic: bool = False,
        pattern: Pattern | Sequence[Pattern] | None = None,
        key_heads: int | None = None,
        rotary: bool = True,
        sinks: bool = False,
        softcap: float | None = None,
    ) -> None:
        super().__init__()
        width = _check.integer("embed_dim", embed_dim, at_least=1)
        self.num_heads = _check.integer("num_heads", num_heads, at_least=1)
        if width % self.num_heads:
            raise ValueError(f"embed_dim must be a multiple of num_heads, not {width} and {self.num_heads}")
        self.head_dim = width // self.num_heads
        self.key_heads = self.num_heads if key_heads is None else _check.integer("key_heads", key_heads, at_least=1)
        if self.num_heads % self.key_heads:
            raise ValueError(f"num_heads must be a multiple of key_heads, not {self.num_heads} and {self.key_heads}")
        self.rotary = _check.flag("rotary", rotary)
        if self.rotary and self.head_dim % 2:
            raise ValueError(f"head_dim must be even to be turned, not {self.head_dim}; see rotary")
        self.ramp = PLAIN["ramp"]("ramp", ramp)
        self.softcap = None if softcap is None else PLAIN["softcap"]("softcap", softcap)
        self.pattern = pattern
        if pattern is not None:
            written_pattern(pattern)  # or an error
        dynamic = _check.flag("dynamic", dynamic)
        self.span = DynamicSpan(width, self.num_heads, limit) if dynamic else AdaptiveSpan(self.num_heads, limit)
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, self.key_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(width, self.key_heads * self.head_dim, bias=False)
        self.out_proj = nn.Linear(width, width, bias=False)
        self.sinks = nn.Parameter(torch.zeros(self.num_heads)) if _check.flag("sinks", sinks) else None

    @overload
    def forward(
        self, x: torch.Tensor, *, return_span: Literal[False] = ..., **options: Unpack[Options]
    ) -> torch.Tensor: ...
    @overload
    def forward(
        self, x: torch.Tensor, *, return_span: Literal[True], **options: Unpack[Options]
    ) -> tuple[torch.Tensor, torch.Tensor]: ...
    def forward(self, x: torch.Tensor, *, return_span: bool = False, **options: Any) -> Any:
        """Attend.

        Parameters
        ----------
        x : Tensor, shape (batch, tokens, embed_dim)
        return_span : bool
            Whether to return the spans, too, for a penalty on those that tokens predict.
        **options
            Of `headspan.torch.attention`, beside those that the layer has: `causal`, padding, documents, dropout, the
            gates of `LearnedBlocks`.

        Returns
        -------
        out : Tensor, shape (batch, tokens, embed_dim)
        span : Tensor, shape (num_heads,) or (batch, num_heads, tokens)
            Only with `return_span`.
        """
        if x.ndim != 3 or x.shape[-1] != self.q_proj.in_features:
            raise ValueError(f"x must be of shape (batch, tokens, {self.q_proj.in_features}), not {tuple(x.shape)}")
        query, key, value = (
            projection(x).unflatten(-1, (-1, self.head_dim)) for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        if self.rotary:
            placed = [options.get(name) for name in ("key_positions", "query_positions")]
            places = torch.arange(x.shape[1]) if placed[0] is None else placed[0]
            key, query = rotate(key, places), rotate(query, places if placed[1] is None else placed[1])
        span = self.span(x) if isinstance(self.span, DynamicSpan) else self.span()
        own = {"span": span, "ramp": self.ramp, "sinks": self.sinks, "softcap": self.softcap}
        if self.pattern is not None:  # else a call may have one, as of gates that are learned
            own["pattern"] = self.pattern
        out = attention(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), **own, **options)
        result = self.out_proj(out.transpose(1, 2).flatten(2))
        return (result, span) if return_span else result

    def extra_repr(self) -> str:
        """Return what the layer shows of itself."""
        shown = {"num_heads": self.num_heads, "key_heads": self.key_heads, "ramp": self.ramp, "rotary": self.rotary}
        more = {"pattern": self.pattern, "softcap": self.softcap}
        return ", ".join(f"{name}={x}" for name, x in (shown | more).items() if x is not None)


class TransformerBlock(nn.Module):
    """A layer of a transformer in its plainest form: attention and two linear maps, each on normalised tokens.

    Parameters
    ----------
    embed_dim, num_heads : int
    limit, ramp : float
        Of the spans, as the other options: see `AdaptiveSpanAttention`.
    **options
        Of `AdaptiveSpanAttention`.

    Attributes
    ----------
    attention : AdaptiveSpanAttention
    attention_norm, mlp_norm : LayerNorm
    mlp : Sequential
        To four times the width and back.

    Raises
    ------
    ValueError
        For a value out of its range, or sizes that do not divide.
    TypeError
        For a wrong type.

    Examples
    --------
    >>> import torch
    >>> from headspan.torch import TransformerBlock
    >>> block = TransformerBlock(64, 4, limit=1000, ramp=32, key_heads=2)
    >>> block(torch.randn(2, 100, 64)).shape
    torch.Size([2, 100, 64])
    """

    def __init__(self, embed_dim: int, num_heads: int, *, limit: float, ramp: float, **options: Any) -> None:
        super().__init__()
        self.attention = AdaptiveSpanAttention(embed_dim, num_heads, limit=limit, ramp=ramp, **options)
        self.attention_norm = nn.LayerNorm(embed_dim)
        self.mlp_norm = nn.LayerNorm(embed_dim)
        self.mlp = nn.Sequential(nn.Linear(embed_dim, 4 * embed_dim), nn.GELU(), nn.Linear(4 * embed_dim, embed_dim))

    def forward(self, x: torch.Tensor, *, return_span: bool = False, **options: Any) -> Any:
        """Return tokens for tokens; arguments and results are those of `AdaptiveSpanAttention`."""
        attended, span = self.attention(self.attention_norm(x), return_span=True, **options)
        x = x + attended
        x = x + self.mlp(self.mlp_norm(x))
        return (x, span) if return_span else x
