"""Exact search for the keys with the largest products, piece by piece through all keys."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headspan._check import Array

PIECE = 8192  # keys per matrix product
# Queries per matrix product. With fewer, a product ends before other threads start; with more, it leaves the caches.
_QUERIES = 256

Indices = npt.NDArray[np.int64]


class Piece(NamedTuple):
    """Some consecutive keys.

    Attributes
    ----------
    first : int
        The number of the first key.
    keys : ndarray, shape (key heads, rows, head_dim)
    longest : ndarray, shape (key heads,)
        An upper bound of the lengths of the keys of each head.
    """

    first: int
    keys: Array
    longest: npt.NDArray[np.float64]


def search(query: Array, pieces: Iterable[Piece], k: int, before: Indices) -> Indices:
    """Return the indices of the k keys with the largest products, the largest first, padded with -1.

    Ties go to the first key. The result depends only on the numbers: matrix products, whose last bits depend on threads
    and positions, only select candidates. Their products are computed again in float64 and in a fixed order.

    Parameters
    ----------
    query : ndarray, shape (key heads, queries, head_dim)
    pieces : iterable of Piece
        All keys, in ascending order.
    k : int
    before : ndarray of int, shape (queries,)
        Each query sees only keys whose number is less than its entry.
    """
    heads, queries, _ = query.shape
    room = _Room(query.dtype)
    cuts = [slice(first, first + _QUERIES) for first in range(0, queries, _QUERIES)]
    blocks = [[_Block(query[head, cut], k, before[cut], room) for cut in cuts] for head in range(heads)]
    for piece in pieces:
        for head_blocks, keys, longest in zip(blocks, piece.keys, piece.longest, strict=True):
            for block in head_blocks:
                block.meet(piece.first, keys, float(longest))
    indices = np.empty((heads, queries, k), np.int64)
    for head, head_blocks in enumerate(blocks):
        for cut, block in zip(cuts, head_blocks, strict=True):
            indices[head, cut] = block.result()
    return indices


def longest(keys: Array) -> npt.NDArray[np.float64]:
    """Return the length of the longest key of each head."""
    return np.array([_lengths(head_keys.astype(np.float64)).max(initial=0) for head_keys in keys])


def together(queries: int) -> int:
    """Return the number of keys of a piece, which is larger for a small number of queries."""
    return PIECE * max(_QUERIES // 16 // max(queries, 1), 1)


class _Room:
    """Reusable memory for products and their comparisons, since new memory takes longer than the products."""

    def __init__(self, dtype: np.dtype[np.floating]) -> None:
        self._products, self._large = np.empty(0, dtype), np.empty(0, np.bool_)

    def of(self, rows: int, columns: int) -> tuple[Array, npt.NDArray[np.bool_]]:
        size, shape = rows * columns, (rows, columns)
        if size > self._products.size:
            self._products, self._large = np.empty(size, self._products.dtype), np.empty(size, np.bool_)
        return self._products[:size].reshape(shape), self._large[:size].reshape(shape)


class _Block:
    """Some queries of a head and their best keys so far, in ascending order of key numbers."""

    def __init__(self, query: Array, k: int, before: Indices, room: _Room) -> None:
        self._query, self._exact, self._k, self._before, self._room = query, query.astype(np.float64), k, before, room
        self._lengths, self._last = _lengths(self._exact), int(before.max(initial=0))
        self._best = np.full((len(query), k), -np.inf)
        self._index = np.full((len(query), k), -1, np.int64)
        self._waiting: list[tuple[Indices, Indices, npt.NDArray[np.float64]]] = []
        self._waits = 0

    def meet(self, first: int, keys: Array, longest: float) -> None:
        """Collect the keys of a piece that may be among the best. No key is longer than `longest`."""
        keys = keys[: max(self._last - first, 0)]
        if not keys.size or not self._k:
            return
        products, large = self._room.of(len(self._query), len(keys))
        np.matmul(self._query, keys.T, out=products)
        # Twice the error bound of a sum of d products in any order, so that the bounds below may be rounded.
        off = (keys.shape[1] + 4) * np.finfo(keys.dtype).eps * self._lengths * longest
        limits = np.clip(self._before - first, 0, len(keys))
        if limits.min() < len(keys):
            products[np.arange(len(keys)) >= limits[:, None]] = -np.inf
        worst = self._best.min(axis=1)
        lowest = np.maximum(worst - off, np.finfo(keys.dtype).min)  # greater than the -inf of keys that are not seen
        unfilled = np.isneginf(worst) & (limits >= self._k)
        if unfilled.any():
            at = len(keys) - self._k
            lowest[unfilled] = np.partition(products[unfilled], at, axis=1)[:, at] - 3 * off[unfilled]
        bound = lowest.astype(keys.dtype)
        bound[unfilled] = np.nextafter(bound[unfilled], -np.inf)  # keep ties with the bound
        np.greater(products, bound[:, None], out=large)
        row, column = np.divmod(_nonzero(large), len(keys))
        self._waiting.append((row, column + first, self._again(row, keys, column)))
        self._waits += row.size
        if self._waits >= self._best.size or unfilled.any():
            self._take()

    def result(self) -> Indices:
        """Return the best keys of each query, the largest product first."""
        self._take()
        order = np.argsort(-self._best, axis=1, kind="stable")
        return np.take_along_axis(self._index, order, axis=1)

    def _again(self, row: Indices, keys: Array, column: Indices) -> npt.NDArray[np.float64]:
        """Compute the products of selected pairs again in float64, in small batches."""
        exact = np.empty(row.size)
        for begin in range(0, row.size, 1 << 14):
            part = slice(begin, begin + (1 << 14))
            exact[part] = np.einsum("nd,nd->n", self._exact[row[part]], keys[column[part]].astype(np.float64))
        return exact

    def _take(self) -> None:
        """Update the best keys with the waiting candidates, which all have higher numbers."""
        if not self._waits:
            return
        row, index, product = map(np.concatenate, zip(*self._waiting, strict=True))
        self._waiting, self._waits = [], 0
        order = np.argsort(row.astype(np.int16), kind="stable")
        counts = np.bincount(row, minlength=len(self._best))
        column = np.arange(row.size) - np.repeat(np.cumsum(counts) - counts, counts) + self._k
        shape = (len(self._best), self._k + int(counts.max()))
        products, indices = np.full(shape, -np.inf), np.full(shape, -1, np.int64)
        products[:, : self._k], indices[:, : self._k] = self._best, self._index
        products[row[order], column], indices[row[order], column] = product[order], index[order]
        chosen = np.sort(np.argsort(-products, axis=1, kind="stable")[:, : self._k], axis=1)
        self._best, self._index = (np.take_along_axis(array, chosen, axis=1) for array in (products, indices))


def _lengths(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    lengths: npt.NDArray[np.float64] = np.sqrt(np.einsum("nd,nd->n", rows, rows))
    return lengths


def _nonzero(large: npt.NDArray[np.bool_]) -> Indices:
    """Return the indices of the few true elements of an array, testing eight elements at a time."""
    if large.size % 8:
        return np.flatnonzero(large)
    eights = large.reshape(-1, 8)
    rows = np.flatnonzero(eights.view(np.uint64))
    row, column = np.nonzero(eights[rows])
    return rows[row] * 8 + column
