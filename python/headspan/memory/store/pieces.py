"""The ordered records of a store: full pieces, and a tail of shorter records that become a piece."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headspan.memory.store.records import PIECE, Rows, Sizes, decode, encode, rows_of

SIZES = b"\xff sizes"  # the key of the sizes, which sorts after the keys of all records


class Pieces:
    """Reads and writes the records of a database within its transactions.

    The key of a record is the number of its first row. Each record begins where the previous one ends.
    """

    def __init__(self, sizes: Sizes, path: Path) -> None:
        self._sizes, self._path = sizes, path
        self._verified: set[int] = set()  # first rows of full pieces, which never change

    def count(self, transaction: Any) -> int:
        """Return the number of rows, which is where the last record ends."""
        cursor = transaction.cursor()
        if not (cursor.set_key(SIZES) and cursor.prev()):
            return 0
        return _first(cursor.key()) + rows_of(self._sizes, cursor.value())

    def between(self, transaction: Any, first: int, last: int) -> Iterator[tuple[int, *Rows]]:
        """Yield the first row, and views of keys and values, of each record with rows from `first` to `last`."""
        begin = first - first % PIECE
        cursor = transaction.cursor()
        has_record = begin < last and cursor.set_range(_key(begin))
        while begin < last:
            if not has_record or cursor.key() == SIZES or _first(cursor.key()) != begin:
                raise OSError(f"rows from {begin} on are damaged in the store at {self._path}: a record is missing")
            record = cursor.value()
            end = begin + rows_of(self._sizes, record)
            if end > first or end == begin:  # decode only wanted rows; an empty record is damaged
                yield begin, *self._decoded(begin, record)
            begin, has_record = end, cursor.next()

    def gather(self, transaction: Any, rows: npt.NDArray[np.int64], into: Rows) -> None:
        """Copy rows with ascending numbers into arrays, and read only the records that contain them."""
        for piece in np.unique(rows // PIECE):
            numbers = rows[slice(*np.searchsorted(rows, [piece * PIECE, (piece + 1) * PIECE]))]
            for begin, *parts in self.between(transaction, int(numbers[0]), int(numbers[-1]) + 1):
                chosen = slice(*np.searchsorted(rows, [begin, begin + parts[0].shape[1]]))
                for target, part in zip(into, parts, strict=True):
                    target[:, chosen] = part[:, rows[chosen] - begin]

    def _decoded(self, first: int, record: memoryview) -> Rows:
        rows = decode(self._sizes, first, record, verify=first not in self._verified)
        if rows is None:
            last = first + max(rows_of(self._sizes, record), 1) - 1
            raise OSError(f"rows {first} to {last} are damaged in the store at {self._path}: their checksum is wrong")
        if rows[0].shape[1] == PIECE:
            self._verified.add(first)
        return rows

    def add(self, transaction: Any, new: Rows) -> None:
        """Append rows, and merge them with short records at the end.

        A record is merged if it is less than twice as long as the rows after it, so that there are never more than
        about a dozen short records and a row is copied about a dozen times. A full piece merges all its records.
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
        # The views that were read are valid until the first write.
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
    """Return the key of a record. Keys sort in the order of the rows."""
    return first.to_bytes(8, "big")


def _first(key: memoryview) -> int:
    return int.from_bytes(key, "big")
