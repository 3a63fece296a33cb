"""Attention of arrays of JAX: what is given is brought to what the function of `operator.py` takes."""

from __future__ import annotations

from typing import Any, Literal, Unpack, overload

import jax
import jax.numpy as jnp
import numpy.typing as npt

from headspan import _check
from headspan.jax import operator
from headspan.jax.arguments import check, sorted_arguments
from headspan.jax.call import Call, in_order, written
from headspan.ops.adapters.patterns import written_pattern
from headspan.ops.arguments.options import Options, refuse_unknown, takes_options
from headspan.ops.functional import ARRAYS


@overload
def attention(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    *,
    return_lse: Literal[False] = ...,
    **options: Unpack[Options],
) -> jax.Array: ...
@overload
def attention(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    *,
    return_lse: Literal[True],
    **options: Unpack[Options],
) -> tuple[jax.Array, jax.Array]: ...
@takes_options
def attention(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    *,
    return_lse: bool = False,
    **options: Any,
) -> Any:
    """Attention in which every head, or every token, has its own span, of arrays of JAX on the CPU.

    Takes the arguments of `headspan.attention`, which says what they are, and gives the same numbers, to the bit. Every
    option that is an array may be traced, and those that `headspan.Gradients` lists have a gradient; positions have
    none. Other options are numbers and patterns that are known when the function is traced, but for `seed`, which may
    be an array, too.

    Parameters
    ----------
    query : Array, shape (batch, heads, tokens, head_dim)
        float32, or float64 with ``jax_enable_x64``; leading axes may be left out. bfloat16 and float16 are computed
        with in float32, and what the backward pass needs of the result is kept so.
    key, value : Array, shape (batch, key heads, key tokens, head_dim)
        Of the same type.
    **options
        See `headspan.attention`. Arrays of NumPy, lists and numbers become arrays of JAX, so that without
        ``jax_enable_x64`` a span of float64 is rounded to float32.
    return_lse : bool
        Whether to return the log-sum-exp too.

    Returns
    -------
    out : Array, shape (batch, heads, tokens, head_dim of value)
        Of the type of query.
    lse : Array, shape (batch, heads, tokens)
        Only with `return_lse`; of float32 for narrower types.

    Raises
    ------
    ValueError
        For a wrong shape or value, as far as it is known when the function is traced.
    TypeError
        For a wrong or mixed type.
    NotImplementedError
        For second derivatives, which there are none of.
    jax.errors.JaxRuntimeError or ValueError
        With the same sentence, for a wrong value of a traced array, such as a span below 0; where the result is used.

    Notes
    -----
    It is one call of the compiled core for XLA, which reads and writes the arrays where they are. `vmap` makes one
    larger batch of it, or call after call where memory keys, a table of biases or dropout ask for it; within
    `shard_map` every device computes its part. Only gradients that are needed are computed. As many threads work as
    `headspan.get_num_threads` says.

    Examples
    --------
    >>> import jax
    >>> from headspan.jax import attention
    >>> query, key, value = jax.random.normal(jax.random.key(0), (3, 1, 2, 100, 16))
    >>> def loss(span):
    ...     return attention(query, key, value, span=span).sum()
    >>> jax.jit(jax.grad(loss))(jax.numpy.array([4.0, 50.0])).shape
    (2,)
    """
    with_lse = _check.flag("return_lse", return_lse)
    refuse_unknown(options)
    arrays, plain = sorted_arguments(dict(zip(ARRAYS, (query, key, value), strict=True)) | options)
    check(arrays, plain)
    if "pattern" in plain:
        plain["pattern"] = written_pattern(plain["pattern"])
    tensors = operator.alike({name: x if isinstance(x, jax.Array) else jnp.asarray(x) for name, x in arrays.items()})
    results = ("out", "lse") if with_lse else ("out",)
    call = Call(results, in_order(tensors), tensors["query"].ndim, written(plain))
    found = operator.attention(call, tensors)
    return (found["out"], found["lse"]) if with_lse else found["out"]
