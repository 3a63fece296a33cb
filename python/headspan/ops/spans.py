"""Span utilities outside the kernel: the soft mask, the penalty that keeps spans short, and dynamic spans."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan._check import Array
from headspan._help import as_written
from headspan.ops.importance import LinearGradients, key_importance_vjp


def soft_mask(distance: npt.ArrayLike, span: npt.ArrayLike, ramp: float = 32) -> npt.NDArray[np.float64]:
    """Evaluate the soft mask of a span: ``m(x) = clip((R + z - x) / R, 0, 1)``.

    Parameters
    ----------
    distance : array_like
        Distance x in tokens; its absolute value is used.
    span : array_like
        Span z in tokens, broadcast against `distance`; inf means no limit.
    ramp : float
        Ramp R in tokens; for its choice see `attention`. 0 gives a hard window: 1 up to the span, 0 beyond it.

    Returns
    -------
    ndarray of float64

    Raises
    ------
    ValueError
        If the shapes do not broadcast, `distance` or `ramp` is not finite, or `span` or `ramp` is negative.

    See Also
    --------
    headspan.plot.soft_mask : Draws the soft mask.
    attention : Multiplies the weights by the mask.

    References
    ----------
    Sukhbaatar et al., "Adaptive Attention Span in Transformers", ACL 2019, equation 3.

    Examples
    --------
    >>> import headspan as hs
    >>> hs.soft_mask([0, 8, 10, 12], span=8, ramp=4)
    array([1. , 1. , 0.5, 0. ])
    """
    x = np.abs(_check.real_array("distance", distance).astype(np.float64))  # the abs of an int8 -128 overflows
    z = _check.spans("span", span).astype(np.float64)
    r = _check.number("ramp", ramp, at_least=0)
    try:
        x, z = np.broadcast_arrays(x, z)
    except ValueError:
        raise ValueError(f"distance and span must broadcast, not {x.shape} and {z.shape}") from None
    if r == 0:
        return np.where(x <= z, 1.0, 0.0)
    mask: npt.NDArray[np.float64] = np.clip((z - x + r) / r, 0.0, 1.0)  # z - x first: r + z may round r away
    return mask


def farthest(span: npt.ArrayLike, ramp: float) -> npt.NDArray[np.float64]:
    """Return the largest integer distance at which the mask is above 0, as the core computes it."""
    z = np.asarray(span, np.float64)
    return np.asarray(np.maximum(np.ceil(z + ramp) - 1, np.floor(z)))


@as_written
class SpanPenaltyGradients(NamedTuple):
    """The gradient of `span_penalty`, float32 if the spans are float32, otherwise float64."""

    span: Array


def span_penalty(span: npt.ArrayLike, weight: float) -> float:
    """Compute the L1 penalty that keeps spans short, ``weight * mean(span)``.

    The penalty does not cover the ramp: a head with span 0 still reaches as far as the `ramp` of `attention`.

    Parameters
    ----------
    span : array_like
        Spans of all heads, in tokens, of any shape.
    weight : float
        Loss per token of mean span.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If `span` is empty, or if a span or `weight` is negative or not finite.

    See Also
    --------
    span_penalty_vjp : The same penalty with its gradient.
    dynamic_span : Spans that each token predicts.

    References
    ----------
    Sukhbaatar et al., "Adaptive Attention Span in Transformers", ACL 2019, section 2.2: lambda / M times the sum over
    M heads.

    Examples
    --------
    >>> import headspan as hs
    >>> hs.span_penalty([100, 300], weight=0.01)
    2.0
    """
    return span_penalty_vjp(span, weight)[0]


def span_penalty_vjp(span: npt.ArrayLike, weight: float) -> tuple[float, Callable[..., SpanPenaltyGradients]]:
    """Compute the penalty of spans and return the function that computes its gradient.

    Parameters
    ----------
    span, weight
        As for `span_penalty`.

    Returns
    -------
    penalty : float
    vjp : callable
        ``vjp(grad=1.0)`` returns the gradient as a named tuple with the field `span`.

    Raises
    ------
    ValueError
        As for `span_penalty`; also from `vjp`, if `grad` is not finite.

    See Also
    --------
    span_penalty : The penalty alone.

    Examples
    --------
    >>> import headspan as hs
    >>> penalty, vjp = hs.span_penalty_vjp([100, 300], weight=0.01)
    >>> vjp().span
    array([0.005, 0.005])
    """
    z = _check.real_array("span", span)
    _check.non_negative("span", z)
    if z.size == 0:
        raise ValueError("span must contain at least one span, got none")
    factor = _check.number("weight", weight, at_least=0)
    dtype = z.dtype if z.dtype in _check.FLOATS else _check.DOUBLE

    def vjp(grad: float = 1.0) -> SpanPenaltyGradients:
        """Return the gradient of the spans."""
        return SpanPenaltyGradients(np.full(z.shape, _check.number("grad", grad) * factor / z.size, dtype))

    return factor * float(z.mean(dtype=np.float64)), vjp


def dynamic_span(
    x: npt.ArrayLike, weight: npt.ArrayLike, bias: npt.ArrayLike, max_span: float
) -> npt.NDArray[np.floating]:
    """Compute dynamic spans, which each token predicts: ``z_t = max_span * sigmoid(weight . x_t + bias)``.

    Parameters
    ----------
    x : array_like, shape (batch, tokens, width)
        float32 or float64.
    weight : array_like, shape (heads, width)
    bias : array_like, shape (heads,)
        `weight` and `bias` have the type of `x`.
    max_span : float
        Largest possible span, in tokens.

    Returns
    -------
    span : ndarray, shape (batch, heads, tokens)
        The `span` argument of `attention`. With its `ramp` a token reaches farther than the span. NaN in the arguments
        propagates; `attention` raises an error for it.

    Raises
    ------
    ValueError
        If `max_span` is negative, not finite or too large for the type of `x`.
    TypeError
        If the arrays differ in type.

    See Also
    --------
    dynamic_span_vjp : The same spans with their gradients.
    headspan.torch.DynamicSpan : The same as a module of PyTorch.
    span_penalty : The penalty that keeps spans short.

    References
    ----------
    Sukhbaatar et al., "Adaptive Attention Span in Transformers", ACL 2019, equation 5.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> hs.dynamic_span(np.zeros((1, 3, 8)), np.ones((2, 8)), np.zeros(2), max_span=100)[0, 0]
    array([50., 50., 50.])
    """
    return dynamic_span_vjp(x, weight, bias, max_span)[0]


def dynamic_span_vjp(
    x: npt.ArrayLike, weight: npt.ArrayLike, bias: npt.ArrayLike, max_span: float
) -> tuple[npt.NDArray[np.floating], Callable[[npt.ArrayLike], LinearGradients]]:
    """Compute dynamic spans and return the function that computes their gradients.

    Parameters
    ----------
    x, weight, bias, max_span
        As for `dynamic_span`.

    Returns
    -------
    span : ndarray, shape (batch, heads, tokens)
    vjp : callable
        ``vjp(grad_span)`` returns the gradients as a named tuple with the fields `x`, `weight` and `bias`.

    See Also
    --------
    dynamic_span : The spans alone.
    span_penalty_vjp : The penalty that keeps spans short, with its gradient.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> span, vjp = hs.dynamic_span_vjp(np.zeros((1, 3, 8)), np.ones((2, 8)), np.zeros(2), max_span=100)
    >>> vjp(np.ones_like(span)).bias
    array([75., 75.])
    """
    logits, linear_vjp = key_importance_vjp(x, weight, bias)
    highest = _check.number("max_span", max_span, at_least=0)
    _check.fits("max_span", 0, highest, logits.dtype)
    top = logits.dtype.type(highest)
    sigmoid = 0.5 * (1 + np.tanh(0.5 * logits))  # this form does not overflow
    span = top * sigmoid

    def vjp(grad_span: npt.ArrayLike) -> LinearGradients:
        """Return the gradients of x, weight and bias."""
        grad = _check.gradient("grad_span", grad_span, span.shape, like=("x", logits))
        return linear_vjp(grad * (top * sigmoid) * (1 - sigmoid))  # not span, which the caller may have changed

    return span, vjp
