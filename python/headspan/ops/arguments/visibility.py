"""Visibility beyond causality, span and pattern: positions, padding, prefixes, ranges and segments."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan.ops.arguments.segments import Segments, in_order
from headspan.ops.arguments.sizes import Sizes, per_token

_Reals = npt.NDArray[np.float64]
_Integers = npt.NDArray[np.int64]


class Positions(NamedTuple):
    """Positions of queries and keys, each of shape (batch or 1, tokens)."""

    query: _Reals
    key: _Reals

    def furthest(self) -> float:
        """Return a number that is larger than every distance."""
        ends = [end for array in self if array.size for end in (array.min(), array.max())]
        return 2.0 * float(max(ends) - min(ends)) + 1.0 if ends else 1.0


def positions(queries_at: object, keys_at: object, sizes: Sizes, segments: Segments | None = None) -> Positions:
    """Check positions of queries and keys; with segments they apply within each and are returned in its order."""
    queries, keys = sizes.queries, sizes.keys
    key_array = np.arange(keys) if keys_at is None else _check.real_array("key_positions", keys_at)
    if queries_at is not None:
        query_array = _check.real_array("query_positions", queries_at)
        query_array, key_array = _from_zero(query_array, key_array)
        query = _reals("query_positions", query_array, queries, sizes)
    else:
        (key_array,) = _from_zero(key_array)
    key = _reals("key_positions", key_array, keys, sizes)
    if queries_at is None and segments is not None:
        aligned, before = segments.matches
        query = np.take_along_axis(key, aligned, axis=1) - before
    elif queries_at is None:
        if queries > keys:
            raise ValueError(
                f"key_positions require query_positions for more queries than keys, got {queries} and {keys}"
            )
        query = key[:, keys - queries :]
    if segments is None:
        _check_order("key_positions", key)
        _check_order("query_positions", query)
    else:
        query, key = in_order(query, segments.query_order, 1), in_order(key, segments.key_order, 1)
        _check_order("key_positions", key, in_order(segments.key, segments.key_order, 1))
        _check_order("query_positions", query, in_order(segments.query, segments.query_order, 1))
    return Positions(np.ascontiguousarray(query), np.ascontiguousarray(key))


def _from_zero(*arrays: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    """Subtract the minimum from integers, because a float cannot represent, for example, times in nanoseconds."""
    filled = [array for array in arrays if array.size]
    if not filled or any(array.dtype.kind == "f" for array in filled):
        return list(arrays)
    least, most = min(int(array.min()) for array in filled), max(int(array.max()) for array in filled)
    if most - least > 2**53:
        raise ValueError(f"positions must be within 2**53 of each other, not {least} and {most}")
    if most >= 2**63:
        raise ValueError(f"positions must be less than 2**63, not {most}")
    return [array.astype(np.int64) - least for array in arrays]


def _reals(name: str, array: npt.NDArray[Any], tokens: int, sizes: Sizes) -> _Reals:
    return per_token(name, array, tokens, sizes).astype(np.float64)


def _check_order(name: str, array: _Reals, segments: _Integers | None = None) -> None:
    falls = np.diff(array, axis=1) < 0
    if not falls.any():
        return
    if segments is None:
        raise ValueError(f"{name} must not decrease, but decreases after token {np.argwhere(falls)[0, 1]}")
    if (falls & (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] >= 0)).any():
        raise ValueError(f"{name} must not decrease within a segment")


def check_counts_shape(name: str, shape: tuple[int, ...], sizes: Sizes) -> None:
    """Raise ValueError unless an option has one number of keys for all batch items or one for each."""
    if shape not in ((), (1,), (sizes.batch,)):
        raise ValueError(f"{name} must be a number or of shape ({sizes.batch},), not of shape {shape}")


def check_ranges_shape(shape: tuple[int, ...], sizes: Sizes) -> None:
    """Raise ValueError unless `key_ranges` has a range for each query, for all batch items or for each."""
    forms = [(sizes.queries, 2)] + ([(sizes.batch, sizes.queries, 2)] if sizes.ndim == 4 else [])
    if shape not in forms and not (sizes.ndim == 4 and shape == (1, *forms[0])):
        raise ValueError(f"key_ranges must be of shape {' or '.join(map(str, forms))}, not of shape {shape}")


def check_prefix(options: Collection[str], causal: bool | None) -> None:
    """Raise ValueError for `prefix_lengths` among the options without causality."""
    if causal is False and "prefix_lengths" in options:
        raise ValueError("prefix_lengths require causal=True, because all queries see later keys without it")


def key_counts(name: str, counts: object, sizes: Sizes) -> _Integers:
    """Check numbers of keys, one for all batch items or one for each, and return them as an array."""
    array = _check.integers(name, counts)
    keys = sizes.keys
    check_counts_shape(name, array.shape, sizes)
    if array.size and not 0 <= array.min() <= array.max() <= keys:
        wrong = array.min() if array.min() < 0 else array.max()
        raise ValueError(f"{name} must be between 0 and the {keys} keys, got {wrong}")
    return np.ascontiguousarray(array, dtype=np.int64).reshape(-1)


def limits(options: Mapping[str, Any], sizes: Sizes, segments: Segments | None) -> dict[str, _Integers]:
    """Return the arguments of the core for padding, a prefix, ranges and segments."""
    core: dict[str, _Integers] = {}
    for name in ("key_start", "key_stop"):
        if name in options:
            core[name] = key_counts(name, options[name], sizes)
    if "key_start" in core and "key_stop" in core:
        starts, stops = np.broadcast_arrays(core["key_start"], core["key_stop"])
        if (starts > stops).any():
            item = int(np.argmax(starts > stops))
            raise ValueError(f"key_stop must be at least key_start, got {stops[item]} and {starts[item]}")
    if "prefix_lengths" in options:
        if segments is not None:
            raise ValueError("prefix_lengths cannot be combined with segments")
        core["prefix_end"] = key_counts("prefix_lengths", options["prefix_lengths"], sizes) + core.get("key_start", 0)
    ranges = _ranges(options["key_ranges"], sizes) if "key_ranges" in options else None
    if segments is not None and ranges is None and segments.key_order is None:
        ranges = segments.first, segments.last
    elif segments is not None:
        first, last = (np.array([[0]]), np.array([[sizes.keys]])) if ranges is None else ranges
        if segments.key_order is not None:  # reordering moves the padding away from the ends
            first = np.maximum(first, core.pop("key_start", np.array([0]))[:, None])
            last = np.minimum(last, core.pop("key_stop", np.array([sizes.keys]))[:, None])
        ranges = segments.limited(first, last)
    if ranges is not None:
        order = None if segments is None else segments.query_order
        core["range_first"], core["range_last"] = (in_order(end, order, 1) for end in ranges)
    return core


def _ranges(ranges: object, sizes: Sizes) -> tuple[_Integers, _Integers]:
    """Return the start and the stop of the key range of each query, each of shape (batch or 1, queries)."""
    array = _check.integers("key_ranges", ranges)
    check_ranges_shape(array.shape, sizes)
    if array.size and not 0 <= array.min() <= array.max() <= sizes.keys:
        wrong = array.min() if array.min() < 0 else array.max()
        raise ValueError(f"key_ranges must be between 0 and the {sizes.keys} keys, got {wrong}")
    first, last = np.ascontiguousarray(np.moveaxis(array[None] if array.ndim == 2 else array, -1, 0), np.int64)
    if (first > last).any():
        row, query = np.argwhere(first > last)[0]
        ends = f"{first[row, query]} to {last[row, query]}"
        raise ValueError(f"key_ranges must not end before they begin, as that of query {query} does, {ends}")
    return first, last
