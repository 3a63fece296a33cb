"""Reference implementation of `headspan.attention` in dense float64 NumPy, for reading, teaching and testing."""

from __future__ import annotations

from typing import Any, Literal, Unpack, overload

import numpy as np
import numpy.typing as npt

from headspan.ops.arguments import dropout
from headspan.ops.arguments.options import DEFAULTS, TERMS, Options, refuse_unknown, takes_options
from headspan.patterns.base import Pattern
from headspan.patterns.causality import resolve_causal
from headspan.patterns.per_head import per_head


@overload
def attention(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    *,
    return_lse: Literal[False] = ...,
    **options: Unpack[Options],
) -> npt.NDArray[np.float64]: ...
@overload
def attention(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    *,
    return_lse: Literal[True],
    **options: Unpack[Options],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]: ...
@takes_options
def attention(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    *,
    return_lse: bool = False,
    **options: Unpack[Options],
) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
    """Compute attention directly from its definition, with memory quadratic in the tokens.

    Attention is causal by default: pass ``causal=False`` to let queries see later keys. Everything is computed in
    float64. Only the pattern and the names of options are checked.

    Parameters
    ----------
    query, key, value, **options, return_lse
        As for `headspan.attention`.

    Returns
    -------
    out, lse : ndarray of float64
        As from `headspan.attention`; `lse` only with `return_lse`.

    Raises
    ------
    ValueError
        If the pattern does not fit, or from NumPy, if shapes do not match.
    TypeError
        If `pattern` is not a pattern, or an option is unknown.

    See Also
    --------
    headspan.attention : The same attention, computed by the core.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> rng = np.random.default_rng(0)
    >>> q, k, v = rng.standard_normal((3, 1, 2, 200, 16))
    >>> bool(np.allclose(hs.reference.attention(q, k, v, span=64), hs.attention(q, k, v, span=64)))
    True
    """
    refuse_unknown(options)
    settings: dict[str, Any] = {**DEFAULTS, **{name: value for name, value in options.items() if value is not None}}
    q, k, v = (np.asarray(a, np.float64) for a in (query, key, value))
    if q.ndim > 2:  # several heads may share a key head
        k, v = (np.repeat(a, q.shape[-3] // a.shape[-3], axis=-3) for a in (k, v))
    z, t, slope, sink = (
        _per_query(settings.get(name, otherwise), q.ndim)
        for name, otherwise in (("span", np.inf), ("temperature", 1.0), ("alibi_slopes", 0.0), ("sinks", -np.inf))
    )
    ramp, scale = settings["ramp"], settings.get("scale", q.shape[-1] ** -0.5)
    allowed, x, free, offsets = _pairs(q, k, settings)
    if "key_stop" in settings:
        allowed = allowed & _before(k.shape[-2], settings["key_stop"])
    if "key_start" in settings:
        allowed = allowed & ~_before(k.shape[-2], settings["key_start"])
    if "key_ranges" in settings:
        allowed = allowed & _in_range(k.shape[-2], np.asarray(settings["key_ranges"]))
    segments = _segments(q.shape[-2], settings)
    if segments is not None:
        allowed = allowed & _same(*segments)
    b = np.asarray(settings["key_bias"], np.float64)[..., None, :] if "key_bias" in settings else np.float64(0)

    m = np.clip((z - x + ramp) / ramp, 0, 1) if ramp else np.where(x <= z, 1.0, 0.0)
    bias = sum((TERMS[name].dense(settings, offsets) for name in sorted(TERMS.keys() & settings.keys())), np.float64(0))
    seen = allowed & (b > -np.inf) & (bias > -np.inf)
    m = np.where(seen, np.where(free, 1.0, m), 0.0)
    s = _products(q, k, scale / t, settings) - slope * x + b + bias
    if "persistent_key" in settings:
        s, m, v = _with_persistent(q, s, m, v, scale / t, settings)
    top = np.maximum(np.max(s, axis=-1, keepdims=True, initial=-np.inf, where=m > 0), sink)
    top = np.where(top == -np.inf, 0.0, top)  # rows without a visible pair
    e = m * np.exp(np.where(m > 0, s - top, -np.inf))
    total = e.sum(axis=-1, keepdims=True) + np.exp(sink - top)
    w = e / np.where(total == 0, 1, total)
    if settings["dropout"]:
        w = w * _dropout_factors(w.shape, k.shape[-2], settings)
    out = _weighted(w, np.broadcast_to(m > 0, w.shape), v)
    if not return_lse:
        return out
    with np.errstate(divide="ignore"):
        return out, (top + np.log(total))[..., 0]


def _weighted(
    w: npt.NDArray[np.float64], seen: npt.NDArray[np.bool_], v: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return the weighted sums of values over visible pairs only, because 0 times NaN would be NaN."""
    finite = np.isfinite(v).all(axis=-1, keepdims=True)
    out = w @ np.where(finite, v, 0)
    non_finite = np.where(finite, 0, v)
    for key in np.flatnonzero(~finite.reshape(-1, v.shape[-2]).all(axis=0)):
        out = out + np.where(seen[..., key, None], w[..., key, None] * non_finite[..., None, key, :], 0)
    return out


def _products(q: npt.NDArray[np.float64], k: npt.NDArray[np.float64], factor: Any, options: dict[str, Any]) -> Any:
    """Return the scaled and capped dot products of queries and keys."""
    s = factor * (q @ np.swapaxes(k, -1, -2))
    return options["softcap"] * np.tanh(s / options["softcap"]) if "softcap" in options else s


def _with_persistent(q: Any, s: Any, m: Any, v: Any, factor: Any, options: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Append the scores, masks and values of the persistent keys, which every query sees."""
    key, value = (np.asarray(options[name], np.float64) for name in ("persistent_key", "persistent_value"))
    if q.ndim > 2:
        key, value = (
            np.broadcast_to(a, (*v.shape[:-3], len(a) if a.ndim > 2 else 1, *a.shape[-2:])) for a in (key, value)
        )
        key, value = (np.repeat(a, q.shape[-3] // a.shape[-3], axis=-3) for a in (key, value))
    persistent_scores = _products(q, key, factor, options)
    m = np.concatenate([np.broadcast_to(m, s.shape), np.ones(persistent_scores.shape)], axis=-1)
    return np.concatenate([s, persistent_scores], axis=-1), m, np.concatenate([v, value], axis=-2)


def _dropout_factors(shape: tuple[int, ...], keys: int, options: dict[str, Any]) -> npt.NDArray[np.float64]:
    """Return the dropout factors of all weights; persistent keys come after the other keys."""
    batch, heads, queries, columns = (1,) * (4 - len(shape)) + shape
    ids = np.r_[np.arange(keys), 2**31 + np.arange(columns - keys)]
    factors = dropout.factors(options["dropout"], options["seed"], batch, heads, np.arange(keys - queries, keys), ids)
    return factors.reshape(shape)


def _per_query(a: npt.ArrayLike, ndim: int) -> npt.NDArray[np.float64]:
    """Reshape a parameter so that it broadcasts against (batch, heads, tokens, keys)."""
    a = np.asarray(a, np.float64)
    per_token = a.ndim == max(ndim - 1, 1)
    return a[..., None] if per_token else a[..., None, None]


def _pairs(
    q: npt.NDArray[np.float64],
    k: npt.NDArray[np.float64],
    options: dict[str, Any],
) -> tuple[Any, Any, Any, list[Any]]:
    """Return the allowed pairs, their distances, the pairs that no span limits, and the offsets along each axis."""
    queries, keys = q.shape[-2], k.shape[-2]
    k_at = np.asarray(options.get("key_positions", np.arange(keys)))
    if "query_positions" in options:
        q_at = np.asarray(options["query_positions"])
    elif "query_segments" in options:
        q_ids, k_ids = _segments(queries, options)
        q_at = _aligned_positions(q_ids, k_ids, k_at)
    else:
        q_at = k_at[..., keys - queries :] if "key_positions" in options else np.arange(keys - queries, keys)
    if max(k_at.ndim, q_at.ndim) == 2:  # one row per batch item
        k_at, q_at = (np.atleast_2d(at)[:, None] for at in (k_at, q_at))
    x = q_at[..., :, None] - k_at[..., None, :]
    heads = q.shape[-3] if q.ndim > 2 else 1
    parts = per_head(options.get("pattern"), q.shape[0] if q.ndim == 4 else 1, heads, queries, keys)
    causal = resolve_causal(options.get("causal"), parts, queries, keys, placed="query_positions" in options)
    in_prefix: Any = False
    if "prefix_lengths" in options:
        in_prefix = _before(keys, np.asarray(options.get("key_start", 0)) + np.asarray(options["prefix_lengths"]))
    allowed = ((x >= 0) | (not causal) | in_prefix) & ((x != 0) | options["include_self"])
    if not parts:
        return allowed, np.abs(x), False, [-x]
    masks, free = (np.stack(each) for each in zip(*(_pattern(part, queries, keys) for part in parts), strict=True))
    offsets = [-x]
    if any(part.grid for part in parts):
        offsets = _grid_offsets(parts[0], queries, keys) or offsets
        x = np.stack([_grid_distance(part, queries, keys, x) for part in parts])
    if len(parts) > heads:  # one pattern per batch item and head
        masks, free = (array.reshape(-1, heads, queries, keys) for array in (masks, free))
        x = x.reshape(masks.shape) if x.ndim == 3 else x
    if q.ndim == 2:  # no axis of heads
        masks, free, x = masks[0], free[0], x.reshape(queries, keys)
    return allowed & masks, np.abs(x), free, offsets


def _pattern(pattern: Pattern, queries: int, keys: int) -> tuple[Any, Any]:
    """Return the mask of a pattern and the mask of pairs with global tokens."""
    tokens = pattern.global_tokens
    free = np.isin(np.arange(keys - queries, keys), tokens)[:, None] | np.isin(np.arange(keys), tokens)
    return pattern.mask(queries, keys), free


def _grid_distance(pattern: Pattern, queries: int, keys: int, x: Any) -> Any:
    """Return the largest distance along the axes of a pattern's grid, or `x` for a pattern without a grid."""
    return np.abs(_grid_offsets(pattern, queries, keys)).max(axis=0) if pattern.grid else x


def _grid_offsets(pattern: Pattern, queries: int, keys: int) -> list[Any]:
    """Return the offset key - query along each axis of a pattern's grid; an empty list without a grid."""
    if not pattern.grid:
        return []
    tokens = np.array(pattern.grid_tokens)
    at = np.zeros((len(pattern.grid), keys), int)  # coordinates of tokens off the grid are not used
    at[:, tokens] = np.unravel_index(tokens - pattern.grid_start, pattern.grid)
    return list(at[:, None, :] - at[:, keys - queries :, None])


def _before(keys: int, ends: npt.ArrayLike) -> Any:
    """Return the mask of keys before an end, or before the end of each batch item."""
    end = np.asarray(ends)
    return np.arange(keys) < (end.item() if end.size == 1 else end.reshape(-1, 1, 1, 1))


def _in_range(keys: int, ranges: npt.NDArray[Any]) -> Any:
    """Return the mask of keys in the range of each query."""
    inside = (np.arange(keys) >= ranges[..., :1]) & (np.arange(keys) < ranges[..., 1:])
    return inside[:, None] if inside.ndim == 3 else inside


def _segments(queries: int, options: dict[str, Any]) -> Any:
    """Return the segment ids of queries and keys, or None without segments."""
    if "query_segments" in options:
        return np.asarray(options["query_segments"]), np.asarray(options["key_segments"])
    if "segment_ids" not in options:
        return None
    ids = np.asarray(options["segment_ids"])
    return ids[..., ids.shape[-1] - queries :], ids


def _same(query_ids: npt.NDArray[Any], key_ids: npt.NDArray[Any]) -> Any:
    """Return the mask of pairs within one segment."""
    same = query_ids[..., :, None] == key_ids[..., None, :]
    return same[:, None] if same.ndim == 3 else same


def _aligned_positions(query_ids: npt.NDArray[Any], key_ids: npt.NDArray[Any], key_positions: npt.NDArray[Any]) -> Any:
    """Return query positions that align the queries of each segment with the last keys of the segment."""
    rows = query_ids, key_ids, key_positions
    lead = np.broadcast_shapes(*(row.shape[:-1] for row in rows))  # an axis of batch items, if they differ
    ids, ids_of_keys, key_at = (np.broadcast_to(row, (*lead, row.shape[-1])) for row in rows)
    positions = np.zeros(ids.shape)
    for *leading, i in np.ndindex(ids.shape):
        item = tuple(leading)
        segment = key_at[item][ids_of_keys[item] == ids[item][i]]
        at = len(segment) - 1 - (ids[item][i + 1 :] == ids[item][i]).sum()
        if len(segment):
            positions[(*item, i)] = segment[max(at, 0)] + min(at, 0)
    return positions
