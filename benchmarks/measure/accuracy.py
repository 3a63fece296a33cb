"""The error of a result against float64 NumPy, on one head or, of long cases, on some of its queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.cases import FORWARD, Array, Case, Inputs, mask_rows
from benchmarks.contenders.prepared import Result

# A head with at most so many pairs is checked whole, else so many pairs of it.
_WHOLE = 2**24
_SOME = 2**22


@dataclass(frozen=True)
class Expected:
    """What is right.

    Attributes
    ----------
    head : (int, int)
        The batch item and the head looked at.
    rows : ndarray of int
        The queries looked at.
    arrays : list of (ndarray, float) or None
        out and the gradients of query, key, value and span: the values, and the size that errors are measured in.
    """

    head: tuple[int, int]
    rows: Array
    arrays: list[tuple[Array, float] | None]


def expected(case: Case, passes: str, inputs: Inputs) -> Expected:
    """Compute a part of the result, chosen at random, in float64.

    The gradients of keys and values, and that of a span shared by all queries, are sums over queries: they are left out
    where not all are looked at.
    """
    rng = np.random.default_rng(1)
    head = int(rng.integers(case.batch)), int(rng.integers(case.heads))
    whole = case.queries * case.keys <= _WHOLE
    some = min(case.queries, max(1, _SOME // case.keys))
    rows = np.arange(case.queries) if whole else np.sort(rng.choice(case.queries, some, replace=False))
    q, k, v, grad_out = (a[head].astype(np.float64) for a in (inputs.query, inputs.key, inputs.value, inputs.grad_out))
    z = np.array(np.inf) if inputs.span is None else inputs.span[head].astype(np.float64)
    z = np.broadcast_to(z, case.queries)
    gradient = passes != FORWARD
    parts = []
    grad_key, grad_value = np.zeros_like(k), np.zeros_like(v)
    for chosen in np.array_split(rows, -(-rows.size * case.keys // _SOME)):
        part = _rows(case, q, k, v, z, grad_out if gradient else None, chosen)
        grad_key += part.pop("key", 0)
        grad_value += part.pop("value", 0)
        parts.append(part)
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    found: list[tuple[Array, float] | None] = [_sized(joined["out"])]
    if gradient:
        found += [_sized(joined["query"]), _sized(grad_key) if whole else None, _sized(grad_value) if whole else None]
        # The terms of a span's gradient cancel: an error is measured in the sum of their sizes.
        if inputs.span is not None and inputs.span.ndim == 3:
            found.append((joined["span"], float(joined["mass"].max())))
        elif inputs.span is not None and whole:
            found.append((joined["span"].sum(), float(joined["mass"].sum())))
    return Expected(head, rows, found)


def _sized(array: Array) -> tuple[Array, float]:
    return array, float(np.abs(array).max())


def _rows(case: Case, q: Array, k: Array, v: Array, z: Array, grad_out: Array | None, rows: Array) -> dict[str, Any]:
    """Out and gradients of some queries of one head, and what they add to the gradients of keys and values."""
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
    """Largest error of out and of the gradients there are, each relative to the largest value of its array."""
    largest = 0.0
    for place, (known, array) in enumerate(zip(right.arrays, result, strict=False)):
        if known is None or array is None:
            continue
        values, size = known
        mine = array[right.head].astype(np.float64)
        if place in (0, 1) or (place == 4 and mine.ndim == 1):
            mine = mine[right.rows]
        difference = float(np.abs(mine - values).max())
        largest = max(largest, difference / size if size else difference)
    return largest
