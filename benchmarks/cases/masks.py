"""The soft mask of a case as a dense matrix, for contenders that need one."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.cases.case import Array, Case
from benchmarks.cases.inputs import Inputs


def mask_rows(case: Case, span: Any, rows: Array, keys: Array) -> tuple[Array, Array]:
    """Return the distances of pairs and their soft mask, in float64 unless the span has another type.

    Parameters
    ----------
    case : Case
    span : array_like
        Spans that broadcast to (..., rows, keys), infinite for no limit.
    rows, keys : ndarray
        Positions of queries and keys. A negative position stands for a missing key.
    """
    x = rows[:, None] - keys
    allowed = (keys >= 0) & ((x >= 0) | (not case.causal))
    if (pattern := case.allowed) is not None:
        places = rows.astype(np.int64) - (case.keys - case.queries), keys.astype(np.int64)
        allowed &= pattern.mask(case.queries, case.keys)[np.ix_(*places)]
    x = np.abs(x)
    return x, np.where(allowed, np.clip((case.ramp + span - x) / case.ramp, 0, 1), 0)


def log_mask(case: Case, inputs: Inputs) -> Array:
    """Return the logarithm of the dense soft mask, of shape (1, 1, queries, keys) if heads share it."""
    rows = np.arange(case.queries, dtype=case.dtype) + (case.keys - case.queries)
    keys = np.arange(case.keys, dtype=case.dtype)
    if inputs.span is None:
        span = np.array(np.inf, case.dtype)
    elif inputs.span.ndim == 3:
        span = inputs.span[..., None]
    else:
        span = (inputs.span if case.head_spans else inputs.span[:1, :1])[..., None, None]
    mask = mask_rows(case, span, rows, keys)[1].astype(case.dtype, copy=False)
    with np.errstate(divide="ignore"):
        np.log(mask, out=mask)
    return mask.reshape((1,) * (4 - mask.ndim) + mask.shape)


def log_mask_bytes(case: Case) -> int:
    """Return the number of bytes of `log_mask`."""
    heads = case.batch * case.heads if case.spans_vary else 1
    return heads * case.queries * case.keys * case.itemsize
