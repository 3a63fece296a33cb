"""The records of a store in their order: whole pieces, and a tail of shorter ones that become a piece."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headspan.store.records import PIECE, Rows, Sizes, decode, encode, rows_of

SIZES = b"\xff sizes"  # where they are kept, after the keys of all records


class Pieces:
    """What is in the transactions of a database, found and added to.

    A record lies under the number of its first row, and begins where the one before it ends.
    """

    def __init__(self, sizes: Sizes, path: Path) -> None:
        self._sizes, self._path = sizes, path
        self._verified: set[int] = set()  # the first rows of whole pieces, which never change

    def count(self, transaction: Any) -> int:
        """Count the rows, from where the last record ends."""
        cursor = transaction.cursor()
        if not (cursor.set_key(SIZES) and cursor.prev()):
            return 0
        return _first(cursor.key()) + rows_of(self._sizes, cursor.value())

    def between(self, transaction: Any, first: int, last: int) -> Iterator[tuple[int, *Rows]]:
        """Give the first row of each record that holds some of those asked for, and views of its keys and values."""
        begin = first - first % PIECE
        cursor = transaction.cursor()
        there = begin < last and cursor.set_range(_key(begin))
        while begin < last:
            if not there or cursor.key() == SIZES or _first(cursor.key()) != begin:
                raise OSError(f"rows from {begin} on are damaged in the store at {self._path}: a record is missing")
            record = cursor.value()
            end = begin + rows_of(self._sizes, record)
            if end > first or end == begin:  # what was not asked for may be damaged; what is no row is
                yield begin, *self._decoded(begin, record)
            begin, there = end, cursor.next()

    def gather(self, transaction: Any, rows: npt.NDArray[np.int64], into: Rows) -> None:
        """Copy chosen rows, whose numbers ascend, into arrays; other records than theirs are not read."""
        for piece in np.unique(rows // PIECE):
            own = rows[slice(*np.searchsorted(rows, [piece * PIECE, (piece + 1) * PIECE]))]
            for begin, *parts in self.between(transaction, int(own[0]), int(own[-1]) + 1):
                chosen = slice(*np.searchsorted(rows, [begin, begin + parts[0].shape[1]]))
                for whole, part in zip(into, parts, strict=True):
                    whole[:, chosen] = part[:, rows[chosen] - begin]

    def _decoded(self, first: int, record: memoryview) -> Rows:
        rows = decode(self._sizes, first, record, verify=first not in self._verified)
        if rows is None:
            last = first + max(rows_of(self._sizes, record), 1) - 1
            raise OSError(f"rows {first} to {last} are damaged in the store at {self._path}: they are not as written")
        if rows[0].shape[1] == PIECE:
            self._verified.add(first)
        return rows

    def add(self, transaction: Any, new: Rows) -> None:
        """Put rows behind the last ones, together with short records there.

        Those that are less than twice as long are taken along, so that there are never more than a dozen, and a row is
        copied about as often; and all of them, when their piece becomes whole.
        """
        count, tokens = self.count(transaction), new[0].shape[1]
        room = PIECE - count % PIECE
        begin, merged = count, list[Rows]()
        cursor = transaction.cursor()
        cursor.set_key(SIZES)
        while begin % PIECE and cursor.prev():
            first = _first(cursor.key())
            if tokens < room and begin - first >= 2 * (count + tokens - begin):
                break
            merged.insert(0, self._decoded(first, cursor.value()))
            begin = first
        # What was read is valid until something is written.
        joined = encode(self._sizes, begin, [*merged, _cut(new, 0, room)])
        first = begin
        for key, _ in merged:
            transaction.delete(_key(first))
            first += key.shape[1]
        transaction.put(_key(begin), joined)
        for first in range(count + room, count + tokens, PIECE):
            transaction.put(_key(first), encode(self._sizes, first, [_cut(new, first - count, PIECE)]))


def _cut(rows: Rows, first: int, count: int) -> Rows:
    key, value = rows
    return key[:, first : first + count], value[:, first : first + count]


def _key(first: int) -> bytes:
    """Return the key of a record; they lie in the order of the rows."""
    return first.to_bytes(8, "big")


def _first(key: memoryview) -> int:
    return int.from_bytes(key, "big")
