"""The parts of the hybrid layer, each together with its gradient.

Activations are rows, (batch * tokens, dim), so that every matrix product is one call of BLAS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from headspan._check import Array
from headspan.hybrid.parameters import Shape
from headspan.ops.attention import attention_vjp
from headspan.ops.spans import dynamic_span_vjp


def layer_norm(
    x: Array, weight: Array, bias: Array, epsilon: float
) -> tuple[Array, Callable[[Array], tuple[Array, Array, Array]]]:
    """Return ``weight * (x - mean) / sqrt(variance + epsilon) + bias``, row by row.

    ``vjp(grad)`` returns the gradients of x, weight and bias.
    """
    centred = x - x.mean(axis=1, keepdims=True)
    inverse = 1 / np.sqrt(np.mean(centred * centred, axis=1, keepdims=True) + x.dtype.type(epsilon))
    unit = centred * inverse

    def vjp(grad: Array) -> tuple[Array, Array, Array]:
        grad_unit = grad * weight
        along = np.mean(grad_unit * unit, axis=1, keepdims=True)
        grad_x = inverse * (grad_unit - grad_unit.mean(axis=1, keepdims=True) - along * unit)
        return grad_x, (grad * unit).sum(axis=0), grad.sum(axis=0)

    return unit * weight + bias, vjp


def temperature_of(share: Any, temperature_range: float, sharpen_longer: bool) -> Any:
    """Return the temperature for a predicted share of the largest span, an array or a tensor."""
    return 1 + temperature_range * (1 - share) if sharpen_longer else 0.5 + temperature_range * share


class BranchGradients(NamedTuple):
    """The gradients of a branch."""

    rows: Array
    qkv: Array
    span: Array | None
    temperature: Array | None


def branch(
    rows: Array, qkv: Array, shape: Shape, options: Mapping[str, Any]
) -> tuple[Array, Callable[[Array], BranchGradients]]:
    """Return multi-head self-attention of rows, as rows."""
    batch, tokens, dim, heads = shape
    split = (batch, tokens, 3, heads, dim // heads)
    out, attention_gradient = attention_vjp(*(rows @ qkv).reshape(split).transpose(2, 0, 3, 1, 4), **options)

    def vjp(grad: Array) -> BranchGradients:
        by_head = grad.reshape(batch, tokens, heads, dim // heads).transpose(0, 2, 1, 3)
        gradients = attention_gradient(by_head)
        grad_qkv = np.stack(gradients[:3]).transpose(1, 3, 0, 2, 4).reshape(len(rows), 3 * dim)
        return BranchGradients(grad_qkv @ qkv.T, rows.T @ grad_qkv, gradients.span, gradients.temperature)

    return out.transpose(0, 2, 1, 3).reshape(rows.shape), vjp


def predict(
    rows: Array, weight: Array, bias: Array, shape: Shape, per: str
) -> tuple[Array, Callable[[Array], tuple[Array, Array, Array]]]:
    """Return the share of the largest span, between 0 and 1, that the rows predict.

    Its shape is (batch, 1), (batch, heads) or (batch, heads, tokens). ``vjp(grad)`` returns the gradients of rows,
    weight and bias.
    """
    batch, tokens, dim, _ = shape
    by_item = rows.reshape(batch, tokens, dim)
    read = by_item if per == "token" else by_item.mean(axis=1, keepdims=True)
    with np.errstate(over="ignore", invalid="ignore"):  # checked below
        share, share_vjp = dynamic_span_vjp(read, weight, bias, 1.0)
    if not np.isfinite(share).all():
        raise ValueError(f"x and parameters must predict a finite span, not {share[~np.isfinite(share)].flat[0]}")

    def vjp(grad: Array) -> tuple[Array, Array, Array]:
        grad_read, grad_weight, grad_bias = share_vjp(grad.reshape(share.shape))
        if per != "token":
            grad_read = np.broadcast_to(grad_read / rows.dtype.type(tokens), by_item.shape)
        return grad_read.reshape(rows.shape), grad_weight, grad_bias

    return (share if per == "token" else share[..., 0]), vjp
