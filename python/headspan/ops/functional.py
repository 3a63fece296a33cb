"""Attention and its gradient as two functions with plain arrays between them: what adapters stand on.

``forward`` gives what ``backward`` needs as arrays, so that a framework can keep, move or recompute them as it likes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from headspan import _check
from headspan._check import Array
from headspan.ops.arguments.narrow import narrowed, widened
from headspan.ops.arguments.request import Request
from headspan.ops.runtime import get_num_threads

ARRAYS = ("query", "key", "value")


class Saved(NamedTuple):
    """What the backward pass needs of the forward pass.

    Attributes
    ----------
    out : ndarray, shape (batch, heads, tokens, head_dim of value)
        The result itself, which must not be changed.
    statistics : ndarray, shape (batch, heads, tokens, 2)
        The maximum and the inverse of the sum of every row.
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
        Where the result is written, of its type and shape (see `headspan.attention`) and with a contiguous last axis;
        the other strides may be any, as of ``(batch, tokens, heads, head_dim)`` with two axes swapped.
    with_lse, with_saved : bool
        Whether these results are wanted.
    threads : int, optional
        At most so many; those of `headspan.get_num_threads` unless given.

    Returns
    -------
    out, lse : ndarray
        As from `headspan.attention`; lse is None unless wanted.
    saved : Saved
        For `backward`; None unless wanted.

    Raises
    ------
    ValueError
        For an `out` of another type, shape or layout.
    """
    wide = None if request.narrow is not None else out
    into = None if wide is None else request.to_4d(wide)
    full_out, lse, statistics = request.core.forward(into, with_lse, with_saved, _threads(threads))
    result = request.as_given(full_out) if wide is None else wide
    if request.narrow is not None:
        result = narrowed(result, request.narrow, _of_type("out", out, result.shape, request))
    return (
        result,
        None if lse is None else request.as_given(lse),
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
        As given to `forward`, or made again from the same arguments.
    saved : Saved
    grad_out, grad_lse : ndarray
        Of the shapes of the results.
    needs : collection of str, optional
        The arguments whose gradients are wanted, of query, key, value and the options that were given and have one; all
        of them unless given. The others cost nothing.
    into : mapping of ndarray, optional
        Where gradients of query, key and value are written; as `out` of `forward`.
    threads : int, optional
        As for `forward`.

    Returns
    -------
    dict of ndarray
        By name, each of the shape and type of its argument.

    Raises
    ------
    ValueError
        For a wrong shape, or for what has no gradient.
    TypeError
        For a wrong type.
    """
    shape = request.as_given(saved.out).shape
    if request.narrow is not None:
        grad_out = widened(_of_type("grad_out", _check.as_array("grad_out", grad_out), None, request))
    beside = ("query", request.query)
    full_grad_out = request.to_4d(_check.gradient("grad_out", grad_out, shape, beside=beside))
    full_grad_lse = None
    if grad_lse is not None:
        full_grad_lse = request.to_4d(_check.gradient("grad_lse", grad_lse, shape[:-1], beside=beside))
    names = (*ARRAYS, *request.parameters) if needs is None else tuple(needs)
    for name in names:
        if name not in ARRAYS and name not in request.parameters:
            raise ValueError(f"{name} was not given, or has no gradient")
    given = into or {}
    wide = {} if request.narrow is not None else given
    wanted = {name: request.to_4d(wide[name]) if name in wide else None for name in names}
    found = request.core.backward(*saved, full_grad_out, full_grad_lse, wanted, _threads(threads))
    return {name: _as_argument(request, name, gradient, given) for name, gradient in found.items()}


def _as_argument(request: Request, name: str, gradient: Array, given: Mapping[str, Array]) -> Array:
    if name in request.parameters:
        shared = request.parameters[name].gradient(gradient)
        return narrowed(shared, request.narrow_options[name]) if name in request.narrow_options else shared
    if request.narrow is not None:
        its = request.as_given(gradient)
        return narrowed(its, request.narrow, _of_type(name, given.get(name), its.shape, request))
    return given[name] if name in given else request.as_given(gradient)


def _of_type(name: str, array: Any, shape: tuple[int, ...] | None, request: Request) -> Any:
    """Refuse an array of another type or shape than the 16-bit floats that results are rounded to."""
    if array is None:
        return None
    if array.dtype != request.narrow or (shape is not None and array.shape != shape):
        wanted = f"{request.narrow}" + ("" if shape is None else f" of shape {shape}")
        raise TypeError(f"{name} must be {wanted}, not {array.dtype} of shape {array.shape}")
    return array


def _threads(threads: int | None) -> int:
    return get_num_threads() if threads is None else _check.integer("threads", threads, at_least=1)
