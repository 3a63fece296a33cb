"""Learned spans: one for each head, or one that every token predicts."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from headspan import _check
from headspan.torch import private


class _Clamp(torch.autograd.Function):
    """Clamp to [0, 1] with the identity as gradient, so that gradients of micro-batches add up to that of the batch."""

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


def _promote(x: torch.Tensor) -> torch.Tensor:
    """Convert to float32 at least, because bfloat16 cannot represent all integers above 256."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def full_tensor(x: torch.Tensor) -> torch.Tensor:
    """Return a `DTensor` as a plain tensor that is the same on all ranks, for use in the loss of each rank."""
    gathered: torch.Tensor = x.full_tensor() if hasattr(x, "full_tensor") else x
    return gathered


class Shares(nn.Module):
    """A module whose parameter holds fractions between 0 and 1 and is clamped after optimizer steps.

    The next training call clamps the parameter. With any optimizer, this happens before the next gradient.
    The parameter is not changed if no step can follow or if writing is not allowed: without gradients, within
    `torch.func` and during export.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        """Also clamp the shard that `fully_shard` sets after a backward pass; calls only see a gathered copy."""
        if isinstance(value, nn.Parameter) and hasattr(value, "device_mesh"):
            with torch.no_grad():
                value.clamp_(0, 1)
        super().__setattr__(name, value)

    @staticmethod
    def _clamped(parameter: torch.Tensor) -> torch.Tensor:
        """Return a parameter clamped to [0, 1] in float32 at least, and clamp the parameter itself if necessary."""
        if _is_writable(parameter) and not _is_within(parameter):
            with torch.no_grad():
                parameter.clamp_(0, 1)
        clamped: torch.Tensor = _promote(_Clamp.apply(parameter))
        return clamped


def _is_writable(parameter: torch.Tensor) -> bool:
    if not (isinstance(parameter, nn.Parameter) and parameter.requires_grad and torch.is_grad_enabled()):
        return False
    if torch.compiler.is_compiling():
        return not torch.compiler.is_exporting()
    return not private.is_transformed()


def _is_within(parameter: torch.Tensor) -> bool:
    """Whether a parameter is known to need no clamping; a write would invalidate tensors saved for backward."""
    if torch.compiler.is_compiling() or type(parameter) is not nn.Parameter or parameter.is_meta:
        return False
    low, high = parameter.detach().aminmax()
    return bool(low >= 0) and bool(high <= 1)


# With gradient accumulation, a gradient also stays for several calls, but rarely for 512.
_IDLE_CALLS = 512


class AdaptiveSpan(Shares):
    """A learned span for each head, between 0 and `max_span`.

    The parameter is the span as a fraction of `max_span`, which suits the usual learning rates. Each call in training
    first clamps the parameter to [0, 1], which has the same effect as clamping it after each optimizer step. Gradients
    are not changed at a bound, so that the gradients of micro-batches or ranks add up to the gradient of the batch. If
    a call cannot write to the parameter, as within `torch.func`, clamp the parameter yourself after each step.

    An optimizer that was created before the parameter never changes it and never clears its gradient. After 512 such
    training calls in a row, a `UserWarning` says so, except in compiled code and on a GPU.

    Parameters
    ----------
    num_heads : int
    max_span : float
        The largest span, in tokens.
    initial : array_like, optional
        Initial spans in tokens: one number, or one for each head. Default: `max_span`. Only pairs on the ramp change a
        span, so that a head with a short span seldom finds distant tokens, and a head with a long span can shorten it.

    Attributes
    ----------
    fraction : Parameter, shape (num_heads,)
        The spans, divided by `max_span`.
    max_span : float

    Raises
    ------
    ValueError
        If `num_heads` is less than 1, `max_span` is not positive, or `initial` does not lie between 0 and `max_span`.
    TypeError
        If `num_heads` is not an integer, or if `max_span` or `initial` is not real.

    See Also
    --------
    DynamicSpan : Spans that each token predicts, as a module.
    AdaptiveSpanAttention : Self-attention with learned spans.
    parameter_groups : Parameter groups with a learning rate for spans.

    References
    ----------
    Sukhbaatar et al., "Adaptive Attention Span in Transformers", ACL 2019, section 2.2.

    Examples
    --------
    >>> from headspan.torch import AdaptiveSpan
    >>> span = AdaptiveSpan(4, max_span=1000, initial=[8, 32, 128, 1000])
    >>> (span() / 8).tolist()
    [1.0, 4.0, 16.0, 125.0]
    >>> span.penalty().item()
    292.0
    """

    _idle_calls = 0
    _last_values: list[float] | None = None

    def __init__(self, num_heads: int, max_span: float, *, initial: npt.ArrayLike | None = None) -> None:
        super().__init__()
        heads = _check.integer("num_heads", num_heads, at_least=1)
        self.max_span = _check.positive("max_span", max_span)
        spans = _check.real_array("initial", self.max_span if initial is None else initial)
        if spans.shape not in ((), (heads,)):
            raise ValueError(f"initial must be a number or of shape ({heads},), not of shape {spans.shape}")
        if spans.min() < 0 or spans.max() > self.max_span:
            extreme = spans.min() if spans.min() < 0 else spans.max()
            raise ValueError(f"initial must be between 0 and the max_span of {self.max_span:g}, got {extreme:g}")
        self.fraction = nn.Parameter(torch.empty(heads))
        self.start_at(spans)

    def start_at(self, spans: npt.ArrayLike) -> None:
        """Set the initial spans, in tokens, and reset the parameter to them."""
        self._initial: list[float] = (np.asarray(spans) / self.max_span * np.ones(self.fraction.numel())).tolist()
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Reset the spans to their initial values, for example after `to_empty` of a module created on "meta"."""
        if not self.fraction.is_meta:
            self.fraction.copy_(self.initial_fraction(self.fraction.dtype))

    def initial_fraction(self, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Return the initial value of `fraction` as a CPU tensor, even if the module is on "meta"."""
        return torch.tensor(self._initial, dtype=dtype, device="cpu")

    def forward(self) -> torch.Tensor:
        """Return the spans in tokens, of shape (num_heads,)."""
        if _is_writable(self.fraction) and self.fraction.is_cpu and not torch.compiler.is_compiling():
            self._count_idle_call()  # on a GPU this would wait for the device
        return self.max_span * self._clamped(self.fraction)

    def _count_idle_call(self) -> None:
        """Warn if a gradient has been there for many calls, but no optimizer has changed or cleared anything."""
        gradient = self.fraction.grad
        if type(self.fraction) is not nn.Parameter or gradient is None or not gradient.any():
            self._idle_calls = 0
            return
        values = self.fraction.detach().tolist()
        self._idle_calls, self._last_values = (self._idle_calls + 1 if values == self._last_values else 0), values
        if self._idle_calls == _IDLE_CALLS:
            warnings.warn(
                f"the spans must be in an optimizer with a learning rate above 0, but {_IDLE_CALLS} calls in a row "
                "neither changed them nor cleared their gradient; create the optimizer after headspan.torch.convert, "
                "or call optimizer.add_param_group(headspan.torch.parameter_groups(model)[1])",
                stacklevel=2,
            )

    def penalty(self) -> torch.Tensor:
        """Return the mean span in tokens; added to the loss with a weight, it keeps spans short."""
        return full_tensor(self()).mean()

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Any, *others: Any) -> None:
        """Initialise spans on "meta" if the assigned state dict does not contain them."""
        name = f"{prefix}fraction"
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *others)
        if name not in state_dict and self.fraction.is_meta and local_metadata.get("assign_to_params_buffers"):
            initial = self.initial_fraction(self.fraction.dtype)
            self.fraction = nn.Parameter(initial, requires_grad=self.fraction.requires_grad)

    def extra_repr(self) -> str:
        """Return the settings that the representation of the module shows."""
        return f"num_heads={self.fraction.numel()}, max_span={self.max_span:g}"


class DynamicSpan(nn.Module):
    """Spans that every token predicts: ``z_t = max_span * sigmoid(weight . x_t + bias)``.

    Parameters
    ----------
    embed_dim, num_heads : int
    max_span : float
        The largest span, in tokens.

    Attributes
    ----------
    projection : Linear
        From a token to one number for each head.
    max_span : float

    Raises
    ------
    ValueError
        If a size is less than 1, or `max_span` is not positive.
    TypeError
        If a size is not an integer, or `max_span` is not a number.

    See Also
    --------
    AdaptiveSpan : A learned span for each head.
    SpanPredictor : Spans predicted from tokens or their mean.
    headspan.dynamic_span : The same for NumPy arrays.

    References
    ----------
    Sukhbaatar et al., "Adaptive Attention Span in Transformers", ACL 2019, equation 5.

    Examples
    --------
    >>> import torch
    >>> from headspan.torch import DynamicSpan
    >>> DynamicSpan(16, 4, max_span=1000)(torch.randn(2, 100, 16)).shape
    torch.Size([2, 4, 100])
    """

    def __init__(self, embed_dim: int, num_heads: int, max_span: float) -> None:
        super().__init__()
        width = _check.integer("embed_dim", embed_dim, at_least=1)
        self.max_span = _check.positive("max_span", max_span)
        self.projection = nn.Linear(width, _check.integer("num_heads", num_heads, at_least=1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return spans in tokens, (batch, num_heads, tokens), for inputs of shape (batch, tokens, embed_dim)."""
        spans: torch.Tensor = self.max_span * _promote(self.projection(x)).sigmoid().transpose(-1, -2)
        return spans

    def extra_repr(self) -> str:
        """Return the settings that the representation of the module shows."""
        return f"max_span={self.max_span:g}"
