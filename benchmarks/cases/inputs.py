"""The arrays of a case, and the useful work in computing it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import headspan as hs
import numpy as np

from benchmarks.cases.case import BACKWARD, BOTH, FORWARD, Array, Case


@dataclass(frozen=True)
class Inputs:
    """The arrays of a case.

    Attributes
    ----------
    query, key, value, grad_out : ndarray, shape (batch, heads, tokens, head_dim)
    span : ndarray, optional
        Shape (batch, heads), so that each head has its own gradient, or (batch, heads, queries).
    """

    query: Array
    key: Array
    value: Array
    grad_out: Array
    span: Array | None


def make_inputs(case: Case, passes: str) -> Inputs:
    """Draw the arrays of a case with a fixed seed."""
    rng = np.random.default_rng(0)
    dtype: Any = np.dtype(case.dtype)

    def normal(tokens: int) -> Array:
        return rng.standard_normal((case.batch, case.heads, tokens, case.head_dim), dtype=dtype)

    span: Array | None = None
    if isinstance(case.span, tuple):
        span = rng.uniform(*case.span, (case.batch, case.heads, case.queries)).astype(dtype)
    elif case.span is not None:
        span = np.tile(np.array(case.head_spans or (case.span,) * case.heads, dtype), (case.batch, 1))
    query, key, value = normal(case.queries), normal(case.keys), normal(case.keys)
    return Inputs(query, key, value, normal(0 if passes == FORWARD else case.queries), span)


def useful_work(case: Case, passes: str, inputs: Inputs) -> int:
    """Count the floating-point operations of the pairs with a mask above 0."""
    cost = hs.cost(
        tokens=case.queries,
        key_tokens=case.keys,
        num_heads=case.heads,
        head_dim=case.head_dim,
        batch=case.batch,
        span=inputs.span,
        ramp=case.ramp,
        causal=case.causal,
        pattern=case.allowed,
    )
    return {
        FORWARD: cost.forward_flops,
        BACKWARD: cost.backward_flops,
        BOTH: cost.forward_flops + cost.backward_flops,
    }[passes]
