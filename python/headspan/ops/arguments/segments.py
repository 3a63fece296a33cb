"""Segments: a query sees the keys with its own id, which form a range once the keys are sorted by id."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan.ops.arguments.sizes import Sizes, per_token

Integers = npt.NDArray[np.int64]
Order = Integers | None
# The segments of queries and keys, the key range of each query, and whether ids of queries and of keys recur.
_Row = tuple[Integers, Integers, Integers, Integers, bool, bool]
_OPTIONS = frozenset(["segment_ids", "query_segments", "key_segments"])


class Segments:
    """The segments of queries and keys, for each batch item or shared by all.

    Attributes
    ----------
    names : str
        Names of the options with the segment ids, for error messages.
    query, key : ndarray of int64, shape (batch or 1, tokens)
        Index of the segment of each token, in order of first occurrence among the keys; -1 for queries without a key.
    first, last : ndarray of int64, shape (batch or 1, queries)
        The key range of each query, among the sorted keys.
    query_order, key_order : ndarray of int64, shape (batch or 1, tokens), or None
        Order that makes the tokens of each segment contiguous; None if they already are.
    """

    def __init__(self, names: str, rows: list[_Row]) -> None:
        self.names = names
        *arrays, query_pieces, key_pieces = zip(*rows, strict=True)
        self.query, self.key, self.first, self.last = map(np.stack, arrays)
        self.query_order = np.argsort(self.query, axis=1, kind="stable") if any(query_pieces) else None
        self.key_order = np.argsort(self.key, axis=1, kind="stable") if any(key_pieces) else None

    @classmethod
    def of_options(cls, options: Mapping[str, Any], sizes: Sizes) -> Segments | None:
        """Check the segment ids among the options; return None if there are none."""
        if _OPTIONS.isdisjoint(options):
            return None
        names = options.keys() & _OPTIONS
        if names == {"segment_ids"}:
            if sizes.queries > sizes.keys:
                raise ValueError(
                    f"segment_ids must have a key for every query, not {sizes.queries} queries and {sizes.keys} keys"
                )
            ids = _ids("segment_ids", options["segment_ids"], sizes.keys, sizes)
            before = sizes.keys - sizes.queries
            return cls("segment_ids", [_of_documents(row, before) or _of_row(row[before:], row) for row in ids])
        if "segment_ids" in names:
            raise ValueError(f"segment_ids are for queries and keys together, and cannot be combined with {min(names)}")
        if len(names) == 1:
            raise ValueError("query_segments and key_segments must be given together")
        query_ids = _ids("query_segments", options["query_segments"], sizes.queries, sizes)
        key_ids = _ids("key_segments", options["key_segments"], sizes.keys, sizes)
        rows = max(len(query_ids), len(key_ids))
        both = (np.broadcast_to(ids, (rows, ids.shape[1])) for ids in (query_ids, key_ids))
        return cls("query_segments and key_segments", [_of_row(*ids) for ids in zip(*both, strict=True)])

    @property
    def gathered(self) -> bool:
        """Whether tokens must be reordered."""
        return self.query_order is not None or self.key_order is not None

    @property
    def placed(self) -> bool:
        """Whether positions differ from the default of the core, which aligns the queries with the last keys."""
        if self.gathered or self.names == "segment_ids":
            return self.gathered
        queries, keys = self.query.shape[1], self.key.shape[1]
        aligned, before = self.matches
        return bool((aligned - before != np.arange(keys - queries, keys)).any())

    def limited(self, first: Integers, last: Integers) -> tuple[Integers, Integers]:
        """Return the ranges limited to keys from `first` to `last` in the original order; both (batch or 1, ...)."""
        if self.key_order is None:
            return np.maximum(self.first, first), np.minimum(self.last, last)
        # Sorted keys ascend by segment and then by index, so that limited ranges are still contiguous.
        step = self.key.shape[1] + 1
        rows = max(len(self.query), len(first), len(last))
        place, start = (
            np.broadcast_to(array, (rows, array.shape[1]))
            for array in (np.sort(self.key, axis=1) * step + self.key_order, self.query * step)
        )
        range_first, range_last = (
            np.stack([np.searchsorted(*row) for row in zip(place, start + end, strict=True)]) for end in (first, last)
        )
        return range_first, range_last

    @cached_property
    def matches(self) -> tuple[Integers, Integers]:
        """Return the key with which each query is aligned, and the number of tokens by which the query precedes it.

        The last query of a segment is aligned with its last key, the query before with the key before, and so on.
        Remaining queries precede the first key.
        """
        sorted_queries = np.sort(self.query, axis=1)
        place = np.argsort(np.argsort(self.query, axis=1, kind="stable"), axis=1)
        end = np.stack([np.searchsorted(*row, side="right") for row in zip(sorted_queries, self.query, strict=True)])
        key = self.last + place - end
        before = np.maximum(self.first - key, 0)
        key = np.minimum(key + before, self.key.shape[1] - 1)
        return key if self.key_order is None else np.take_along_axis(self.key_order, key, axis=1), before


def in_order(array: npt.NDArray[Any], order: Order, axis: int) -> npt.NDArray[Any]:
    """Reorder an array with leading batch axis along an axis of tokens; `order` has shape (batch or 1, tokens)."""
    if order is None or array.shape[axis] == 1 or array.strides[axis] == 0:  # all tokens share a value
        return array
    if len(order) == 1:
        ordered: npt.NDArray[Any] = np.take(array, order[0], axis)
        return ordered
    items = np.broadcast_to(array, (len(order), *array.shape[1:]))
    return np.stack([np.take(item, row, axis - 1) for item, row in zip(items, order, strict=True)])


def _ids(name: str, ids: object, tokens: int, sizes: Sizes) -> Integers:
    array = _check.integers(name, ids)
    array = per_token(name, array, tokens, sizes)
    if array.dtype == np.uint64 and array.size and array.max() >= 2**63:
        raise ValueError(f"{name} must be less than 2**63, got {array.max()}")
    return array.astype(np.int64, copy=False) if len(array) else np.zeros((1, tokens), np.int64)


def _runs(ids: Integers) -> tuple[Integers, Integers]:
    """Return the id and the length of each run of equal ids."""
    starts = np.flatnonzero(np.r_[True, ids[1:] != ids[:-1]][: ids.size])
    return ids[starts], np.diff(np.r_[starts, ids.size])


def _of_documents(ids: Integers, before: int) -> _Row | None:
    """Return the row for ids that do not recur, where the queries are the keys from `before` on; None if one recurs."""
    names, lengths = _runs(ids)
    if np.unique(names).size < names.size:
        return None
    number, last = np.repeat(np.arange(names.size), lengths), np.cumsum(lengths)
    query = number[before:]
    return query, number, (last - lengths)[query], last[query], False, False


def _of_row(query_ids: Integers, key_ids: Integers) -> _Row:
    (names, lengths), (query_names, query_lengths) = _runs(key_ids), _runs(query_ids)
    known, start, which = np.unique(names, return_index=True, return_inverse=True)
    number = np.argsort(np.argsort(start))[which]
    last = np.cumsum(np.bincount(number, lengths).astype(np.int64))
    first = np.r_[0, last[:-1]]
    at = np.minimum(np.searchsorted(known, query_names), known.size - 1)
    exists = known[at] == query_names
    segment = number[start[at]]
    columns = (np.where(exists, segment, -1), np.where(exists, first[segment], 0), np.where(exists, last[segment], 0))
    query, query_first, query_last = (np.repeat(each, query_lengths) for each in columns)
    in_pieces = np.unique(query_names).size < query_names.size, known.size < names.size
    return query, np.repeat(number, lengths), query_first, query_last, *in_pieces
