"""Attention as a JAX function with a custom gradient: calls of the handler and the shapes of their results."""

from __future__ import annotations

import atexit
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from headspan import _compiled
from headspan.jax.call import Call, in_order
from headspan.jax.meshes import along, varying
from headspan.jax.run import run
from headspan.ops.adapters.options import WITH_GRADIENT
from headspan.ops.execution.narrow import is_narrow_type

_Arrays = Mapping[str, jax.Array]
_TARGET = "headspan_attention"
jax.ffi.register_ffi_target(_TARGET, _compiled.jax_handler(run, np.dtype(jnp.bfloat16)), platform="cpu")
atexit.register(_compiled.end_jax_calls)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _call(call: Call, shapes: Sequence[tuple[tuple[int, ...], Any]], arrays: Sequence[jax.Array]) -> list[jax.Array]:
    """Call the handler; under `vmap`, mapped arrays have additional axes."""
    operands, axes = varying(arrays)
    results = [jax.ShapeDtypeStruct(shape, dtype, **along(axes)) for shape, dtype in shapes]
    text = json.dumps(call)
    output: list[jax.Array] = list(jax.ffi.ffi_call(_TARGET, results, vmap_method="expand_dims")(*operands, call=text))
    return output


@_call.defjvp
def _no_second_derivatives(call: Call, shapes: Any, primals: Any, tangents: Any) -> Any:
    raise NotImplementedError("attention has no second derivatives")


def alike(tensors: _Arrays) -> dict[str, jax.Array]:
    """Cast arguments to vary along the same axes, so that gradients of shared ones are summed over devices."""
    return dict(zip(tensors, varying(list(tensors.values()))[0], strict=True))


def _forward(call: Call, tensors: _Arrays) -> dict[str, jax.Array]:
    query, value = tensors["query"], tensors["value"]
    exact = jnp.float32 if is_narrow_type(query.dtype) else query.dtype
    rows = query.shape[:-1]
    shapes = {
        "out": ((*rows, value.shape[-1]), query.dtype),
        "lse": (rows, exact),
        "exact": ((*rows, value.shape[-1]), exact),
        "statistics": ((*rows, 2), exact),
    }
    operands = [tensors[name] for name in call.operands]
    outputs = _call(call, tuple(shapes[name] for name in call.results), operands)
    return dict(zip(call.results, outputs, strict=True))


# Compiled, so that an eager call is a single operation for JAX, and `shard_map` accepts it.
@functools.partial(jax.jit, static_argnums=0)
def attention(call: Call, tensors: _Arrays) -> dict[str, jax.Array]:
    """Compute attention of checked arguments."""
    outputs: dict[str, jax.Array] = _attention(call, tensors)
    return outputs


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(call: Call, tensors: _Arrays) -> dict[str, jax.Array]:
    return _forward(call, tensors)


def _attention_forward(call: Call, primals: Any) -> Any:
    tensors = {name: primal.value for name, primal in primals.items()}
    narrow = is_narrow_type(tensors["query"].dtype)
    kept = ("exact", "statistics") if narrow else ("statistics",)
    outputs = _forward(call._replace(results=(*call.results, *kept)), tensors)
    results = {name: outputs[name] for name in call.results}
    saved = {"out": outputs["exact" if narrow else "out"], "statistics": outputs["statistics"]}
    # Residuals can only be arrays, so the split into two dicts records which gradients are needed.
    wanted = {name: x for name, x in tensors.items() if name in WITH_GRADIENT and primals[name].perturbed}
    return results, (wanted, {name: x for name, x in tensors.items() if name not in wanted}, saved)


def _attention_backward(call: Call, residuals: Any, upstream: Any) -> Any:
    wanted, others, saved = residuals
    tensors = wanted | others | saved
    grad_out, grad_lse = upstream["out"], upstream.get("lse")
    query = tensors["query"]
    if type(grad_out) is SymbolicZero:
        grad_out = jnp.zeros((*query.shape[:-1], tensors["value"].shape[-1]), query.dtype)
    tensors["grad_out"] = grad_out
    if grad_lse is not None and type(grad_lse) is not SymbolicZero:
        tensors["grad_lse"] = grad_lse
    gradients: dict[str, Any] = dict.fromkeys((*wanted, *others))  # None: no gradient
    learned = tuple(name for name in in_order(wanted) if jnp.issubdtype(wanted[name].dtype, jnp.floating))
    if learned:
        gradients |= _backward(call._replace(results=learned, operands=in_order(tensors)), tensors)
    return (gradients,)


def _backward(call: Call, tensors: _Arrays) -> dict[str, jax.Array]:
    shapes = tuple((tensors[name].shape, tensors[name].dtype) for name in call.results)
    gradients = _call(call, shapes, [tensors[name] for name in call.operands])
    return dict(zip(call.results, gradients, strict=True))


_attention.defvjp(_attention_forward, _attention_backward, symbolic_zeros=True)
