"""The error of a result against float64 NumPy, on one head or, for long cases, on some queries of one head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.cases import FORWARD, Array, Case, Inputs, mask_rows
from benchmarks.contenders.prepared import Result

# A head with at most _MAX_PAIRS pairs is checked completely. Of a larger head, _SOME pairs are checked.
_MAX_PAIRS = 2**24
_SOME = 2**22


@dataclass(frozen=True)
class Expected:
    """The correct result of a part of a case.

    Attributes
    ----------
    head : (int, int)
        The batch item and the head that are checked.
    rows : ndarray of int
        The queries that are checked.
    arrays : list of (ndarray, float) or None
        The output and the gradients of query, key, value and span, each with the size that its errors are relative to.
    """

    head: tuple[int, int]
    rows: Array
    arrays: list[tuple[Array, float] | None]


def expected(case: Case, passes: str, inputs: Inputs) -> Expected:
    """Compute a random part of the result in float64.

    The gradients of keys and values, and of a span that all queries share, are sums over queries. They are left out if
    only some queries are checked.
    """
    rng = np.random.default_rng(1)
    head = int(rng.integers(case.batch)), int(rng.integers(case.heads))
    is_complete = case.queries * case.keys <= _MAX_PAIRS
    count = min(case.queries, max(1, _SOME // case.keys))
    rows = np.arange(case.queries) if is_complete else np.sort(rng.choice(case.queries, count, replace=False))
    q, k, v, grad_out = (a[head].astype(np.float64) for a in (inputs.query, inputs.key, inputs.value, inputs.grad_out))
    z = np.array(np.inf) if inputs.span is None else inputs.span[head].astype(np.float64)
    z = np.broadcast_to(z, case.queries)
    gradient = passes != FORWARD
    parts = []
    grad_key, grad_value = np.zeros_like(k), np.zeros_like(v)
    for part_rows in np.array_split(rows, -(-rows.size * case.keys // _SOME)):
        part = _rows(case, q, k, v, z, grad_out if gradient else None, part_rows)
        grad_key += part.pop("key", 0)
        grad_value += part.pop("value", 0)
        parts.append(part)
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    arrays: list[tuple[Array, float] | None] = [_sized(joined["out"])]
    if gradient:
        arrays += [_sized(joined["query"]), *(_sized(x) if is_complete else None for x in (grad_key, grad_value))]
        # The terms of a span's gradient cancel, so its error is relative to the sum of their absolute values.
        if inputs.span is not None and inputs.span.ndim == 3:
            arrays.append((joined["span"], float(joined["mass"].max())))
        elif inputs.span is not None and is_complete:
            arrays.append((joined["span"].sum(), float(joined["mass"].sum())))
    return Expected(head, rows, arrays)


def _sized(array: Array) -> tuple[Array, float]:
    return array, float(np.abs(array).max())


def _rows(case: Case, q: Array, k: Array, v: Array, z: Array, grad_out: Array | None, rows: Array) -> dict[str, Any]:
    """Return output and gradients of some queries of a head, and their share of the gradients of keys and values."""
    scale = case.head_dim**-0.5
    q, z = q[rows], z[rows, None]
    x, m = mask_rows(case, z, rows + (case.keys - case.queries), np.arange(case.keys))
    s = np.where(m > 0, scale * (q @ k.T), -np.inf)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    e /= (m * e).sum(axis=-1, keepdims=True)
    w = m * e
    out = w @ v
    if grad_out is None:
        return {"out": out}
    g = grad_out[rows]
    t = e * (g @ v.T - (out * g).sum(axis=-1, keepdims=True))
    ds = scale * m * t
    dz = np.where((m > 0) & (x >= z), t, 0) / case.ramp
    return {
        "out": out,
        "query": ds @ k,
        "key": ds.T @ q,
        "value": w.T @ g,
        "span": dz.sum(axis=-1),
        "mass": np.abs(dz).sum(axis=-1),
    }


def error(right: Expected, result: Result) -> float:
    """Return the largest error of the output and the gradients, each relative to the size of its array."""
    largest = 0.0
    for place, (expected_array, array) in enumerate(zip(right.arrays, result, strict=False)):
        if expected_array is None or array is None:
            continue
        values, size = expected_array
        actual = array[right.head].astype(np.float64)
        if place in (0, 1) or (place == 4 and actual.ndim == 1):
            actual = actual[right.rows]
        difference = float(np.abs(actual - values).max())
        largest = max(largest, difference / size if size else difference)
    return largest
