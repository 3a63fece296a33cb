"""Attention with learned spans, its gradient, and its weights."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan._call import Call
from headspan._check import Array


class Gradients(NamedTuple):
    """Gradients of an attention, each of the shape of its argument; None where the argument was None."""

    query: Array
    key: Array
    value: Array
    span: Array | None
    temperature: Array | None
    alibi_slopes: Array | None


@overload
def attention(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    *,
    span: npt.ArrayLike | None = ...,
    ramp: float = ...,
    causal: bool = ...,
    include_self: bool = ...,
    scale: float | None = ...,
    temperature: npt.ArrayLike | None = ...,
    alibi_slopes: npt.ArrayLike | None = ...,
    return_lse: Literal[False] = ...,
) -> Array: ...
@overload
def attention(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    *,
    span: npt.ArrayLike | None = ...,
    ramp: float = ...,
    causal: bool = ...,
    include_self: bool = ...,
    scale: float | None = ...,
    temperature: npt.ArrayLike | None = ...,
    alibi_slopes: npt.ArrayLike | None = ...,
    return_lse: Literal[True],
) -> tuple[Array, Array]: ...
def attention(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    *,
    span: npt.ArrayLike | None = None,
    ramp: float = 32,
    causal: bool = True,
    include_self: bool = True,
    scale: float | None = None,
    temperature: npt.ArrayLike | None = None,
    alibi_slopes: npt.ArrayLike | None = None,
    return_lse: bool = False,
) -> Any:
    """Attention in which every head, or every token, has its own span.

    With x the distance from a query to a key, z the span and R the ramp, the weight of a pair is proportional to
    ``m(x) * exp(scale / temperature * query . key - slope * x)`` with the soft mask
    ``m(x) = clip((R + z - x) / R, 0, 1)``. Pairs with m = 0 cost nothing and are never read.

    Parameters
    ----------
    query : array_like, shape (batch, heads, tokens, head_dim)
        float32 or float64; leading axes may be left out.
    key, value : array_like, shape (batch, key heads, key tokens, head_dim)
        Of the same type; heads is a multiple of the key heads. Query i stands at position
        ``i + key tokens - tokens``, so that the last query sees the last key. The head_dim of value may be another.
    span : array_like, optional
        How far a query looks before the mask falls, in tokens: a number, or of shape (heads,), (batch, heads) or
        (batch, heads, tokens). None: without limit.
    ramp : float
        Tokens over which the mask falls from 1 to 0. 0 gives a hard window.
    causal : bool
        Whether queries see no later keys. Else the distance is absolute.
    include_self : bool
        Whether a query sees the key at its own position.
    scale : float, optional
        Of the dot products; ``1 / sqrt(head_dim)`` unless given.
    temperature : array_like, optional
        Divides the dot products; the shapes of `span`.
    alibi_slopes : array_like, optional
        A number, or of shape (heads,) or (batch, heads).
    return_lse : bool
        Whether to return the log-sum-exp too.

    Returns
    -------
    out : ndarray, shape (batch, heads, tokens, head_dim of value)
        0 for a query that sees no key.
    lse : ndarray, shape (batch, heads, tokens)
        The natural logarithm of the sum of ``m * exp(score)``; -inf for a query that sees no key. Only with
        `return_lse`.

    Raises
    ------
    ValueError
        For a wrong shape or value.
    TypeError
        For a wrong or mixed type.

    References
    ----------
    Sukhbaatar et al., "Adaptive Attention Span in Transformers", ACL 2019, equations 3 and 4; slopes: Press et al.,
    "Train Short, Test Long", ICLR 2022.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> rng = np.random.default_rng(0)
    >>> q, k, v = rng.standard_normal((3, 1, 2, 100, 16))
    >>> hs.attention(q, k, v, span=[4, 50]).shape
    (1, 2, 100, 16)
    """
    call = Call(
        query,
        key,
        value,
        span=span,
        ramp=ramp,
        causal=causal,
        include_self=include_self,
        scale=scale,
        temperature=temperature,
        alibi_slopes=alibi_slopes,
    )
    with_lse = _check.flag("return_lse", return_lse)
    out, lse, _ = call.core.forward(with_lse, False)
    if lse is None:
        return call.outside(out)
    return call.outside(out), call.outside(lse)


def attention_vjp(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    *,
    span: npt.ArrayLike | None = None,
    ramp: float = 32,
    causal: bool = True,
    include_self: bool = True,
    scale: float | None = None,
    temperature: npt.ArrayLike | None = None,
    alibi_slopes: npt.ArrayLike | None = None,
    return_lse: bool = False,
) -> tuple[Any, Callable[..., Gradients]]:
    """Attention, and the function that takes a gradient back through it.

    The arguments are those of `attention`. The arrays given must not be changed before the gradient has been taken.

    Returns
    -------
    out : ndarray, or (out, lse) with `return_lse`
        As from `attention`. `out` is read-only, since the gradient is computed from it; a copy is not.
    vjp : callable
        ``vjp(grad_out, grad_lse=None)`` gives the `Gradients` of ``sum(grad_out * out) + sum(grad_lse * lse)``. The
        gradient of a parameter that is shared is the sum over those who share it. That of the span is exact wherever
        the loss is differentiable; at a distance of exactly the span the mask has a kink, and its outer slope is taken.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> rng = np.random.default_rng(0)
    >>> q, k, v = rng.standard_normal((3, 1, 2, 100, 16))
    >>> out, vjp = hs.attention_vjp(q, k, v, span=[4.5, 50.5])
    >>> vjp(np.ones_like(out)).span.shape
    (2,)
    """
    call = Call(
        query,
        key,
        value,
        span=span,
        ramp=ramp,
        causal=causal,
        include_self=include_self,
        scale=scale,
        temperature=temperature,
        alibi_slopes=alibi_slopes,
    )
    with_lse = _check.flag("return_lse", return_lse)
    full_out, full_lse, statistics = call.core.forward(with_lse, True)
    assert statistics is not None
    out = call.outside(full_out)
    lse = None if full_lse is None else call.outside(full_lse)
    out.flags.writeable = False  # the gradient needs it as it is

    def vjp(grad_out: npt.ArrayLike, grad_lse: npt.ArrayLike | None = None) -> Gradients:
        """Gradients of ``sum(grad_out * out) + sum(grad_lse * lse)``."""
        full_grad_out = call.inside("grad_out", grad_out, out.shape)
        full_grad_lse = None if grad_lse is None else call.inside("grad_lse", grad_lse, out.shape[:-1])
        *arrays, grad_span, grad_temperature, grad_slopes = call.core.backward(
            full_out, statistics, full_grad_out, full_grad_lse
        )
        parameters = ((call.span, grad_span), (call.temperature, grad_temperature), (call.slopes, grad_slopes))
        return Gradients(
            *(call.outside(array) for array in arrays),
            *(None if p is None or g is None else p.gradient(g) for p, g in parameters),
        )

    return ((out, lse) if with_lse else out), vjp


def attention_weights(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    *,
    span: npt.ArrayLike | None = None,
    ramp: float = 32,
    causal: bool = True,
    include_self: bool = True,
    scale: float | None = None,
    temperature: npt.ArrayLike | None = None,
    alibi_slopes: npt.ArrayLike | None = None,
    rows: Any = None,
    cols: Any = None,
    pool: int | tuple[int, int] | None = None,
) -> Array:
    """Attention weights of chosen queries and keys, for looking at.

    The arguments are those of `attention`, and

    Parameters
    ----------
    rows, cols : slice or array_like of int, optional
        The queries and the keys wanted; all unless given. Weights are normalised over all keys all the same.
    pool : int or (int, int), optional
        Blocks of so many chosen queries and keys become one number: the mean over the queries of the sum over the keys,
        so that a row of the result still sums to 1.

    Returns
    -------
    weights : ndarray, shape (batch, heads, rows, cols)
        In memory no larger than that of the result and of `rows` and `cols`.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> rng = np.random.default_rng(0)
    >>> q, k = rng.standard_normal((2, 1, 2, 1000, 16))
    >>> hs.attention_weights(q, k, span=40, rows=slice(-3, None)).shape
    (1, 2, 3, 1000)
    >>> hs.attention_weights(q, k, span=40, pool=100).sum(axis=-1).round(6).min()
    np.float64(1.0)
    """
    call = Call(
        query,
        key,
        None,
        span=span,
        ramp=ramp,
        causal=causal,
        include_self=include_self,
        scale=scale,
        temperature=temperature,
        alibi_slopes=alibi_slopes,
    )
    row_indices = _chosen("rows", rows, call.query.shape[2])
    col_indices = _chosen("cols", cols, call.key.shape[2])
    if pool is None:
        pool = 1
    pools: tuple[Any, ...] = pool if isinstance(pool, tuple) else (pool, pool)
    if len(pools) != 2:
        raise ValueError(f"pool must be a number or a pair, not {pool}")
    sizes = (row_indices.size, col_indices.size)
    pool_rows, pool_cols = (
        min(_check.integer("pool", p, at_least=1), max(size, 1)) for p, size in zip(pools, sizes, strict=True)
    )
    shape = (*call.query.shape[:2], -(-row_indices.size // pool_rows), -(-col_indices.size // pool_cols))
    _check.check_size("the result", shape, call.dtype.itemsize)
    return call.outside(call.core.weights(row_indices, col_indices, pool_rows, pool_cols))


def _chosen(name: str, selection: Any, length: int) -> npt.NDArray[np.int64]:
    """Positions that a selection of an axis means, as NumPy would take it."""
    if selection is None:
        return np.arange(length)
    if not isinstance(selection, slice):
        selection = np.atleast_1d(_check.as_array(name, selection))
        if selection.size == 0:
            selection = selection.astype(np.int64)
        if selection.ndim != 1 or selection.dtype.kind not in "iu":
            raise TypeError(f"{name} must be a slice or a list of integers, not {_check.describe(selection.tolist())}")
    try:
        return np.ascontiguousarray(np.arange(length)[selection])
    except IndexError as error:
        raise ValueError(
            f"{name} must lie within {length} tokens, but one is {selection[np.abs(selection).argmax()]}"
        ) from error
