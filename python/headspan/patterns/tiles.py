"""The tiles of a mask, in the form of the core, and how each form of a mask is divided into tiles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan.patterns.blocks import Blocks

SIDE = 64  # queries and keys of a tile, as in the core
Integers = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Rows(NamedTuple):
    """64 queries of a mask.

    Attributes
    ----------
    columns : ndarray
        The tiles that may have a pair, ascending.
    allowed : ndarray, shape (64, tiles, 64)
    """

    columns: Integers
    allowed: Bools


class Tiles(NamedTuple):
    """The tiles of a mask that have a pair, row by row, as the core takes them.

    Attributes
    ----------
    first_row : int
        The row of tiles of the first of `indptr`. Tiles are counted from the query that meets the first key.
    indptr, columns : ndarray
        Of each row its tiles, ascending, as in CSR format.
    places : ndarray
        Of each tile its index in `words`, or -1 for a tile that is full.
    words : ndarray, shape (partial tiles, 64)
        For each key of a tile the queries that see it, as bits.
    """

    first_row: int
    indptr: Integers
    columns: Integers
    places: Integers
    words: Integers

    def numbers(self) -> Integers:
        """Return all numbers in the order of the core."""
        head = np.array([self.first_row, len(self.indptr) - 1])
        return np.concatenate([head, self.indptr, self.columns, self.places, self.words.ravel()])

    @classmethod
    def from_numbers(cls, numbers: Integers) -> Tiles:
        """Return the tiles that `numbers` returned."""
        rows = int(numbers[1])
        indptr, rest = numbers[2 : 3 + rows], numbers[3 + rows :]
        tiles = int(indptr[-1])
        return cls(int(numbers[0]), indptr, rest[:tiles], rest[tiles : 2 * tiles], rest[2 * tiles :].reshape(-1, SIDE))

    def contain(self, index: Integers, key: Integers) -> Bools:
        """Return whether pairs exist, by the index of their query among the keys and by their key."""
        columns = max(int(self.columns.max(initial=0)), int(key.max(initial=0)) // SIDE) + 1
        rows = np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))
        numbers = rows * columns + self.columns
        wanted = (index // SIDE - self.first_row) * columns + key // SIDE
        tile = np.minimum(np.searchsorted(numbers, wanted), max(len(numbers) - 1, 0))
        if not len(numbers):
            return np.zeros(len(key), np.bool_)
        place = self.places[tile]
        bits = self.words[place, key % SIDE] >> index % SIDE if len(self.words) else np.zeros(len(key), np.int64)
        exists: Bools = (numbers[tile] == wanted) & ((place < 0) | (bits & 1 == 1))
        return exists

    def rows_of(self, row: int) -> Rows:
        """Return the 64 queries of a row of tiles."""
        number = row - self.first_row
        if not 0 <= number < len(self.indptr) - 1:
            return Rows(self.columns[:0], np.zeros((SIDE, 0, SIDE), np.bool_))
        part = slice(*self.indptr[number : number + 2])
        places = self.places[part]
        allowed = np.ones((SIDE, len(places), SIDE), np.bool_)
        some = places >= 0
        bits = np.unpackbits(self.words[places[some]][..., None].view(np.uint8), axis=-1, bitorder="little")
        allowed[:, some] = bits.transpose(2, 0, 1)
        return Rows(self.columns[part], allowed)

    @property
    def looks_ahead(self) -> bool:
        """Whether some query sees a key after its own."""
        rows = self.first_row + np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))
        if (self.columns > rows).any():
            return True
        on_diagonal = self.places[self.columns == rows]
        earlier = np.array([(1 << key) - 1 for key in range(SIDE)], np.uint64)  # the queries before a key
        ahead = self.words[on_diagonal].view(np.uint64) & earlier
        return bool(ahead.any())


class Grid(NamedTuple):
    """The division into tiles of a mask with some numbers of queries and keys; the last query meets the last key."""

    queries: int
    keys: int

    @property
    def shift(self) -> int:
        return self.keys - self.queries

    @property
    def rows(self) -> range:
        return range(self.shift // SIDE, -(-self.keys // SIDE))

    @property
    def columns(self) -> int:
        return -(-self.keys // SIDE)

    def queries_of(self, row: int) -> tuple[int, int]:
        """Return the first query of a row of tiles, and the one after the last."""
        first = row * SIDE - self.shift
        return max(first, 0), min(first + SIDE, self.queries)

    def lanes_of(self, row: int) -> slice:
        """Return the places of these queries among the 64 of the row."""
        first, last = self.queries_of(row)
        start = row * SIDE - self.shift
        return slice(first - start, last - start)

    def keys_of(self, columns: Integers) -> Integers:
        """Return the keys of tiles, in the last one also those beyond the last key of the mask."""
        return (columns[:, None] * SIDE + np.arange(SIDE)).ravel()

    def padded(self, row: int, some: Bools) -> Rows:
        """Return the rows of a dense mask with False for queries and keys that do not exist."""
        padded = np.zeros((SIDE, self.columns * SIDE), np.bool_)
        padded[self.lanes_of(row), : self.keys] = some
        return Rows(np.arange(self.columns), padded.reshape(SIDE, self.columns, SIDE))

    def counts(self, row: int, columns: Integers) -> Integers:
        """Return the number of pairs of tiles that are full."""
        first, last = self.queries_of(row)
        return (last - first) * np.minimum(self.keys - columns * SIDE, SIDE)


def gather(grid: Grid, rows_of: Callable[[int], Rows]) -> Tiles:
    """Gather the tiles of all rows that have a pair."""
    indptr, columns, places, words, partial = [0], [], [], [], 0
    for row in grid.rows:
        candidates, allowed = rows_of(row)
        count = np.count_nonzero(allowed, axis=(0, 2))
        some = count > 0
        # Tiles on the diagonal keep their bits, which tell whether a query sees later keys.
        full = (count[some] == grid.counts(row, candidates[some])) & (candidates[some] != row)
        bits = np.packbits(allowed[:, some][:, ~full].transpose(1, 2, 0), axis=-1, bitorder="little")
        columns.append(candidates[some])
        places.append(np.where(full, -1, partial + np.cumsum(~full) - 1))
        words.append(np.ascontiguousarray(bits).view("<i8")[..., 0].astype(np.int64))
        partial += len(bits)
        indptr.append(indptr[-1] + len(full))
    return Tiles(grid.rows.start, np.array(indptr), *(np.concatenate(parts) for parts in (columns, places, words)))


def of_dense(allowed: Bools) -> Tiles:
    """Return the tiles of a mask of shape (queries, keys)."""
    grid = Grid(*allowed.shape)
    return gather(grid, lambda row: grid.padded(row, allowed[slice(*grid.queries_of(row))]))


def of_packed(packed: npt.NDArray[np.uint8], keys: int) -> Tiles:
    """Return the tiles of a mask whose rows are packed into bytes."""
    if packed.shape[1] != -(-keys // 8):
        raise ValueError(f"packed bits of {keys} keys must have {-(-keys // 8)} bytes a query, not {packed.shape[1]}")
    grid = Grid(len(packed), keys)

    def rows_of(row: int) -> Rows:
        some = np.unpackbits(packed[slice(*grid.queries_of(row))], axis=1, count=keys)
        return grid.padded(row, some.astype(np.bool_))

    return gather(grid, rows_of)


def of_sparse(matrix: Any) -> Tiles:
    """Return the tiles of the entries other than 0 of a sparse matrix of SciPy."""
    csr = matrix.tocsr()
    grid = Grid(*csr.shape)

    def rows_of(row: int) -> Rows:
        first, last = grid.queries_of(row)
        some = csr[first:last].tocoo()
        query, key = (np.asarray(index)[some.data != 0] for index in (some.row, some.col))
        columns, place = np.unique(key // SIDE, return_inverse=True)
        allowed = np.zeros((SIDE, len(columns), SIDE), np.bool_)
        allowed[grid.lanes_of(row).start + query, place, key % SIDE] = True
        return Rows(columns.astype(np.int64), allowed)

    return gather(grid, rows_of)


def of_function(function: Callable[[Any, Any], Any], grid: Grid, blocks: Blocks | None) -> Tiles:
    """Return the tiles of the pairs for which a function is true, within blocks if there are any."""

    def rows_of(row: int) -> Rows:
        first, last = grid.queries_of(row)
        columns = np.arange(grid.columns) if blocks is None else _columns_in(blocks, grid, first, last)
        allowed = np.zeros((SIDE, len(columns), SIDE), np.bool_)
        keys = grid.keys_of(columns)
        exist = keys < grid.keys
        if exist.any():
            query, key = np.arange(first, last)[:, None], keys[exist][None, :]
            answer = _check.as_array("the result of the function of Mask", function(query, key))
            if answer.dtype != np.bool_:
                raise TypeError(f"the function of Mask must return an array of bool, not of {answer.dtype}")
            try:
                answer = np.broadcast_to(answer, (last - first, int(exist.sum())))
            except ValueError:
                raise ValueError(
                    "the result of the function of Mask must have the shape of its arguments together, "
                    f"{(last - first, int(exist.sum()))}, not {answer.shape}"
                ) from None
            allowed.reshape(SIDE, -1)[grid.lanes_of(row), exist] = answer
        if blocks is not None:
            allowed &= _inside(blocks, grid, row, keys).reshape(SIDE, len(columns), SIDE)
        return Rows(columns, allowed)

    return gather(grid, rows_of)


def _block_rows(blocks: Blocks, grid: Grid, first: int, last: int) -> Iterator[tuple[slice, Integers]]:
    """Yield the queries of each row of blocks, as a slice of first to last - 1, with the blocks of keys of the row."""
    (rows,), side = blocks.rows[0], blocks.sides[0]
    of_query = (np.arange(first, last) + grid.shift) // side
    starts = np.append(np.flatnonzero(np.diff(of_query, prepend=-1)), last - first)
    for begin, end in pairwise(starts):
        row = int(of_query[begin]) - rows.before
        columns = rows.indices[rows.indptr[row] : rows.indptr[row + 1]] if row >= 0 else rows.indices[:0]
        yield slice(begin, end), columns


def _columns_in(blocks: Blocks, grid: Grid, first: int, last: int) -> Integers:
    """Return the columns of tiles in which blocks have a pair of these queries."""
    side, columns = blocks.sides[1], [np.empty(0, np.int64)]
    for _, of_row in _block_rows(blocks, grid, first, last):
        begin, end = of_row * side // SIDE, (np.minimum((of_row + 1) * side, grid.keys) - 1) // SIDE
        columns += [np.arange(one, other + 1) for one, other in zip(begin, end, strict=True)]
    return np.unique(np.concatenate(columns))


def _inside(blocks: Blocks, grid: Grid, row: int, keys: Integers) -> Bools:
    """Return which pairs of 64 queries and some keys are in blocks."""
    inside = np.zeros((SIDE, len(keys)), np.bool_)
    of_queries = inside[grid.lanes_of(row)]
    for queries, columns in _block_rows(blocks, grid, *grid.queries_of(row)):
        of_queries[queries] = np.isin(keys // blocks.sides[1], columns)
    return inside
