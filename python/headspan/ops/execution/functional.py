"""Attention and its gradient as two functions, the basis of the adapters to frameworks.

``forward`` returns the state for ``backward`` as plain arrays, which a framework can keep, move or recompute.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from headspan import _check
from headspan._check import Array
from headspan.ops.execution.narrow import narrowed, widened
from headspan.ops.execution.request import Request
from headspan.ops.execution.runtime import MAX_THREADS, get_num_threads

ARRAYS = ("query", "key", "value")


class Saved(NamedTuple):
    """Results of the forward pass that the backward pass needs.

    Attributes
    ----------
    out : ndarray, shape (batch, heads, tokens, head_dim of value)
        The output array itself, not a copy; do not change it.
    statistics : ndarray, shape (batch, heads, tokens, 2)
        The maximum and the inverse of the sum of each row.
    """

    out: Array
    statistics: Array


def forward(
    request: Request,
    *,
    out: Array | None = None,
    with_lse: bool = False,
    with_saved: bool = True,
    threads: int | None = None,
) -> tuple[Array, Array | None, Saved | None]:
    """Compute attention.

    Parameters
    ----------
    request : Request
    out : ndarray, optional
        Array for the result, with its type and shape (see `headspan.attention`) and a contiguous last axis. Other
        strides are arbitrary, for example those of ``(batch, tokens, heads, head_dim)`` with two axes swapped.
    with_lse, with_saved : bool
        Whether to return these results.
    threads : int, optional
        Maximum number of threads. Default: `headspan.get_num_threads`.

    Returns
    -------
    out, lse : ndarray
        As from `headspan.attention`; lse is None unless requested.
    saved : Saved
        Input of `backward`; None unless requested.

    Raises
    ------
    ValueError
        If `out` has the wrong type, shape or layout.
    """
    wide = None if request.narrow is not None else out
    into = None if wide is None else request.to_4d(wide)
    full_out, lse, statistics = request.core.forward(into, with_lse, with_saved, _threads(threads))
    result = request.from_4d(full_out) if wide is None else wide
    if request.narrow is not None:
        result = narrowed(result, request.narrow, _of_type("out", out, result.shape, request))
    return (
        result,
        None if lse is None else request.from_4d(lse),
        None if statistics is None else Saved(full_out, statistics),
    )


def backward(
    request: Request,
    saved: Saved,
    grad_out: object,
    grad_lse: object = None,
    *,
    needs: Collection[str] | None = None,
    into: Mapping[str, Array] | None = None,
    threads: int | None = None,
) -> dict[str, Array]:
    """Compute gradients of ``sum(grad_out * out) + sum(grad_lse * lse)``.

    Parameters
    ----------
    request : Request
        The request of `forward`, or an equal one made from the same arguments.
    saved : Saved
    grad_out, grad_lse : ndarray
        Gradients of the results, with their shapes.
    needs : collection of str, optional
        Names of the arguments whose gradients are computed, among query, key, value and the differentiable options that
        were passed. Default: all of them.
    into : mapping of ndarray, optional
        Arrays for the gradients of query, key and value, as `out` for `forward`.
    threads : int, optional
        As for `forward`.

    Returns
    -------
    dict of ndarray
        Gradients by name, each with the shape and type of its argument.

    Raises
    ------
    ValueError
        If a shape is wrong, or an argument in `needs` was not passed or has no gradient.
    TypeError
        If a type is wrong.
    """
    shape = request.from_4d(saved.out).shape
    if request.narrow is not None:
        grad_out = widened(_of_type("grad_out", _check.as_array("grad_out", grad_out), None, request))
    reference = ("query", request.query)
    full_grad_out = request.to_4d(_check.gradient("grad_out", grad_out, shape, like=reference))
    full_grad_lse = None
    if grad_lse is not None:
        full_grad_lse = request.to_4d(_check.gradient("grad_lse", grad_lse, shape[:-1], like=reference))
    names = (*ARRAYS, *request.parameters) if needs is None else tuple(needs)
    for name in names:
        if name not in ARRAYS and name not in request.parameters:
            raise ValueError(f"{name} was not passed or has no gradient")
    targets = into or {}
    wide = {} if request.narrow is not None else targets
    outputs = {name: request.to_4d(wide[name]) if name in wide else None for name in names}
    gradients = request.core.backward(*saved, full_grad_out, full_grad_lse, outputs, _threads(threads))
    return {name: _as_argument(request, name, gradient, targets) for name, gradient in gradients.items()}


def _as_argument(request: Request, name: str, gradient: Array, targets: Mapping[str, Array]) -> Array:
    if name in request.parameters:
        shared = request.parameters[name].gradient(gradient)
        return narrowed(shared, request.narrow_options[name]) if name in request.narrow_options else shared
    if request.narrow is not None:
        wide = request.from_4d(gradient)
        return narrowed(wide, request.narrow, _of_type(name, targets.get(name), wide.shape, request))
    return targets[name] if name in targets else request.from_4d(gradient)


def _of_type(name: str, array: Any, shape: tuple[int, ...] | None, request: Request) -> Any:
    """Check that an array has the 16-bit type to which results are rounded, and the expected shape."""
    if array is None:
        return None
    if array.dtype != request.narrow or (shape is not None and array.shape != shape):
        expected = f"{request.narrow}" + ("" if shape is None else f" of shape {shape}")
        raise TypeError(f"{name} must be {expected}, not {array.dtype} of shape {array.shape}")
    return array


def _threads(threads: int | None) -> int:
    return get_num_threads() if threads is None else min(_check.integer("threads", threads, at_least=1), MAX_THREADS)
