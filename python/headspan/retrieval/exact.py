"""The keys with the largest products, found by going through all of them a piece at a time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headspan._check import Array

PIECE = 8192  # so many keys at a time,
_QUERIES = 256  # and queries: fewer, and a product is over before other threads have begun; more leave the caches

Indices = npt.NDArray[np.int64]


class Piece(NamedTuple):
    """Some keys.

    Attributes
    ----------
    first : int
        The number of the first one.
    keys : ndarray, shape (key heads, rows, head_dim)
    longest : ndarray, shape (key heads,)
        Lengths, which no key is longer than.
    """

    first: int
    keys: Array
    longest: npt.NDArray[np.float64]


def search(query: Array, pieces: Iterable[Piece], k: int, before: Indices) -> Indices:
    """Return the indices of the k keys with the largest products, the largest first; -1 where there are not so many.

    Equal products go to the key that comes first, and what is equal is a matter of the numbers alone: matrix products,
    whose last bits depend on threads and on where a pair stands, only say which keys come into question. These are
    multiplied again, in float64 and in one order.

    Parameters
    ----------
    query : ndarray, shape (key heads, queries, head_dim)
    pieces : iterable of Piece
        In their order.
    k : int
    before : ndarray of int, shape (queries,)
        Each query sees the keys whose number is less.
    """
    heads, queries, _ = query.shape
    room = _Room(query.dtype)
    cuts = [slice(first, first + _QUERIES) for first in range(0, queries, _QUERIES)]
    blocks = [[_Block(query[head, cut], k, before[cut], room) for cut in cuts] for head in range(heads)]
    for piece in pieces:
        for of_head, keys, longest in zip(blocks, piece.keys, piece.longest, strict=True):
            for block in of_head:
                block.meet(piece.first, keys, float(longest))
    found = np.empty((heads, queries, k), np.int64)
    for head, of_head in enumerate(blocks):
        for cut, block in zip(cuts, of_head, strict=True):
            found[head, cut] = block.result()
    return found


def longest(keys: Array) -> npt.NDArray[np.float64]:
    """Return the length of the longest key of each head."""
    return np.array([_lengths(its.astype(np.float64)).max(initial=0) for its in keys])


def together(queries: int) -> int:
    """Return how many keys make a piece for so many queries: more where a few queries are soon through with them."""
    return PIECE * max(_QUERIES // 16 // max(queries, 1), 1)


class _Room:
    """Where products are written, and which of them are large: new memory takes longer than the products do."""

    def __init__(self, dtype: np.dtype[np.floating]) -> None:
        self._products, self._large = np.empty(0, dtype), np.empty(0, np.bool_)

    def of(self, rows: int, columns: int) -> tuple[Array, npt.NDArray[np.bool_]]:
        size, shape = rows * columns, (rows, columns)
        if size > self._products.size:
            self._products, self._large = np.empty(size, self._products.dtype), np.empty(size, np.bool_)
        return self._products[:size].reshape(shape), self._large[:size].reshape(shape)


class _Block:
    """Some queries of a head, and the best keys so far: those of each query in the order of their numbers."""

    def __init__(self, query: Array, k: int, before: Indices, room: _Room) -> None:
        self._query, self._exact, self._k, self._before, self._room = query, query.astype(np.float64), k, before, room
        self._lengths, self._last = _lengths(self._exact), int(before.max(initial=0))
        self._best = np.full((len(query), k), -np.inf)
        self._index = np.full((len(query), k), -1, np.int64)
        self._waiting: list[tuple[Indices, Indices, npt.NDArray[np.float64]]] = []
        self._waits = 0

    def meet(self, first: int, keys: Array, longest: float) -> None:
        """Take what is better from some more keys, none longer than so much."""
        keys = keys[: max(self._last - first, 0)]
        if not keys.size or not self._k:
            return
        products, large = self._room.of(len(self._query), len(keys))
        np.matmul(self._query, keys.T, out=products)
        # How far a sum of d products may be off, in whatever order it was taken, twice, so that bounds may be rounded.
        off = (keys.shape[1] + 4) * np.finfo(keys.dtype).eps * self._lengths * longest
        seen = np.clip(self._before - first, 0, len(keys))
        if seen.min() < len(keys):
            products[np.arange(len(keys)) >= seen[:, None]] = -np.inf
        worst = self._best.min(axis=1)
        lowest = np.maximum(worst - off, np.finfo(keys.dtype).min)  # above what is not seen
        unfilled = np.isneginf(worst) & (seen >= self._k)
        if unfilled.any():
            at = len(keys) - self._k
            lowest[unfilled] = np.partition(products[unfilled], at, axis=1)[:, at] - 3 * off[unfilled]
        bound = lowest.astype(keys.dtype)
        bound[unfilled] = np.nextafter(bound[unfilled], -np.inf)  # those that are as large are among the best, too
        np.greater(products, bound[:, None], out=large)
        row, column = np.divmod(_nonzero(large), len(keys))
        self._waiting.append((row, column + first, self._again(row, keys, column)))
        self._waits += row.size
        if self._waits >= self._best.size or unfilled.any():
            self._take()

    def result(self) -> Indices:
        """Return the best keys of each query, the best first."""
        self._take()
        order = np.argsort(-self._best, axis=1, kind="stable")
        return np.take_along_axis(self._index, order, axis=1)

    def _again(self, row: Indices, keys: Array, column: Indices) -> npt.NDArray[np.float64]:
        """Multiply chosen pairs, a few at a time."""
        exact = np.empty(row.size)
        for begin in range(0, row.size, 1 << 14):
            part = slice(begin, begin + (1 << 14))
            exact[part] = np.einsum("nd,nd->n", self._exact[row[part]], keys[column[part]].astype(np.float64))
        return exact

    def _take(self) -> None:
        """Choose the best of those there were and of those that wait, which all have higher numbers."""
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
        self._best, self._index = (np.take_along_axis(its, chosen, axis=1) for its in (products, indices))


def _lengths(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    lengths: npt.NDArray[np.float64] = np.sqrt(np.einsum("nd,nd->n", rows, rows))
    return lengths


def _nonzero(large: npt.NDArray[np.bool_]) -> Indices:
    """Return where an array is true in few places, eight of which are looked at together."""
    if large.size % 8:
        return np.flatnonzero(large)
    eights = large.reshape(-1, 8)
    rows = np.flatnonzero(eights.view(np.uint64))
    row, column = np.nonzero(eights[rows])
    return rows[row] * 8 + column
