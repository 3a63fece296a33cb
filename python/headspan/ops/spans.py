"""Spans outside the kernel: the mask as a curve, the penalty that keeps spans short, spans predicted from tokens."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan._check import Array
from headspan.ops.importance import importance_from_vjp


def soft_mask(distance: npt.ArrayLike, span: npt.ArrayLike, ramp: float = 32) -> npt.NDArray[np.float64]:
    """Soft mask of a span: ``m(x) = clip((R + z - x) / R, 0, 1)``.

    Parameters
    ----------
    distance : array_like
        x, in tokens; its absolute value counts.
    span : array_like
        z, in tokens, broadcast against `distance`.
    ramp : float
        R, in tokens; `attention` says how it is chosen. 0 gives a hard window: 1 up to the span.

    Returns
    -------
    ndarray of float64

    Raises
    ------
    ValueError
        For a wrong shape or value.
    TypeError
        For a wrong type.

    References
    ----------
    Sukhbaatar et al., "Adaptive Attention Span in Transformers", ACL 2019, equation 3.

    Examples
    --------
    >>> import headspan as hs
    >>> hs.soft_mask([0, 8, 10, 12], span=8, ramp=4)
    array([1. , 1. , 0.5, 0. ])
    """
    x = np.abs(_check.real_array("distance", distance).astype(np.float64))  # small integers have no |-128|
    z = _check.real_array("span", span).astype(np.float64)
    _check.non_negative("span", z)
    r = _check.number("ramp", ramp, at_least=0)
    try:
        x, z = np.broadcast_arrays(x, z)
    except ValueError:
        raise ValueError(f"distance and span must broadcast, not {x.shape} and {z.shape}") from None
    if r == 0:
        return np.where(x <= z, 1.0, 0.0)
    mask: npt.NDArray[np.float64] = np.clip((z - x + r) / r, 0.0, 1.0)  # r may be lost in r + z
    return mask


def farthest(span: npt.ArrayLike, ramp: float) -> npt.NDArray[np.float64]:
    """Largest whole distance whose mask is above 0, as the core has it."""
    z = np.asarray(span, np.float64)
    return np.asarray(np.maximum(np.ceil(z + ramp) - 1, np.floor(z)))


def span_penalty(span: npt.ArrayLike, weight: float) -> tuple[float, Array]:
    """L1 penalty that keeps spans short, ``weight * mean(span)``, and its gradient.

    The ramp is not penalised: what a head of span 0 still reaches is set by the `ramp` of `attention`.

    Parameters
    ----------
    span : array_like
        Spans of all heads, in tokens, of any shape.
    weight : float
        What one token of mean span adds to the loss.

    Returns
    -------
    penalty : float
    gradient : ndarray, of the shape of `span`
        Of its type too if that is float32, otherwise of float64.

    Raises
    ------
    ValueError
        For no span at all, or one or a `weight` that is negative or not finite.
    TypeError
        For a wrong type.

    References
    ----------
    Sukhbaatar et al., "Adaptive Attention Span in Transformers", ACL 2019, section 2.2: lambda / M times the sum over
    M heads.

    Examples
    --------
    >>> import headspan as hs
    >>> penalty, gradient = hs.span_penalty([100, 300], weight=0.01)
    >>> penalty, gradient
    (2.0, array([0.005, 0.005]))
    """
    z = _check.real_array("span", span)
    _check.non_negative("span", z)
    if z.size == 0:
        raise ValueError("span must hold at least one span, not none")
    factor = _check.number("weight", weight, at_least=0)
    dtype = z.dtype if z.dtype in _check.FLOATS else _check.DOUBLE
    return factor * float(z.mean(dtype=np.float64)), np.full(z.shape, factor / z.size, dtype)


def dynamic_span(x: npt.ArrayLike, weight: npt.ArrayLike, bias: npt.ArrayLike, limit: float) -> Array:
    """Spans that every token predicts for itself: ``z_t = limit * sigmoid(weight . x_t + bias)``.

    Parameters
    ----------
    x : array_like, shape (batch, tokens, width)
        float32 or float64.
    weight : array_like, shape (heads, width)
    bias : array_like, shape (heads,)
        Of the type of `x`, as `weight`.
    limit : float
        The largest span, in tokens.

    Returns
    -------
    span : ndarray, shape (batch, heads, tokens)
        What `attention` takes as `span`, beside the `ramp` by which a token reaches farther. NaN passes through, and
        `attention` refuses it.

    Raises
    ------
    ValueError
        For a wrong shape or `limit`.
    TypeError
        For a wrong or mixed type.

    References
    ----------
    Sukhbaatar et al., "Adaptive Attention Span in Transformers", ACL 2019, equation 5.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> hs.dynamic_span(np.zeros((1, 3, 8)), np.ones((2, 8)), np.zeros(2), limit=100)[0, 0]
    array([50., 50., 50.])
    """
    return dynamic_span_vjp(x, weight, bias, limit)[0]


def dynamic_span_vjp(
    x: npt.ArrayLike, weight: npt.ArrayLike, bias: npt.ArrayLike, limit: float
) -> tuple[Array, Callable[[npt.ArrayLike], tuple[Array, Array, Array]]]:
    """Dynamic spans, and the function that takes a gradient back through them.

    Parameters
    ----------
    x, weight, bias, limit
        As for `dynamic_span`.

    Returns
    -------
    span : ndarray, shape (batch, heads, tokens)
    vjp : callable
        ``vjp(grad_span)`` gives the gradients of `x`, `weight` and `bias`, in their shapes.

    Raises
    ------
    ValueError
        For a wrong shape or `limit`; by `vjp` for a wrong shape.
    TypeError
        For a wrong or mixed type; also by `vjp`.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> span, vjp = hs.dynamic_span_vjp(np.zeros((1, 3, 8)), np.ones((2, 8)), np.zeros(2), limit=100)
    >>> vjp(np.ones_like(span))[2]
    array([75., 75.])
    """
    logits, linear_vjp = importance_from_vjp(x, weight, bias)
    highest = _check.number("limit", limit, at_least=0)
    _check.fits("limit", 0, highest, logits.dtype)
    top = logits.dtype.type(highest)
    sigmoid = 0.5 * (1 + np.tanh(0.5 * logits))  # does not overflow
    span = top * sigmoid

    def vjp(grad_span: npt.ArrayLike) -> tuple[Array, Array, Array]:
        """Gradients of x, weight and bias."""
        grad = _check.gradient("grad_span", grad_span, span.shape, beside=("x", logits))
        return linear_vjp(grad * (top * sigmoid) * (1 - sigmoid))  # the span itself is the caller's to change

    return span, vjp
