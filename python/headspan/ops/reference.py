"""The definition in dense float64 NumPy: what `headspan.attention` computes, for reading, teaching and checking."""

from __future__ import annotations

from typing import Any, Literal, Unpack, overload

import numpy as np
import numpy.typing as npt

from headspan.ops.arguments import dropout
from headspan.ops.arguments.options import DEFAULTS, Options, refuse_unknown, takes_options
from headspan.ops.arguments.terms import TERMS
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
) -> Any:
    """Attention by its definition, in memory of the square of the tokens.

    Everything is computed in float64, and nothing is checked but the pattern.

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
        For a wrong pattern, or by NumPy for shapes that do not fit.
    TypeError
        For what is no pattern.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> rng = np.random.default_rng(0)
    >>> q, k, v = rng.standard_normal((3, 1, 2, 100, 16))
    >>> bool(np.allclose(hs.reference.attention(q, k, v, span=9), hs.attention(q, k, v, span=9)))
    True
    """
    refuse_unknown(options)
    given: dict[str, Any] = {**DEFAULTS, **{name: option for name, option in options.items() if option is not None}}
    q, k, v = (np.asarray(a, np.float64) for a in (query, key, value))
    if q.ndim > 2:  # heads that share a key head
        k, v = (np.repeat(a, q.shape[-3] // a.shape[-3], axis=-3) for a in (k, v))
    z, t, slope, sink = (
        _per_query(given.get(name, otherwise), q.ndim)
        for name, otherwise in (("span", np.inf), ("temperature", 1.0), ("alibi_slopes", 0.0), ("sinks", -np.inf))
    )
    ramp, scale = given["ramp"], given.get("scale", q.shape[-1] ** -0.5)
    allowed, x, free, offsets = _pairs(q, k, given)
    if "key_lengths" in given:
        allowed = allowed & _before(k.shape[-2], given["key_lengths"])
    if "key_begin" in given:
        allowed = allowed & ~_before(k.shape[-2], given["key_begin"])
    if "key_ranges" in given:
        allowed = allowed & _in_range(k.shape[-2], np.asarray(given["key_ranges"]))
    segments = _segments(q.shape[-2], given)
    if segments is not None:
        allowed = allowed & _same(*segments)
    b = np.asarray(given["key_bias"], np.float64)[..., None, :] if "key_bias" in given else np.float64(0)

    m = np.clip((z - x + ramp) / ramp, 0, 1) if ramp else np.where(x <= z, 1.0, 0.0)
    added = sum((TERMS[name].dense(given, offsets) for name in sorted(TERMS.keys() & given.keys())), np.float64(0))
    seen = allowed & (b > -np.inf) & (added > -np.inf)
    m = np.where(seen, np.where(free, 1.0, m), 0.0)
    s = _products(q, k, scale / t, given) - slope * x + b + added
    if "memory_key" in given:
        s, m, v = _with_memory(q, s, m, v, scale / t, given)
    top = np.maximum(np.max(s, axis=-1, keepdims=True, initial=-np.inf, where=m > 0), sink)
    top = np.where(top == -np.inf, 0.0, top)  # of a row with no pair
    e = m * np.exp(np.where(m > 0, s - top, -np.inf))
    total = e.sum(axis=-1, keepdims=True) + np.exp(sink - top)
    w = e / np.where(total == 0, 1, total)
    if given["dropout"]:
        w = w * _dropout_factors(w.shape, k.shape[-2], given)
    out = _weighted(w, np.broadcast_to(m > 0, w.shape), v)
    if not return_lse:
        return out
    with np.errstate(divide="ignore"):
        return out, (top + np.log(total))[..., 0]


def _weighted(
    w: npt.NDArray[np.float64], seen: npt.NDArray[np.bool_], v: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return the weighted sums of values: 0 times NaN would be NaN, so that pairs that are not seen are left out."""
    finite = np.isfinite(v).all(axis=-1, keepdims=True)
    out = w @ np.where(finite, v, 0)
    others = np.where(finite, 0, v)
    for key in np.flatnonzero(~finite.reshape(-1, v.shape[-2]).all(axis=0)):
        out = out + np.where(seen[..., key, None], w[..., key, None] * others[..., None, key, :], 0)
    return out


def _products(q: npt.NDArray[np.float64], k: npt.NDArray[np.float64], factor: Any, given: dict[str, Any]) -> Any:
    """Return the products of queries and keys, scaled and capped."""
    s = factor * (q @ np.swapaxes(k, -1, -2))
    return given["softcap"] * np.tanh(s / given["softcap"]) if "softcap" in given else s


def _with_memory(q: Any, s: Any, m: Any, v: Any, factor: Any, given: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Put keys that every query sees behind the others: their scores, masks and values."""
    key, value = (np.asarray(given[name], np.float64) for name in ("memory_key", "memory_value"))
    if q.ndim > 2:
        key, value = (
            np.broadcast_to(a, (*v.shape[:-3], len(a) if a.ndim > 2 else 1, *a.shape[-2:])) for a in (key, value)
        )
        key, value = (np.repeat(a, q.shape[-3] // a.shape[-3], axis=-3) for a in (key, value))
    of_memory = _products(q, key, factor, given)
    m = np.concatenate([np.broadcast_to(m, s.shape), np.ones(of_memory.shape)], axis=-1)
    return np.concatenate([s, of_memory], axis=-1), m, np.concatenate([v, value], axis=-2)


def _dropout_factors(shape: tuple[int, ...], keys: int, given: dict[str, Any]) -> npt.NDArray[np.float64]:
    """Return what dropout makes of weights of 1, those of memory behind those of keys."""
    batch, heads, queries, columns = (1,) * (4 - len(shape)) + shape
    numbers = np.r_[np.arange(keys), 2**31 + np.arange(columns - keys)]
    factors = dropout.factors(given["dropout"], given["seed"], batch, heads, np.arange(keys - queries, keys), numbers)
    return factors.reshape(shape)


def _per_query(a: npt.ArrayLike, ndim: int) -> npt.NDArray[np.float64]:
    """Bring a parameter of one of its forms against (batch, heads, tokens, keys)."""
    a = np.asarray(a, np.float64)
    per_token = a.ndim == max(ndim - 1, 1)
    return a[..., None] if per_token else a[..., None, None]


def _pairs(
    q: npt.NDArray[np.float64],
    k: npt.NDArray[np.float64],
    given: dict[str, Any],
) -> tuple[Any, Any, Any, list[Any]]:
    """Say which pairs there are, how far apart they stand, which of them no span limits, and their offsets by axis."""
    queries, keys = q.shape[-2], k.shape[-2]
    k_at = np.asarray(given.get("key_positions", np.arange(keys)))
    if "query_positions" in given:
        q_at = np.asarray(given["query_positions"])
    elif "query_segments" in given:
        q_ids, k_ids = _segments(queries, given)
        q_at = _beside_keys(q_ids, k_ids, k_at)
    else:
        q_at = k_at[..., keys - queries :] if "key_positions" in given else np.arange(keys - queries, keys)
    if max(k_at.ndim, q_at.ndim) == 2:  # one row for each batch item
        k_at, q_at = (np.atleast_2d(at)[:, None] for at in (k_at, q_at))
    x = q_at[..., :, None] - k_at[..., None, :]
    heads = q.shape[-3] if q.ndim > 2 else 1
    parts = per_head(given.get("pattern"), q.shape[0] if q.ndim == 4 else 1, heads, queries, keys)
    causal = resolve_causal(given.get("causal"), parts, queries, keys, placed="query_positions" in given)
    in_prefix: Any = False
    if "prefix_lengths" in given:
        in_prefix = _before(keys, np.asarray(given.get("key_begin", 0)) + np.asarray(given["prefix_lengths"]))
    allowed = ((x >= 0) | (not causal) | in_prefix) & ((x != 0) | given["include_self"])
    if not parts:
        return allowed, np.abs(x), False, [-x]
    masks, free = (np.stack(each) for each in zip(*(_pattern(part, queries, keys) for part in parts), strict=True))
    offsets = [-x]
    if any(part.grid for part in parts):
        offsets = _grid_offsets(parts[0], queries, keys) or offsets
        x = np.stack([_grid_distance(part, queries, keys, x) for part in parts])
    if len(parts) > heads:  # of each batch item
        masks, free = (array.reshape(-1, heads, queries, keys) for array in (masks, free))
        x = x.reshape(masks.shape) if x.ndim == 3 else x
    if q.ndim == 2:  # no axis of heads
        masks, free, x = masks[0], free[0], x.reshape(queries, keys)
    return allowed & masks, np.abs(x), free, offsets


def _pattern(pattern: Pattern, queries: int, keys: int) -> tuple[Any, Any]:
    """Return the mask of a pattern, and the pairs with global tokens."""
    tokens = pattern.global_tokens
    free = np.isin(np.arange(keys - queries, keys), tokens)[:, None] | np.isin(np.arange(keys), tokens)
    return pattern.mask(queries, keys), free


def _grid_distance(pattern: Pattern, queries: int, keys: int, x: Any) -> Any:
    """Return the largest distance along the axes of a pattern's grid; without one the distances given."""
    return np.abs(_grid_offsets(pattern, queries, keys)).max(axis=0) if pattern.grid else x


def _grid_offsets(pattern: Pattern, queries: int, keys: int) -> list[Any]:
    """Return how far each key lies after each query along the axes of a pattern's grid; nothing without one."""
    if not pattern.grid:
        return []
    tokens = np.array(pattern._on_grid)
    at = np.zeros((len(pattern.grid), keys), int)  # those beside the grid are not asked for
    at[:, tokens] = np.unravel_index(tokens - pattern.grid_start, pattern.grid)
    return list(at[:, None, :] - at[:, keys - queries :, None])


def _before(keys: int, ends: npt.ArrayLike) -> Any:
    """Return the keys before a number, or before that of each batch item."""
    end = np.asarray(ends)
    return np.arange(keys) < (end.item() if end.size == 1 else end.reshape(-1, 1, 1, 1))


def _in_range(keys: int, ranges: npt.NDArray[Any]) -> Any:
    """Return the keys in the range of each query."""
    inside = (np.arange(keys) >= ranges[..., :1]) & (np.arange(keys) < ranges[..., 1:])
    return inside[:, None] if inside.ndim == 3 else inside


def _segments(queries: int, given: dict[str, Any]) -> Any:
    """Return the segments of queries and of keys; None if there are none."""
    if "query_segments" in given:
        return np.asarray(given["query_segments"]), np.asarray(given["key_segments"])
    if "segment_ids" not in given:
        return None
    ids = np.asarray(given["segment_ids"])
    return ids[..., ids.shape[-1] - queries :], ids


def _same(query_ids: npt.NDArray[Any], key_ids: npt.NDArray[Any]) -> Any:
    """Return the pairs that lie in one segment."""
    same = query_ids[..., :, None] == key_ids[..., None, :]
    return same[:, None] if same.ndim == 3 else same


def _beside_keys(query_ids: npt.NDArray[Any], key_ids: npt.NDArray[Any], key_positions: npt.NDArray[Any]) -> Any:
    """Return where queries stand: the last of a segment beside its last key, the one before beside the key before."""
    rows = query_ids, key_ids, key_positions
    lead = np.broadcast_shapes(*(row.shape[:-1] for row in rows))  # of batch items, if they differ
    names, key_names, key_at = (np.broadcast_to(row, (*lead, row.shape[-1])) for row in rows)
    places = np.zeros(names.shape)
    for *item, i in np.ndindex(names.shape):
        of = tuple(item)
        own = key_at[of][key_names[of] == names[of][i]]
        at = len(own) - 1 - (names[of][i + 1 :] == names[of][i]).sum()
        if len(own):
            places[(*of, i)] = own[max(at, 0)] + min(at, 0)
    return places
