"""Hybrid attention: a global branch predicts the spans of a local branch."""

from __future__ import annotations

from typing import Any, Literal, overload

import torch
from torch import nn

from headspan import _check
from headspan.hybrid.blocks import temperature_of
from headspan.hybrid.parameters import Per, check_causal, check_heads, check_per
from headspan.ops.arguments.options import PLAIN_OPTIONS
from headspan.torch.functional import attention
from headspan.torch.layers.spans import DynamicSpan


class SpanPredictor(DynamicSpan):
    """Predict spans from each token or from the mean of all tokens: ``max_span * sigmoid(weight . x + bias)``.

    Parameters
    ----------
    embed_dim, num_heads : int
    max_span : float
        The largest span, in tokens.
    per : {"batch", "head", "token"}
        One span for each batch item, for each of its heads, or for each head at each token as in `DynamicSpan`.

    Attributes
    ----------
    projection : Linear
        From a token, or from the mean of all tokens, to one number for each span.
    max_span : float

    Raises
    ------
    ValueError
        If a size is less than 1, `max_span` is not positive, or `per` is unknown.
    TypeError
        If a size is not an integer, or `max_span` is not a number.

    See Also
    --------
    HybridAttention : The hybrid layer for PyTorch.
    DynamicSpan : Spans that each token predicts, as a module.

    Examples
    --------
    >>> import torch
    >>> from headspan.torch import SpanPredictor
    >>> SpanPredictor(16, 4, max_span=1000, per="head")(torch.randn(2, 100, 16)).shape
    torch.Size([2, 4])
    """

    def __init__(self, embed_dim: int, num_heads: int, max_span: float, *, per: Per = "batch") -> None:
        heads = _check.integer("num_heads", num_heads, at_least=1)
        self.per = check_per(per)
        super().__init__(embed_dim, 1 if per == "batch" else heads, max_span)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the spans, in tokens, for inputs of shape (batch, tokens, embed_dim).

        Depending on `per`, their shape is (batch, 1), (batch, num_heads) or (batch, num_heads, tokens).
        """
        if self.per == "token":
            return super().forward(x)
        return super().forward(x.mean(-2, keepdim=True))[..., 0]

    def extra_repr(self) -> str:
        """Return the settings that the representation of the module shows."""
        return f"{super().extra_repr()}, per={self.per!r}"


class HybridAttention(nn.Module):
    """Global and local attention in parallel; the global branch predicts the span and temperature of the local one.

    Both branches look both ways by default: pass ``causal=True``, with ``per="token"``, to hide later tokens.
    `headspan.hybrid.hybrid_attention` documents the formulas and gives the same results; its matrices are transposed
    here.

    Parameters
    ----------
    embed_dim, num_heads : int
        Size of a token, a multiple of the number of heads, and number of heads in each branch.
    max_span : float
        The largest span, in tokens.
    ramp : float
        Tokens over which the mask of a span falls from 1 to 0, see `headspan.attention`.
    per : {"batch", "head", "token"}
        One span for each batch item, for each of its heads, or for each head at each token.
    sharpen_longer : bool
        Whether the temperature falls as the span grows; if False, it rises. `learn_temperature` disables this and
        `temperature_range`.
    temperature_range : float
        Change of the temperature between a span of 0 and the largest span.
    learn_temperature : bool
        Whether the temperature of each head is a parameter with an initial value of 1.
    causal : bool
        Whether later tokens are hidden. Requires ``per="token"``, because a mean over all tokens would look ahead.
    include_self : bool
        Whether a token sees itself.
    epsilon : float
        Value added to the variance in the layer norm.

    Attributes
    ----------
    norm : LayerNorm
    global_qkv, local_qkv : Linear
        Queries, keys and values of each branch, in this order, with concatenated heads and without biases.
    predictor : SpanPredictor
    projection : Linear
        From the concatenated branches, the local branch first.
    log_temperature : Parameter or None, shape (num_heads,)

    Raises
    ------
    ValueError
        If `num_heads` does not divide `embed_dim`, or `causal` lacks ``per="token"``.

    See Also
    --------
    SpanPredictor : Spans predicted from tokens or their mean.
    headspan.hybrid.hybrid_attention : The same for NumPy arrays.

    References
    ----------
    HybridAttention in focusedattention.py of github.com/sine2pi/Big_worm, with the changes that
    docs/explain/hybrid.md lists.

    Examples
    --------
    >>> import torch
    >>> from headspan.torch import HybridAttention
    >>> layer = HybridAttention(16, 4, max_span=256, per="head")
    >>> out, span, temperature = layer(torch.randn(2, 1000, 16), return_span=True)
    >>> out.shape, span.shape
    (torch.Size([2, 1000, 16]), torch.Size([2, 4]))
    >>> (out.square().mean() + 1e-4 * span.mean()).backward()
    >>> layer.predictor.projection.weight.grad.shape
    torch.Size([4, 16])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        max_span: float,
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
        self.num_heads = check_heads(width, num_heads, "embed_dim", argument="num_heads")
        self.sharpen_longer = _check.flag("sharpen_longer", sharpen_longer)
        self.temperature_range = _check.number("temperature_range", temperature_range, at_least=0)
        self.options: dict[str, Any] = {
            "ramp": PLAIN_OPTIONS["ramp"].check("ramp", ramp),
            "causal": check_causal(causal, check_per(per)),
            "include_self": _check.flag("include_self", include_self),
        }
        self.norm = nn.LayerNorm(width, eps=_check.positive("epsilon", epsilon))
        self.global_qkv = nn.Linear(width, 3 * width, bias=False)
        self.local_qkv = nn.Linear(width, 3 * width, bias=False)
        self.predictor = SpanPredictor(width, self.num_heads, max_span, per=per)
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
        """Compute hybrid attention.

        Parameters
        ----------
        x : Tensor, shape (batch, tokens, embed_dim)
        return_span : bool
            Whether to return the predicted span and the temperature as well.

        Returns
        -------
        out : Tensor, shape (batch, tokens, embed_dim)
        span : Tensor, shape (batch, 1), (batch, num_heads) or (batch, num_heads, tokens), depending on `per`
            Span in tokens, for a penalty that keeps spans short. Returned only if `return_span` is True.
        temperature : Tensor, of the shape of span, or (num_heads,) if it is learned
            Returned only if `return_span` is True.
        """
        width = self.projection.out_features
        if x.ndim != 3 or x.shape[-1] != width:
            raise ValueError(f"x must be of shape (batch, tokens, {width}), not {tuple(x.shape)}")
        normed = self.norm(x)
        global_out = self._branch(self.global_qkv(normed))
        span = self.predictor(global_out)
        if self.log_temperature is None:
            temperature = temperature_of(span / self.predictor.max_span, self.temperature_range, self.sharpen_longer)
        else:
            temperature = self.log_temperature.exp()
        local_out = self._branch(self.local_qkv(normed), span=span, temperature=temperature)
        out = self.projection(torch.cat([local_out, global_out], -1))
        return (out, span, temperature) if return_span else out

    def _branch(self, qkv: torch.Tensor, **options: Any) -> torch.Tensor:
        """Return the self-attention of one branch with concatenated heads."""
        parts = qkv.unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind()
        out = attention(query, key, value, **self.options, **options)
        return out.transpose(1, 2).flatten(2)

    def extra_repr(self) -> str:
        """Return the settings that the representation of the module shows."""
        return f"num_heads={self.num_heads}, " + ", ".join(f"{name}={x}" for name, x in self.options.items())
