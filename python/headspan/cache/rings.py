"""The rows of a cache: for each key head a ring of the last ones, and those that are kept for good."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from headspan import _core
from headspan._check import Array
from headspan.ops.storage import Storage

# A ring is as long as it has to be from the start, for memory that is not used yet costs nothing; beyond so many rows
# it begins with a few and grows with the text.
_AT_ONCE, _FIRST_ROWS = 1 << 16, 64
_Arrays = list[npt.NDArray[Any]]


class Rings:
    """Keys and values of all batch items and key heads.

    Attributes
    ----------
    keys, values : list of ndarray, shape (batch, rows, dims)
        Of each key head; the last rows are those of the kept tokens.
    kept : list of int
        Tokens that are kept for good.
    core : _core.KeyCache
        The same as the core takes it.
    """

    def __init__(
        self, batch: int, dims: tuple[int, int], storage: Storage, capacities: Sequence[int], kept: list[int]
    ) -> None:
        self.kept, self._storage = kept, storage
        self._capacities = list(capacities)
        self._dims = dims
        lengths = [its if its <= _AT_ONCE else _FIRST_ROWS for its in capacities]
        self.restore(*self._new_rows(batch, lengths), 0, [0] * len(lengths))

    @property
    def count(self) -> int:
        """Tokens so far."""
        return self.core.count

    @property
    def first(self) -> list[int]:
        """The oldest token that each ring still has."""
        return self.core.first

    @property
    def nbytes(self) -> int:
        """Memory of all rows."""
        return sum(array.nbytes for array in (*self.keys, *self.values))

    def restore(self, keys: _Arrays, values: _Arrays, count: int, first: Sequence[int]) -> None:
        """Go on from these."""
        self.core = _core.KeyCache(keys, values, self.kept, count, first, self._storage.stored)
        self.keys, self.values = keys, values

    def encoded(self, rows: Array) -> npt.NDArray[Any]:
        """Bring keys or values, (batch, key heads, tokens, dims), to the form in which they are kept."""
        return rows if self._storage.stored == "same" else self.core.encoded(rows)

    def append(self, key: npt.NDArray[Any], value: npt.NDArray[Any]) -> None:
        """Add tokens, (batch, key heads, tokens, ...), encoded."""
        count = self.count + key.shape[2]
        lengths = [self._length(head) for head in range(len(self.keys))]
        wanted = [
            min(max(count, 2 * length), capacity) if length < min(count, capacity) else length
            for length, capacity in zip(lengths, self._capacities, strict=True)
        ]
        if wanted != lengths:
            self._move(wanted)
        self.core.append(key, value)

    def shorten(self, capacities: Sequence[int]) -> None:
        """Keep fewer rows from now on."""
        self._move([min(capacity, self._length(head)) for head, capacity in enumerate(capacities)])
        self._capacities = list(capacities)

    def reorder(self, items: npt.NDArray[Any]) -> None:
        """Take the rows of batch item ``items[i]`` for item i."""
        keys, values = ([array[items] for array in arrays] for arrays in (self.keys, self.values))
        self.restore(keys, values, self.count, self.first)

    def _length(self, head: int) -> int:
        return int(self.keys[head].shape[1]) - len(self.kept)

    def _move(self, lengths: Sequence[int]) -> None:
        """Bring what is there into rings of other lengths."""
        count, first = self.count, self.first
        keys, values = self._new_rows(self.keys[0].shape[0], lengths)
        for head, new in enumerate(lengths):
            old, first[head] = self._length(head), max(first[head], count - new)
            rows = np.arange(first[head], count)
            for to, own in ((keys[head], self.keys[head]), (values[head], self.values[head])):
                to[:, rows % new] = own[:, rows % old]
                to[:, new:] = own[:, old:]
        self.restore(keys, values, count, first)

    def _new_rows(self, batch: int, lengths: Sequence[int]) -> tuple[_Arrays, _Arrays]:
        """Return empty rows for rings of these lengths: one piece of memory, which may have large pages."""
        shapes = [
            (batch, length + len(self.kept), self._storage.elements(dim)) for dim in self._dims for length in lengths
        ]
        ends = np.cumsum([0, *(math.prod(shape) for shape in shapes)])
        memory = np.zeros(ends[-1], self._storage.element)
        arrays = [memory[ends[i] : ends[i + 1]].reshape(shape) for i, shape in enumerate(shapes)]
        return arrays[: len(lengths)], arrays[len(lengths) :]
