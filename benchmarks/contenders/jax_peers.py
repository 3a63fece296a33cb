"""The peer in JAX, which is imported when the contender is prepared."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.cases import BOTH, FORWARD, Case, Inputs, log_mask, log_mask_bytes
from benchmarks.contenders.prepared import Prepared


def _biased(case: Case) -> bool:
    """Return whether a mask is necessary: is_causal alone requires as many queries as keys."""
    return case.span is not None or (case.causal and case.queries != case.keys)


def needs(case: Case, passes: str) -> float:
    """Estimate the bytes of the bias and of the score matrices that exist at the same time."""
    bias = log_mask_bytes(case) if _biased(case) else 0
    return bias + case.scores * case.itemsize * (4.0 if passes == BOTH else 3.0)


def prepare(case: Case, passes: str, inputs: Inputs) -> Prepared:
    """Prepare jax.nn.dot_product_attention under jit, with is_causal or with a bias."""
    jax = import_module("jax")
    jax.config.update("jax_enable_x64", case.dtype == "float64")
    bias = jax.numpy.asarray(log_mask(case, inputs)) if _biased(case) else None

    def load(array: Any) -> Any:
        return jax.numpy.asarray(np.ascontiguousarray(array.swapaxes(1, 2)))  # heads follow tokens

    # The bias is an argument because a value that a jitted function closes over is a constant, which XLA may fold.
    def attend(q: Any, k: Any, v: Any, bias: Any) -> Any:
        return jax.nn.dot_product_attention(q, k, v, bias=bias, is_causal=case.causal and bias is None)

    def attend_both(q: Any, k: Any, v: Any, bias: Any, grad_out: Any) -> Any:
        out, vjp = jax.vjp(lambda q, k, v: attend(q, k, v, bias), q, k, v)
        return out, *vjp(grad_out)

    arrays = [load(array) for array in (inputs.query, inputs.key, inputs.value)]
    if passes == FORWARD:
        compiled, arguments = jax.jit(lambda *a: (attend(*a),)), (*arrays, bias)
    else:
        compiled, arguments = jax.jit(attend_both), (*arrays, bias, load(inputs.grad_out))

    return Prepared(
        lambda: jax.block_until_ready(compiled(*arguments)),
        lambda value: tuple(np.asarray(array).swapaxes(1, 2) for array in value),
        0 if bias is None else bias.nbytes,
    )
