"""Importance of tokens, predicted from the tokens: a `key_bias` for `attention`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan._check import Array
from headspan._help import as_written


@as_written
class LinearGradients(NamedTuple):
    """Gradients of what is predicted from tokens, each with the shape of its argument."""

    x: Array
    weight: Array
    bias: Array


def key_importance(x: npt.ArrayLike, weight: npt.ArrayLike, bias: npt.ArrayLike) -> npt.NDArray[np.floating]:
    """Predict the importance of each token for every head: ``weight . x_t + bias``.

    Pass the result as `key_bias` to `attention`, which adds it to the scores of the token's key. Its exponential is the
    factor of the token's weight before normalization.

    Parameters
    ----------
    x : array_like, shape (batch, tokens, width)
        float32 or float64.
    weight : array_like, shape (heads, width)
    bias : array_like, shape (heads,)
        `weight` and `bias` have the type of `x`.

    Returns
    -------
    key_bias : ndarray, shape (batch, heads, tokens)
        NaN in the arguments propagates; `attention` raises an error for it.

    Raises
    ------
    TypeError
        If the arguments differ in type.

    See Also
    --------
    key_importance_vjp : The same importance with its gradients.
    attention : Takes the importance as `key_bias`.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> hs.key_importance(np.ones((1, 3, 8)), np.ones((2, 8)), np.zeros(2)).shape
    (1, 2, 3)
    """
    return key_importance_vjp(x, weight, bias)[0]


def key_importance_vjp(
    x: npt.ArrayLike, weight: npt.ArrayLike, bias: npt.ArrayLike
) -> tuple[npt.NDArray[np.floating], Callable[[npt.ArrayLike], LinearGradients]]:
    """Predict the importance of each token and return the function that computes its gradients.

    Parameters
    ----------
    x, weight, bias
        As for `key_importance`.

    Returns
    -------
    key_bias : ndarray, shape (batch, heads, tokens)
    vjp : callable
        ``vjp(grad)`` returns the gradients as a named tuple with the fields `x`, `weight` and `bias`.

    Raises
    ------
    TypeError
        If the arguments differ in type.

    See Also
    --------
    key_importance : The importance alone.
    attention_vjp : Attention with the gradient of `key_bias`.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> key_bias, vjp = hs.key_importance_vjp(np.ones((1, 3, 8)), np.ones((2, 8)), np.zeros(2))
    >>> vjp(np.ones_like(key_bias)).bias
    array([3., 3.])
    """
    tokens, w, b = (_check.float_array(name, array) for name, array in (("x", x), ("weight", weight), ("bias", bias)))
    _check.same_dtype({"x": tokens, "weight": w, "bias": b})
    if tokens.ndim != 3:
        raise ValueError(f"x must have the axes (batch, tokens, width), not shape {tokens.shape}")
    if w.ndim != 2 or w.shape[1] != tokens.shape[2]:
        raise ValueError(f"weight must have the shape (heads, {tokens.shape[2]}), not {w.shape}")
    if b.shape != w.shape[:1]:
        raise ValueError(f"bias must have the shape ({w.shape[0]},), not {b.shape}")
    result = np.swapaxes(tokens @ w.T, 1, 2) + b[:, None]

    def vjp(grad_result: npt.ArrayLike) -> LinearGradients:
        """Return the gradients of x, weight and bias."""
        grad = _check.gradient("grad", grad_result, result.shape, like=("x", tokens))
        grad_weight = np.einsum("bht,btw->hw", grad, tokens, optimize=True)
        return LinearGradients(np.swapaxes(grad, 1, 2) @ w, grad_weight, grad.sum(axis=(0, 2)))

    return result, vjp
