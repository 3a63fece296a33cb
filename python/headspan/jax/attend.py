"""Attention on JAX arrays: converts and checks the arguments and calls the function in `operator.py`."""

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
from headspan.ops.execution.functional import ARRAYS


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
    """Compute attention with a span per head or per token on JAX arrays on the CPU.

    Attention is causal by default: pass ``causal=False`` to let queries see later keys. The arguments and results are
    those of `headspan.attention`, and the results are bitwise identical. Every array option may be traced. The options
    listed in `headspan.Gradients` are differentiable; positions are not. Other options are numbers and patterns and
    must be static during tracing, except for `seed`, which may be a traced array.

    Parameters
    ----------
    query : Array, shape (batch, heads, tokens, head_dim)
        float32, or float64 with ``jax_enable_x64``; leading axes may be omitted. bfloat16 and float16 are computed in
        float32, and the state for the backward pass is also kept in float32.
    key, value : Array, shape (batch, key heads, key tokens, head_dim)
        Keys and values of the same type.
    **options
        See `headspan.attention`. NumPy arrays, lists and numbers are converted to JAX arrays. Without
        ``jax_enable_x64``, a float64 span is rounded to float32.
    return_lse : bool
        Whether to also return the log-sum-exp.

    Returns
    -------
    out : Array, shape (batch, heads, tokens, head_dim of value)
        The attention output, with the type of `query`.
    lse : Array, shape (batch, heads, tokens)
        The log-sum-exp, as float32 for 16-bit types. Only with `return_lse`.

    Raises
    ------
    TypeError
        If the arrays differ in type, or if an option is unknown.
    NotImplementedError
        For second derivatives, which are not supported.
    jax.errors.JaxRuntimeError or ValueError
        If a traced array has an invalid value, such as a negative span. The error is raised where the result is used.

    See Also
    --------
    headspan.attention : The same for NumPy arrays, with a description of every option.
    headspan.torch.attention : Attention for tensors.

    Notes
    -----
    XLA calls the compiled core once, which reads and writes arrays in place. `vmap` becomes one call with a larger
    batch, or consecutive calls if persistent keys, tables of biases or dropout require it. Within `shard_map` each
    device computes its part. Only the required gradients are computed. `headspan.set_num_threads` limits the threads.

    Examples
    --------
    >>> import jax
    >>> from headspan.jax import attention
    >>> query, key, value = jax.random.normal(jax.random.key(0), (3, 1, 2, 1000, 16))
    >>> def loss(span):
    ...     return attention(query, key, value, span=span).sum()
    >>> jax.jit(jax.grad(loss))(jax.numpy.array([64.0, 256.0])).shape
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
    outputs = operator.attention(call, tensors)
    return (outputs["out"], outputs["lse"]) if with_lse else outputs["out"]
