"""The rows of a cache: for each key head a ring of the last ones, and those that are kept for good, or pages of all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from headspan import _core
from headspan._check import Array
from headspan.cache.pages import Pages
from headspan.ops.reach import UNLIMITED
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
        Of each key head; the last rows are those of the kept tokens. Heads without limit have none, but pages.
    kept : list of int
        Tokens that are kept for good.
    core : _core.KeyCache
        The same as the core takes it.
    """

    def __init__(
        self, batch: int, dims: tuple[int, int], storage: Storage, capacities: Sequence[int], kept: list[int]
    ) -> None:
        self.kept, self._storage = kept, storage
        self._elements = (storage.elements(dims[0]), storage.elements(dims[1]))
        self._capacities = list(capacities)
        lengths = [its if its <= _AT_ONCE else _FIRST_ROWS for its in capacities]
        self._restore(*self._new_rows(batch, capacities, lengths), 0, [0] * len(lengths))

    @property
    def count(self) -> int:
        """Tokens so far."""
        return self.core.count

    @property
    def first(self) -> list[int]:
        """The oldest token that each head still has."""
        return self.core.first

    @property
    def nbytes(self) -> int:
        """Memory of all rows."""
        return sum(array.nbytes for array in (*self.keys, *self.values)) + self._pages.nbytes

    def state(self) -> tuple[_Arrays, _Arrays]:
        """Return copies of all rows, keys and values of each head."""
        paged = {head: self._pages.rows(i, self.count) for i, head in enumerate(_paged(self._capacities))}
        each = [paged.get(head, rows) for head, rows in enumerate(zip(self.keys, self.values, strict=True))]
        return [key.copy() for key, _ in each], [value.copy() for _, value in each]

    def load(self, keys: Sequence[Array], values: Sequence[Array], count: int, first: Sequence[int]) -> None:
        """Go on from what `state`, `count` and `first` were."""
        batch, paged = len(keys[0]), _paged(self._capacities)
        pages = Pages(batch, len(paged), self._elements, self._storage.element)
        pages.reserve(count)
        for i, head in enumerate(paged):
            pages.write(i, keys[head], values[head])
        keys, values = (
            [np.array(its[:, :0] if head in paged else its) for head, its in enumerate(part)] for part in (keys, values)
        )
        self._restore(keys, values, pages, count, first)

    def encoded(self, rows: Array) -> npt.NDArray[Any]:
        """Bring keys or values, (batch, key heads, tokens, dims), to the form in which they are kept."""
        return rows if self._storage.stored == "same" else self.core.encoded(rows)

    def append(self, key: npt.NDArray[Any], value: npt.NDArray[Any]) -> None:
        """Add tokens, (batch, key heads, tokens, ...), encoded."""
        count = self.count + key.shape[2]
        lengths = self._lengths()
        wanted = [
            length if capacity > UNLIMITED or length >= min(count, capacity) else min(max(count, 2 * length), capacity)
            for length, capacity in zip(lengths, self._capacities, strict=True)
        ]
        if wanted != lengths:
            self._move(self._capacities, wanted)
        if self._pages.reserve(count):
            self._restore(self.keys, self.values, self._pages, self.count, self.first)
        self.core.append(key, value)

    def shorten(self, capacities: Sequence[int]) -> None:
        """Keep fewer rows from now on, where there are more."""
        capacities = [min(after, before) for after, before in zip(capacities, self._capacities, strict=True)]
        if capacities == self._capacities:
            return
        lengths = [
            min(capacity, max(self.count, _FIRST_ROWS) if before > UNLIMITED else length)
            for capacity, before, length in zip(capacities, self._capacities, self._lengths(), strict=True)
        ]
        self._move(capacities, lengths)
        self._capacities = capacities

    def truncate(self, count: int) -> None:
        """Forget all tokens but so many."""
        self.core.truncate(count)
        if self._pages.heads:
            self._pages.truncate(count)
            self._restore(self.keys, self.values, self._pages, count, self.first)

    def reorder(self, items: npt.NDArray[Any]) -> None:
        """Take the rows of batch item ``items[i]`` for item i."""
        keys, values = ([array[items] for array in arrays] for arrays in (self.keys, self.values))
        self._pages.reorder(items, self.count)
        self._restore(keys, values, self._pages, self.count, self.first)

    def _restore(self, keys: _Arrays, values: _Arrays, pages: Pages, count: int, first: Sequence[int]) -> None:
        self.core = _core.KeyCache(keys, values, pages.core, self.kept, count, first, self._storage.stored)
        self.keys, self.values, self._pages = keys, values, pages

    def _lengths(self) -> list[int]:
        """Return how many rows each ring has; 0 for heads with pages."""
        return [max(keys.shape[1] - len(self.kept), 0) for keys in self.keys]

    def _move(self, capacities: Sequence[int], lengths: Sequence[int]) -> None:
        """Bring what is there into rings of other lengths, and of pages what is there no limit for."""
        count, first = self.count, self.first
        keys, values, pages = self._new_rows(self.keys[0].shape[0], capacities, lengths)
        before, after = _paged(self._capacities), _paged(capacities)
        if before == after:
            pages = self._pages
        pages.reserve(count)
        for head, (new, old) in enumerate(zip(lengths, self._lengths(), strict=True)):
            if head in before:
                own = self._pages.rows(before.index(head), count)
                if head in after:
                    if before != after:
                        pages.write(after.index(head), *own)
                    continue
            else:
                own = (self.keys[head], self.values[head])
            first[head] = max(first[head], count - new)
            rows = np.arange(first[head], count)
            there = [token for token in self.kept if token < count]
            kept = there if head in before else old + np.arange(len(there))
            for to, its in zip((keys[head], values[head]), own, strict=True):
                to[:, rows % new] = its[:, rows if head in before else rows % old]
                to[:, new : new + len(there)] = its[:, kept]
        self._restore(keys, values, pages, count, first)

    def _new_rows(
        self, batch: int, capacities: Sequence[int], lengths: Sequence[int]
    ) -> tuple[_Arrays, _Arrays, Pages]:
        """Return empty rows for rings of these lengths: one piece of memory, which may have large pages."""
        rows = [
            0 if capacity > UNLIMITED else length + len(self.kept)
            for capacity, length in zip(capacities, lengths, strict=True)
        ]
        shapes = [(batch, its, elements) for elements in self._elements for its in rows]
        ends = np.cumsum([0, *(math.prod(shape) for shape in shapes)])
        memory = np.zeros(ends[-1], self._storage.element)
        arrays = [memory[ends[i] : ends[i + 1]].reshape(shape) for i, shape in enumerate(shapes)]
        pages = Pages(batch, len(_paged(capacities)), self._elements, self._storage.element)
        return arrays[: len(rows)], arrays[len(rows) :], pages


def _paged(capacities: Sequence[int]) -> list[int]:
    """Return the heads that keep all tokens."""
    return [head for head, capacity in enumerate(capacities) if capacity > UNLIMITED]
