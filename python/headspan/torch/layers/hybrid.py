"""The layer of two branches: what one sees of all tokens predicts how far the other looks."""

from __future__ import annotations

from typing import Any, Literal, overload

import torch
from torch import nn

from headspan import _check
from headspan.hybrid.blocks import temperature_of
from headspan.hybrid.parameters import Per, check_causal, check_heads, check_per
from headspan.ops.arguments.request import PLAIN
from headspan.torch.functional import attention
from headspan.torch.layers.spans import DynamicSpan


class SpanPredictor(DynamicSpan):
    """Spans that are predicted from tokens, from each or from their mean: ``limit * sigmoid(weight . x + bias)``.

    Parameters
    ----------
    embed_dim, num_heads : int
    limit : float
        The largest span, in tokens.
    per : {"batch", "head", "token"}
        What has a span of its own: a batch item, each of its heads, or each head at each token, which is `DynamicSpan`.

    Attributes
    ----------
    projection : Linear
        From a token, or from the mean of all, to a number for each span.
    limit : float

    Raises
    ------
    ValueError
        For a value out of its range.
    TypeError
        For a wrong type.

    Examples
    --------
    >>> import torch
    >>> from headspan.torch import SpanPredictor
    >>> SpanPredictor(16, 4, limit=1000, per="head")(torch.randn(2, 100, 16)).shape
    torch.Size([2, 4])
    """

    def __init__(self, embed_dim: int, num_heads: int, limit: float, *, per: Per = "batch") -> None:
        heads = _check.integer("num_heads", num_heads, at_least=1)
        self.per = check_per(per)
        super().__init__(embed_dim, 1 if per == "batch" else heads, limit)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the spans of tokens of shape (batch, tokens, embed_dim), in tokens.

        Their shape is (batch, 1), (batch, num_heads) or (batch, num_heads, tokens), following `per`.
        """
        if self.per == "token":
            return super().forward(x)
        return super().forward(x.mean(-2, keepdim=True))[..., 0]

    def extra_repr(self) -> str:
        """Return what the layer shows of itself."""
        return f"{super().extra_repr()}, per={self.per!r}"


class HybridAttention(nn.Module):
    """Global attention beside local attention, whose span and temperature are predicted from the global one.

    The numbers are those of `headspan.hybrid_attention`, which has the formulas; weights are its matrices, transposed.

    Parameters
    ----------
    embed_dim, num_heads : int
        The width of a token, a multiple of the number of heads of each branch.
    limit : float
        The largest span, in tokens.
    ramp : float
        Tokens over which the mask of a span falls from 1 to 0, see `headspan.attention`.
    per : {"batch", "head", "token"}
        What has a span of its own: a batch item, each of its heads, or each head at each token.
    sharpen_longer : bool
        Whether the temperature falls as the span grows, or rises. Not used, as `temperature_range`, with
        `learn_temperature`.
    temperature_range : float
        By how much the temperature changes from no span to the largest.
    learn_temperature : bool
        Whether the temperature of a head is a parameter, 1 at first.
    causal : bool
        Whether tokens see no later ones. Takes ``per="token"``: a mean over all tokens would look ahead.
    include_self : bool
        Whether a token sees itself.
    epsilon : float
        Added to the variance in the layer norm.

    Attributes
    ----------
    norm : LayerNorm
    global_qkv, local_qkv : Linear
        Queries, keys and values of each branch, in this order, heads side by side; without biases.
    predictor : SpanPredictor
    projection : Linear
        From both branches, the local one first.
    log_temperature : Parameter or None, shape (num_heads,)

    Raises
    ------
    ValueError
        For a value out of its range, or sizes that do not divide.
    TypeError
        For a wrong type.

    References
    ----------
    HybridAttention in focusedattention.py of github.com/sine2pi/Big_worm, with the changes that
    docs/explain/hybrid.md lists.

    Examples
    --------
    >>> import torch
    >>> from headspan.torch import HybridAttention
    >>> layer = HybridAttention(16, 4, limit=50, per="head")
    >>> out, span, temperature = layer(torch.randn(2, 100, 16), return_span=True)
    >>> out.shape, span.shape
    (torch.Size([2, 100, 16]), torch.Size([2, 4]))
    >>> (out.square().mean() + 1e-4 * span.mean()).backward()
    >>> layer.predictor.projection.weight.grad.shape
    torch.Size([4, 16])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        limit: float,
        ramp: float = 32,
        per: Per = "batch",
        sharpen_longer: bool = True,
        temperature_range: float = 0.01,
        learn_temperature: bool = False,
        causal: bool = False,
        include_self: bool = True,
        epsilon: float = 1e-5,
    ) -> None:
        super().__init__()
        width = _check.integer("embed_dim", embed_dim, at_least=1)
        self.num_heads = check_heads(width, num_heads, "embed_dim", given="num_heads")
        self.sharpen_longer = _check.flag("sharpen_longer", sharpen_longer)
        self.temperature_range = _check.number("temperature_range", temperature_range, at_least=0)
        self.options: dict[str, Any] = {
            "ramp": PLAIN["ramp"]("ramp", ramp),
            "causal": check_causal(causal, check_per(per)),
            "include_self": _check.flag("include_self", include_self),
        }
        self.norm = nn.LayerNorm(width, eps=_check.positive("epsilon", epsilon))
        self.global_qkv = nn.Linear(width, 3 * width, bias=False)
        self.local_qkv = nn.Linear(width, 3 * width, bias=False)
        self.predictor = SpanPredictor(width, self.num_heads, limit, per=per)
        self.projection = nn.Linear(2 * width, width)
        learned = _check.flag("learn_temperature", learn_temperature)
        self.log_temperature = nn.Parameter(torch.zeros(self.num_heads)) if learned else None

    @overload
    def forward(self, x: torch.Tensor, *, return_span: Literal[False] = ...) -> torch.Tensor: ...
    @overload
    def forward(
        self, x: torch.Tensor, *, return_span: Literal[True]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]: ...
    def forward(self, x: torch.Tensor, *, return_span: bool = False) -> Any:
        """Attend.

        Parameters
        ----------
        x : Tensor, shape (batch, tokens, embed_dim)
        return_span : bool
            Whether to return the predicted span and temperature, too.

        Returns
        -------
        out : Tensor, shape (batch, tokens, embed_dim)
        span : Tensor, shape (batch, 1), (batch, num_heads) or (batch, num_heads, tokens), following `per`
            In tokens, for a penalty that keeps spans short. Only with `return_span`, as the temperature.
        temperature : Tensor, of the shape of span; (num_heads,) when it is learned
        """
        width = self.projection.out_features
        if x.ndim != 3 or x.shape[-1] != width:
            raise ValueError(f"x must be of shape (batch, tokens, {width}), not {tuple(x.shape)}")
        normed = self.norm(x)
        seen = self._branch(self.global_qkv(normed))
        span = self.predictor(seen)
        if self.log_temperature is None:
            temperature = temperature_of(span / self.predictor.limit, self.temperature_range, self.sharpen_longer)
        else:
            temperature = self.log_temperature.exp()
        near = self._branch(self.local_qkv(normed), span=span, temperature=temperature)
        out = self.projection(torch.cat([near, seen], -1))
        return (out, span, temperature) if return_span else out

    def _branch(self, qkv: torch.Tensor, **options: Any) -> torch.Tensor:
        """Return attention of tokens among themselves, heads side by side."""
        parts = qkv.unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind()
        out = attention(query, key, value, **self.options, **options)
        return out.transpose(1, 2).flatten(2)

    def extra_repr(self) -> str:
        """Return what the layer shows of itself."""
        return f"num_heads={self.num_heads}, " + ", ".join(f"{name}={x}" for name, x in self.options.items())
