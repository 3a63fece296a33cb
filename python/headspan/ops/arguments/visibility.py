"""Who may see whom beyond causality, span and pattern: positions, padding, a prefix, ranges and documents."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan.ops.arguments.sizes import Sizes

_Reals = npt.NDArray[np.float64]
_Integers = npt.NDArray[np.int64]


class Positions(NamedTuple):
    """Where queries and keys stand, each of shape (batch or 1, tokens)."""

    query: _Reals
    key: _Reals

    def furthest(self) -> float:
        """Beyond every distance."""
        ends = [end for array in self if array.size for end in (array.min(), array.max())]
        return 2.0 * float(max(ends) - min(ends)) + 1.0 if ends else 1.0


def positions(query_given: object, key_given: object, sizes: Sizes) -> Positions:
    """Return positions of queries and keys of which one at least is given."""
    queries, keys = sizes.queries, sizes.keys
    key_array = np.arange(keys) if key_given is None else _check.real_array("key_positions", key_given)
    if query_given is not None:
        query_array = _check.real_array("query_positions", query_given)
        query_array, key_array = _from_zero(query_array, key_array)
        key = _positions("key_positions", key_array, keys, sizes)
        return Positions(_positions("query_positions", query_array, queries, sizes), key)
    (key_array,) = _from_zero(key_array)
    key = _positions("key_positions", key_array, keys, sizes)
    if queries > keys:
        raise ValueError(
            f"key_positions need query_positions beside them for more queries than keys, {queries} and {keys}"
        )
    return Positions(np.ascontiguousarray(key[:, keys - queries :]), key)


def _from_zero(*arrays: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    """Let integers count from the least of them: times in nanoseconds are more than a float can tell apart."""
    filled = [array for array in arrays if array.size]
    if not filled or any(array.dtype.kind == "f" for array in filled):
        return list(arrays)
    least, most = min(int(array.min()) for array in filled), max(int(array.max()) for array in filled)
    if most - least > 2**53:
        raise ValueError(f"positions must be within 2**53 of each other, not {least} and {most}")
    if most >= 2**63:
        raise ValueError(f"positions must be less than 2**63, not {most}")
    return [array.astype(np.int64) - least for array in arrays]


def _positions(name: str, given: npt.NDArray[Any], tokens: int, sizes: Sizes) -> _Reals:
    array = per_token(name, given, tokens, sizes).astype(np.float64)
    falls = np.diff(array, axis=1) < 0
    if falls.any():
        raise ValueError(f"{name} must not decrease, but does after token {np.argwhere(falls)[0, 1]}")
    return np.ascontiguousarray(array)


def per_token(name: str, array: npt.NDArray[Any], tokens: int, sizes: Sizes) -> npt.NDArray[Any]:
    """Bring an array of shape (tokens,) or (batch, tokens) to (batch or 1, tokens)."""
    forms = [(tokens,)] + ([(sizes.batch, tokens)] if sizes.ndim == 4 else [])
    if not any(array.ndim == len(form) and _check.may_be_shared(array.shape, form) for form in forms):
        raise ValueError(f"{name} must be of shape {' or '.join(map(str, forms))}, not of shape {array.shape}")
    return array.reshape(-1, tokens) if array.ndim == 1 else array


def key_counts(name: str, given: object, sizes: Sizes) -> _Integers:
    """Return a number of keys for every batch item."""
    array = _check.as_array(name, given)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers, not {array.dtype}")
    batch, keys = sizes.batch, sizes.keys
    if array.shape not in ((), (1,), (batch,)):
        raise ValueError(f"{name} must be a number or of shape ({batch},), not of shape {array.shape}")
    if array.size and not 0 <= array.min() <= array.max() <= keys:
        wrong = array.min() if array.min() < 0 else array.max()
        raise ValueError(f"{name} must lie between 0 and the {keys} keys, not be {wrong}")
    return np.ascontiguousarray(array, dtype=np.int64).reshape(-1)


def limits(given: Mapping[str, Any], sizes: Sizes) -> dict[str, _Integers]:
    """Return what the core gets of padding, a prefix, ranges and documents."""
    found = {name: key_counts(name, given[name], sizes) for name in ("key_begin", "key_lengths") if name in given}
    if "prefix_lengths" in given:
        if "segment_ids" in given:
            raise ValueError("prefix_lengths cannot be combined with segment_ids, which have many beginnings")
        found["prefix_end"] = key_counts("prefix_lengths", given["prefix_lengths"], sizes) + found.get("key_begin", 0)
    ranges = [_ranges(given["key_ranges"], sizes)] if "key_ranges" in given else []
    if "segment_ids" in given:
        ranges.append(_segments(given["segment_ids"], sizes))
    if ranges:
        firsts, lasts = zip(*ranges, strict=True)
        found["range_first"], found["range_last"] = reduce(np.maximum, firsts), reduce(np.minimum, lasts)
    return found


def _ranges(given: object, sizes: Sizes) -> tuple[_Integers, _Integers]:
    """Return the first key of each query and where its keys end, each of shape (batch or 1, queries)."""
    array = _check.as_array("key_ranges", given)
    if array.dtype.kind not in "iu":
        raise TypeError(f"key_ranges must be integers, not {array.dtype}")
    forms = [(sizes.queries, 2)] + ([(sizes.batch, sizes.queries, 2)] if sizes.ndim == 4 else [])
    if array.shape not in forms and not (sizes.ndim == 4 and array.shape == (1, *forms[0])):
        raise ValueError(f"key_ranges must be of shape {' or '.join(map(str, forms))}, not of shape {array.shape}")
    if array.size and not 0 <= array.min() <= array.max() <= sizes.keys:
        wrong = array.min() if array.min() < 0 else array.max()
        raise ValueError(f"key_ranges must lie between 0 and the {sizes.keys} keys, not hold {wrong}")
    first, last = np.ascontiguousarray(np.moveaxis(array, -1, 0), np.int64).reshape(2, -1, sizes.queries)
    if (first > last).any():
        row, query = np.argwhere(first > last)[0]
        its = f"{first[row, query]} to {last[row, query]}"
        raise ValueError(f"key_ranges must not end before they begin, as that of query {query} does, {its}")
    return first, last


def _segments(given: object, sizes: Sizes) -> tuple[_Integers, _Integers]:
    """Return where the document of each query starts and ends, each of shape (batch or 1, queries)."""
    array = _check.as_array("segment_ids", given)
    if array.dtype.kind not in "iu":
        raise TypeError(f"segment_ids must be integers, not {array.dtype}")
    queries, keys = sizes.queries, sizes.keys
    if queries > keys:
        raise ValueError(f"segment_ids must have a key for every query, not {queries} queries and {keys} keys")
    ids = per_token("segment_ids", array, keys, sizes)
    first, last = np.empty(ids.shape, np.int64), np.empty(ids.shape, np.int64)
    for row in range(len(ids)):
        starts = np.flatnonzero(np.r_[True, ids[row, 1:] != ids[row, :-1]])
        _, seen = np.unique(ids[row, starts], return_index=True)
        if seen.size < starts.size:
            again = starts[np.setdiff1d(np.arange(starts.size), seen)[0]]
            raise ValueError(f"segment_ids must be contiguous, but {ids[row, again]} comes back at token {again}")
        lengths = np.diff(np.r_[starts, keys])
        first[row], last[row] = np.repeat(starts, lengths), np.repeat(starts + lengths, lengths)
    return np.ascontiguousarray(first[:, keys - queries :]), np.ascontiguousarray(last[:, keys - queries :])
