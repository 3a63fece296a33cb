"""Spans that are learned: one for each head, or one that every token predicts for itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from headspan import _check


class _Within(torch.autograd.Function):
    """Clamp to 0 and 1, with the gradient as it is: that of parts of a batch adds up to that of the whole."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x.clamp(0, 1)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad


def _in_full(x: torch.Tensor) -> torch.Tensor:
    """Bring it to float32 at least: bfloat16 has no whole numbers beyond 256."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def whole(x: torch.Tensor) -> torch.Tensor:
    """Return what ranks hold parts of as a plain tensor, the same on each, to be added to the loss of its tokens."""
    gathered: torch.Tensor = x.full_tensor() if hasattr(x, "full_tensor") else x
    return gathered


class Shares(nn.Module):
    """A module with a parameter of shares between 0 and 1, to which a step of an optimizer is clamped.

    The parameter is brought back when the module is called next in training: whatever the optimizer is, this comes
    before the next gradient. It is not changed where no step can follow or nothing may be written: without gradients,
    within `torch.func` and in what is exported.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        """Clamp what `fully_shard` puts here after a backward pass, too: calls have a gathered copy."""
        if isinstance(value, nn.Parameter) and hasattr(value, "device_mesh"):
            with torch.no_grad():
                value.clamp_(0, 1)
        super().__setattr__(name, value)

    @staticmethod
    def _within(parameter: torch.Tensor) -> torch.Tensor:
        """Return a parameter as shares between 0 and 1, of float32 at least, and bring it back if it lies outside."""
        if _may_be_written(parameter) and not _is_within(parameter):
            with torch.no_grad():
                parameter.clamp_(0, 1)
        clamped: torch.Tensor = _in_full(_Within.apply(parameter))
        return clamped


def _may_be_written(parameter: torch.Tensor) -> bool:
    if not (isinstance(parameter, nn.Parameter) and parameter.requires_grad and torch.is_grad_enabled()):
        return False
    if torch.compiler.is_compiling():
        return not torch.compiler.is_exporting()
    return not torch._C._are_functorch_transforms_active()


def _is_within(parameter: torch.Tensor) -> bool:
    """Whether nothing is to be clamped, as far as that can be looked at; writing makes what others saved of it old."""
    if torch.compiler.is_compiling() or type(parameter) is not nn.Parameter or parameter.is_meta:
        return False
    low, high = parameter.detach().aminmax()
    return bool(low >= 0) and bool(high <= 1)


class AdaptiveSpan(Shares):
    """A span for each head, learned, between 0 and a limit.

    What is learned is the span as a share of the limit, so that the usual learning rates suit it. Steps of an optimizer
    are clamped to 0 and 1: a call in training first brings the share back that the last step has taken
    too far, so that a span comes back from a bound as if it had been clamped after each step. Gradients are not
    changed at a bound: those of parts of a batch, or of ranks, add up to that of the whole. Where a call has no
    parameter of its own to write to, as within `torch.func`, clamp what is learned after each step.

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
        self.fraction = nn.Parameter(torch.empty(heads))
        self.start_at(spans)

    def start_at(self, spans: npt.ArrayLike) -> None:
        """Set the spans, in tokens, to others that they start at."""
        self._initial: list[float] = (np.asarray(spans) / self.limit * np.ones(self.fraction.numel())).tolist()
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
        return self.limit * self._within(self.fraction)

    def penalty(self) -> torch.Tensor:
        """Return the mean span in tokens; added to a loss with a weight it keeps spans short."""
        return whole(self()).mean()

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
