"""Self-attention whose heads learn their spans, and a transformer block that contains it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Unpack, overload

import torch
from torch import nn

from headspan import _check
from headspan.ops.arguments.options import PLAIN_OPTIONS, Options
from headspan.patterns.base import Pattern
from headspan.torch.functional import attention, replicate_like
from headspan.torch.layers.spans import AdaptiveSpan, DynamicSpan
from headspan.torch.schema import written_pattern

_ROTARY_BASE = 10000.0


def rotate(x: torch.Tensor, positions: Any) -> torch.Tensor:
    """Apply rotary position embedding, so that dot products depend on distances.

    Parameters
    ----------
    x : Tensor, shape (batch, tokens, heads, head_dim)
        `head_dim` must be even.
    positions : array_like, shape (tokens,) or (batch, tokens)

    Returns
    -------
    Tensor, shape (batch, tokens, heads, head_dim)

    References
    ----------
    Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021, equation 34. Here the two elements
    of a pair are half a vector apart.
    """
    half = x.shape[-1] // 2
    frequencies = _ROTARY_BASE ** -(torch.arange(half, dtype=torch.float64, device=x.device) / half)
    # float32 cannot distinguish 1e5 from 1e5 + 0.001.
    angles = torch.as_tensor(positions, dtype=torch.float64, device=x.device)[..., None, None] * frequencies
    turns = {"cosine": angles.cos().to(x.dtype), "sine": angles.sin().to(x.dtype)}
    cosine, sine = replicate_like(x, turns).values()
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1)


class AdaptiveSpanAttention(nn.Module):
    """Self-attention whose heads learn their spans.

    Parameters
    ----------
    embed_dim, num_heads : int
        Size of a token, a multiple of the number of heads, and number of heads.
    max_span : float
        The largest span, in tokens.
    ramp : float
        Tokens over which the mask of a span falls from 1 to 0, see `headspan.attention`.
    dynamic : bool
        Whether every token predicts its spans (`DynamicSpan`). By default each head has one span (`AdaptiveSpan`).
    pattern : Pattern or list of Pattern, optional
        Pattern of the visible pairs; a list has one pattern for each head.
    num_key_heads : int, optional
        Number of heads of keys and values, a divisor of `num_heads`. Default: `num_heads`.
    rotary : bool
        Whether queries and keys get rotary position embeddings.
    sinks : bool
        Whether each head has a learned attention sink: a score without a value.
    softcap : float, optional
        Bound of the scaled dot products. Default: no bound.

    Attributes
    ----------
    span : AdaptiveSpan or DynamicSpan
    q_proj, k_proj, v_proj, out_proj : Linear
        Without biases.
    sinks : Parameter or None, shape (num_heads,)

    Raises
    ------
    ValueError
        If a size is not a multiple of the number of heads.
    TypeError
        If a size is not an integer, `max_span` or `ramp` is not a number, or `pattern` is not a pattern.

    See Also
    --------
    TransformerBlock : A transformer block with learned spans.
    AdaptiveSpan : A learned span for each head.
    DynamicSpan : Spans that each token predicts, as a module.
    convert : Adds learned spans to an existing model.

    References
    ----------
    Sukhbaatar et al., "Adaptive Attention Span in Transformers", ACL 2019.

    Examples
    --------
    >>> import torch
    >>> from headspan.torch import AdaptiveSpanAttention
    >>> layer = AdaptiveSpanAttention(64, 4, max_span=1000, ramp=32)
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
        max_span: float,
        ramp: float = 32,
        dynamic: bool = False,
        pattern: Pattern | Sequence[Pattern] | None = None,
        num_key_heads: int | None = None,
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
        self.num_key_heads = (
            self.num_heads if num_key_heads is None else _check.integer("num_key_heads", num_key_heads, at_least=1)
        )
        if self.num_heads % self.num_key_heads:
            raise ValueError(
                f"num_heads must be a multiple of num_key_heads, not {self.num_heads} and {self.num_key_heads}"
            )
        self.rotary = _check.flag("rotary", rotary)
        if self.rotary and self.head_dim % 2:
            raise ValueError(f"head_dim must be even for rotary positions, not {self.head_dim}; see rotary")
        self.ramp = PLAIN_OPTIONS["ramp"].check("ramp", ramp)
        self.softcap = None if softcap is None else PLAIN_OPTIONS["softcap"].check("softcap", softcap)
        self.pattern = pattern
        if pattern is not None:
            written_pattern(pattern)  # raises errors for wrong patterns
        dynamic = _check.flag("dynamic", dynamic)
        self.span = DynamicSpan(width, self.num_heads, max_span) if dynamic else AdaptiveSpan(self.num_heads, max_span)
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, self.num_key_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(width, self.num_key_heads * self.head_dim, bias=False)
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
        """Compute self-attention.

        Parameters
        ----------
        x : Tensor, shape (batch, tokens, embed_dim)
        return_span : bool
            Whether to return the spans as well, for a penalty on predicted spans.
        **options
            Options of `headspan.torch.attention` that the layer does not set: `causal`, padding, segments, dropout, the
            gates of `LearnedBlocks`.

        Returns
        -------
        out : Tensor, shape (batch, tokens, embed_dim)
        span : Tensor, shape (num_heads,) or (batch, num_heads, tokens)
            Returned only if `return_span` is True.
        """
        if x.ndim != 3 or x.shape[-1] != self.q_proj.in_features:
            raise ValueError(f"x must be of shape (batch, tokens, {self.q_proj.in_features}), not {tuple(x.shape)}")
        query, key, value = (
            projection(x).unflatten(-1, (-1, self.head_dim)) for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        if self.rotary:
            explicit = [options.get(name) for name in ("key_positions", "query_positions")]
            positions = torch.arange(x.shape[1], device=x.device) if explicit[0] is None else explicit[0]
            key, query = rotate(key, positions), rotate(query, positions if explicit[1] is None else explicit[1])
        span = self.span(x) if isinstance(self.span, DynamicSpan) else self.span()
        fixed = {"span": span, "ramp": self.ramp, "sinks": self.sinks, "softcap": self.softcap}
        # Without a pattern of the layer, `options` may contain one, for example from learned gates.
        if self.pattern is not None:
            fixed["pattern"] = self.pattern
        out = attention(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), **fixed, **options)
        result = self.out_proj(out.transpose(1, 2).flatten(2))
        return (result, span) if return_span else result

    def extra_repr(self) -> str:
        """Return the settings that the representation of the module shows."""
        shown = {
            "num_heads": self.num_heads,
            "num_key_heads": self.num_key_heads,
            "ramp": self.ramp,
            "rotary": self.rotary,
        }
        optional = {"pattern": self.pattern, "softcap": self.softcap}
        return ", ".join(f"{name}={x}" for name, x in (shown | optional).items() if x is not None)


class TransformerBlock(nn.Module):
    """A pre-norm transformer block: attention and a two-layer MLP, each with a residual connection.

    Parameters
    ----------
    embed_dim, num_heads : int
    max_span, ramp : float
        Largest span and ramp, in tokens; see `AdaptiveSpanAttention`.
    **options
        Further arguments of `AdaptiveSpanAttention`.

    Attributes
    ----------
    attention : AdaptiveSpanAttention
    attention_norm, mlp_norm : LayerNorm
    mlp : Sequential
        Two linear layers with a hidden size of ``4 * embed_dim``.

    Raises
    ------
    ValueError
        If a size is not a multiple of the number of heads.

    See Also
    --------
    AdaptiveSpanAttention : Self-attention with learned spans.
    parameter_groups : Parameter groups with a learning rate for spans.

    Examples
    --------
    >>> import torch
    >>> from headspan.torch import TransformerBlock
    >>> block = TransformerBlock(64, 4, max_span=1000, ramp=32, num_key_heads=2)
    >>> block(torch.randn(2, 100, 64)).shape
    torch.Size([2, 100, 64])
    """

    def __init__(self, embed_dim: int, num_heads: int, *, max_span: float, ramp: float = 32, **options: Any) -> None:
        super().__init__()
        self.attention = AdaptiveSpanAttention(embed_dim, num_heads, max_span=max_span, ramp=ramp, **options)
        self.attention_norm = nn.LayerNorm(embed_dim)
        self.mlp_norm = nn.LayerNorm(embed_dim)
        self.mlp = nn.Sequential(nn.Linear(embed_dim, 4 * embed_dim), nn.GELU(), nn.Linear(4 * embed_dim, embed_dim))

    def forward(self, x: torch.Tensor, *, return_span: bool = False, **options: Any) -> Any:
        """Apply the block; arguments and results are those of `AdaptiveSpanAttention`."""
        attended, span = self.attention(self.attention_norm(x), return_span=True, **options)
        x = x + attended
        x = x + self.mlp(self.mlp_norm(x))
        return (x, span) if return_span else x
