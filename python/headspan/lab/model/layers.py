"""The layers of the small language model on NumPy arrays, each a primitive of ``autograd``.

A layer composed of NumPy calls would make ``autograd`` record a dozen operations and allocate as many temporary arrays.
Here each layer is one record with an explicit gradient. Arrays are float32 or float64 and keep their type. Matrix
products flatten the leading axes, so that each product is one BLAS call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import autograd.numpy as differentiable
import numpy as np
from autograd.tracer import getval
from numpy.typing import NDArray

from headspan.autograd import attention, defvjp_argnums, primitive
from headspan.ops.spans import dynamic_span_vjp

__all__ = [
    "attention",
    "constant",
    "cross_entropy",
    "dynamic_span",
    "embed",
    "join",
    "join_heads",
    "linear",
    "mix",
    "negative_log_likelihood",
    "rms_norm",
    "rotate",
    "split_heads",
    "squared_relu",
    "value_of",
]

Array = NDArray[Any]

NORM_EPSILON = 1e-6


def _rows(x: Array) -> Array:
    return x.reshape(-1, x.shape[-1])


@primitive
def linear(x: Array, weight: Array) -> Array:
    """Return ``x @ weight`` for x (..., inputs) and weight (inputs, outputs)."""
    return (_rows(x) @ weight).reshape(*x.shape[:-1], weight.shape[1])


def _linear_vjp(argnums: Any, out: Array, args: Any, kwargs: Any) -> Callable[[Array], Any]:
    x, weight = args

    def backward(grad: Array) -> tuple[Array, ...]:
        rows = _rows(grad)
        gradients = (
            lambda: (rows @ weight.T).reshape(x.shape),
            lambda: _rows(x).T @ rows,
        )
        return tuple(gradients[argnum]() for argnum in argnums)

    return backward


defvjp_argnums(linear, _linear_vjp)


@primitive
def embed(table: Array, tokens: Array) -> Array:
    """Return the rows of `table`, (vocabulary, width), at the indices `tokens`, (...), with shape (..., width)."""
    return table[tokens]


def _embed_vjp(argnums: Any, out: Array, args: Any, kwargs: Any) -> Callable[[Array], Any]:
    table, tokens = args

    def backward(grad: Array) -> tuple[Array]:
        # The gradients of rows with the same token are summed by a product with one-hot rows.
        one_hot = np.zeros((tokens.size, len(table)), table.dtype)
        one_hot[np.arange(tokens.size), tokens.ravel()] = 1
        return (one_hot.T @ _rows(grad),)

    return backward


defvjp_argnums(embed, _embed_vjp)


@primitive
def rms_norm(x: Array, gain: Array) -> Array:
    """Return ``gain * x / sqrt(mean(x**2) + 1e-6)`` with the mean over the last axis."""
    out = x * _inverse_rms(x)
    out *= gain
    return out


def _inverse_rms(x: Array) -> Array:
    square = np.einsum("...i,...i->...", x, x)
    return np.asarray(1 / np.sqrt(square / x.shape[-1] + NORM_EPSILON), x.dtype)[..., None]


def _rms_norm_vjp(argnums: Any, out: Array, args: Any, kwargs: Any) -> Callable[[Array], Any]:
    x, gain = args

    def backward(grad: Array) -> tuple[Array, ...]:
        inverse = _inverse_rms(x)
        unit = x * inverse
        grad_gain = np.einsum("ni,ni->i", _rows(grad), _rows(unit))
        grad_x = grad * gain
        along = np.einsum("...i,...i->...", grad_x, unit)[..., None] / x.dtype.type(x.shape[-1])
        unit *= along
        grad_x -= unit
        grad_x *= inverse
        gradients = (grad_x, grad_gain)
        return tuple(gradients[argnum] for argnum in argnums)

    return backward


defvjp_argnums(rms_norm, _rms_norm_vjp)


@primitive
def squared_relu(x: Array) -> Array:
    """Return ``max(x, 0)**2``."""
    out = np.maximum(x, 0)
    out *= out
    return out


def _squared_relu_vjp(argnums: Any, out: Array, args: Any, kwargs: Any) -> Callable[[Array], Any]:
    (x,) = args

    def backward(grad: Array) -> tuple[Array]:
        slope = np.maximum(x, 0)
        slope *= 2
        slope *= grad
        return (slope,)

    return backward


defvjp_argnums(squared_relu, _squared_relu_vjp)


@primitive
def rotate(x: Array, turn: Array) -> Array:
    """Apply rotary positions to `x`, (..., tokens, width).

    Two neighbouring channels are the real and imaginary part of a complex number, which is multiplied by
    ``turn[token, channel // 2]``, a complex number of modulus 1.
    """
    return (x.view(turn.dtype) * turn).view(x.dtype)


def _rotate_vjp(argnums: Any, out: Array, args: Any, kwargs: Any) -> Callable[[Array], Any]:
    turn = args[1]

    def backward(grad: Array) -> tuple[Array]:
        plane = np.ascontiguousarray(grad).view(turn.dtype)
        return ((plane * turn.conj()).view(grad.dtype),)

    return backward


defvjp_argnums(rotate, _rotate_vjp)


@primitive
def mix(x: Array, taps: Array) -> Array:
    """Convolve each channel of `x`, (batch, tokens, width), causally with `taps`, (count, width)."""
    out: Array = x * taps[0]
    for back in range(1, len(taps)):
        out[:, back:] += x[:, :-back] * taps[back]
    return out


def _mix_vjp(argnums: Any, out: Array, args: Any, kwargs: Any) -> Callable[[Array], Any]:
    x, taps = args

    def backward(grad: Array) -> tuple[Array, ...]:
        grad_x, grad_taps = grad * taps[0], np.empty_like(taps)
        grad_taps[0] = np.einsum("bti,bti->i", grad, x)
        for back in range(1, len(taps)):
            grad_x[:, :-back] += grad[:, back:] * taps[back]
            grad_taps[back] = np.einsum("bti,bti->i", grad[:, back:], x[:, :-back])
        return tuple((grad_x, grad_taps)[argnum] for argnum in argnums)

    return backward


defvjp_argnums(mix, _mix_vjp)


@primitive
def dynamic_span(x: Array, weight: Array, bias: Array, max_span: float) -> Array:
    """Return the predicted spans of the tokens `x`, (batch, tokens, width), see `headspan.dynamic_span`."""
    spans: Array = dynamic_span_vjp(x, weight, bias, max_span)[0]
    return spans


def _dynamic_span_vjp(argnums: Any, out: Array, args: Any, kwargs: Any) -> Callable[[Array], Any]:
    _, vjp = dynamic_span_vjp(*args)

    def backward(grad: Array) -> tuple[Array, ...]:
        gradients = vjp(np.asarray(grad, out.dtype))  # the gradient of a float32 mean is float64
        return tuple(gradients[argnum] for argnum in argnums)

    return backward


defvjp_argnums(dynamic_span, _dynamic_span_vjp)


def join(before: Any, x: Any) -> Any:
    """Concatenate `before` and `x` along the axis of tokens."""
    return differentiable.concatenate((before, x), axis=1)


def split_heads(x: Any, heads: int) -> Any:
    """Reshape `x` from (batch, tokens, width) to (batch, heads, tokens, head_dim)."""
    batch, tokens, width = x.shape
    return x.reshape((batch, tokens, heads, width // heads)).transpose((0, 2, 1, 3))


def join_heads(x: Any) -> Any:
    """Reshape `x` from (batch, heads, tokens, head_dim) to (batch, tokens, width)."""
    batch, heads, tokens, head_dim = x.shape
    return x.transpose((0, 2, 1, 3)).reshape((batch, tokens, heads * head_dim))


def value_of(x: Any) -> Any:
    """Return the array that a traced value of ``autograd`` wraps."""
    return getval(x)


def constant(x: Array) -> Any:
    """Return an array in the form that these layers accept."""
    return x


@primitive
def cross_entropy(logits: Array, targets: Array) -> Array:
    """Return the mean of ``-log softmax(logits)[target]``, in nats.

    Parameters
    ----------
    logits : ndarray, shape (..., vocabulary)
    targets : ndarray of int, shape (...)
    """
    mean: Array = np.mean(negative_log_likelihood(logits, targets), dtype=logits.dtype)
    return mean


def negative_log_likelihood(logits: Array, targets: Array) -> Array:
    """Return ``-log softmax(logits)[target]`` for each target, in nats, in the shape of `targets`."""
    log_probability = _log_softmax(_rows(logits))
    of_targets = log_probability[np.arange(targets.size), targets.ravel()]
    return -of_targets.reshape(targets.shape)


def _log_softmax(rows: Array) -> Array:
    shifted: Array = rows - rows.max(axis=1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return shifted


def _cross_entropy_vjp(argnums: Any, out: Array, args: Any, kwargs: Any) -> Callable[[Array], Any]:
    logits, targets = args

    def backward(grad: Array) -> tuple[Array]:
        gradient = np.exp(_log_softmax(_rows(logits)))
        gradient[np.arange(targets.size), targets.ravel()] -= 1
        gradient *= logits.dtype.type(grad / targets.size)
        return (gradient.reshape(logits.shape),)

    return backward


defvjp_argnums(cross_entropy, _cross_entropy_vjp)
