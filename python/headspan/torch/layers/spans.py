"""Spans that are learned: one for each head, or one that every token predicts for itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from headspan import _check


class _Within(torch.autograd.Function):
    """Clamp to 0 and 1; of the gradient all but what leads farther out.

    The gradient of `torch.clamp` is 0 outside, where a span that a step has taken too far would stay for ever.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x.clamp(0, 1)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        outward = ((x <= 0) & (grad > 0)) | ((x >= 1) & (grad < 0))  # descent goes against the gradient
        return grad.masked_fill(outward, 0)


def _in_full(x: torch.Tensor) -> torch.Tensor:
    """Bring it to float32 at least: bfloat16 has no whole numbers beyond 256."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def share(x: torch.Tensor) -> torch.Tensor:
    """Return a parameter as a share between 0 and 1, of float32 at least."""
    clamped: torch.Tensor = _in_full(_Within.apply(x))
    return clamped


class AdaptiveSpan(nn.Module):
    """A span for each head, learned, between 0 and a limit.

    What is learned is the span as a share of the limit, so that the usual learning rates suit it. What a step of the
    optimizer makes of a share is clamped to 0 and 1 where it is used, and has no gradient that leads farther out. So a
    span comes back from a bound as if it had been clamped after each step, up to what momentum an optimizer has.

    Parameters
    ----------
    num_heads : int
    limit : float
        The largest span, in tokens.
    initial : array_like
        Where spans start, in tokens: a number, or one for each head.

    Attributes
    ----------
    fraction : Parameter, shape (num_heads,)
        The spans, divided by the limit.
    limit : float

    Raises
    ------
    ValueError
        For a value out of its range.
    TypeError
        For a wrong type.

    References
    ----------
    Sukhbaatar et al., "Adaptive Attention Span in Transformers", ACL 2019, section 2.2.

    Examples
    --------
    >>> from headspan.torch import AdaptiveSpan
    >>> span = AdaptiveSpan(4, limit=1000, initial=[8, 32, 128, 1000])
    >>> (span() / 8).tolist()
    [1.0, 4.0, 16.0, 125.0]
    >>> span.penalty().item()
    292.0
    """

    def __init__(self, num_heads: int, limit: float, *, initial: npt.ArrayLike = 0.0) -> None:
        super().__init__()
        heads = _check.integer("num_heads", num_heads, at_least=1)
        self.limit = _check.positive("limit", limit)
        spans = _check.real_array("initial", initial)
        if spans.shape not in ((), (heads,)):
            raise ValueError(f"initial must be a number or of shape ({heads},), not of shape {spans.shape}")
        if spans.min() < 0 or spans.max() > self.limit:
            wrong = spans.min() if spans.min() < 0 else spans.max()
            raise ValueError(f"initial must lie between 0 and the limit of {self.limit:g}, not be {wrong:g}")
        self._initial: list[float] = (spans / self.limit * np.ones(heads)).tolist()
        self.fraction = nn.Parameter(torch.empty(heads))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Set the spans to where they start, as for a module that was made on "meta" and got memory by `to_empty`."""
        if not self.fraction.is_meta:
            self.fraction.copy_(self.initial_fraction(self.fraction.dtype))

    def initial_fraction(self, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Return what `fraction` starts from, on the CPU also where the module has no numbers yet."""
        return torch.tensor(self._initial, dtype=dtype, device="cpu")

    def forward(self) -> torch.Tensor:
        """Return the spans in tokens, of shape (num_heads,)."""
        return self.limit * share(self.fraction)

    def penalty(self) -> torch.Tensor:
        """Return the mean span in tokens; added to a loss with a weight it keeps spans short."""
        return self().mean()

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Any, *others: Any) -> None:
        """Let spans on "meta" start where they would have where a state dict that is assigned has none."""
        name = f"{prefix}fraction"
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *others)
        if name not in state_dict and self.fraction.is_meta and local_metadata.get("assign_to_params_buffers"):
            started = self.initial_fraction(self.fraction.dtype)
            self.fraction = nn.Parameter(started, requires_grad=self.fraction.requires_grad)

    def extra_repr(self) -> str:
        """Return what the layer shows of itself."""
        return f"num_heads={self.fraction.numel()}, limit={self.limit:g}"


class DynamicSpan(nn.Module):
    """Spans that every token predicts for itself: ``z_t = limit * sigmoid(weight . x_t + bias)``.

    Parameters
    ----------
    embed_dim, num_heads : int
    limit : float
        The largest span, in tokens.

    Attributes
    ----------
    projection : Linear
        From a token to a number for each head.
    limit : float

    Raises
    ------
    ValueError
        For a value out of its range.
    TypeError
        For a wrong type.

    References
    ----------
    Sukhbaatar et al., "Adaptive Attention Span in Transformers", ACL 2019, equation 5.

    Examples
    --------
    >>> import torch
    >>> from headspan.torch import DynamicSpan
    >>> DynamicSpan(16, 4, limit=1000)(torch.randn(2, 100, 16)).shape
    torch.Size([2, 4, 100])
    """

    def __init__(self, embed_dim: int, num_heads: int, limit: float) -> None:
        super().__init__()
        width = _check.integer("embed_dim", embed_dim, at_least=1)
        self.limit = _check.positive("limit", limit)
        self.projection = nn.Linear(width, _check.integer("num_heads", num_heads, at_least=1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the spans of tokens of shape (batch, tokens, embed_dim), in tokens: (batch, num_heads, tokens)."""
        spans: torch.Tensor = self.limit * _in_full(self.projection(x)).sigmoid().transpose(-1, -2)
        return spans

    def extra_repr(self) -> str:
        """Return what the layer shows of itself."""
        return f"limit={self.limit:g}"
