"""The rows of a cache. A key head has a ring buffer of its last tokens plus the kept tokens, or pages of all tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from headspan import _compiled
from headspan._check import Array
from headspan.cache.pages import Pages
from headspan.ops.reach import UNLIMITED
from headspan.ops.storage import Storage

# A ring of up to _AT_ONCE rows has its full length from the start, because untouched memory costs nothing. A longer
# ring starts with _FIRST_ROWS rows and grows with the text.
_AT_ONCE, _FIRST_ROWS = 1 << 16, 64
_Arrays = list[npt.NDArray[Any]]


class Rings:
    """The keys and values of all batch items and key heads.

    Attributes
    ----------
    keys, values : list of ndarray, shape (batch, rows, dims)
        The rows of each key head. The last rows are those of the kept tokens. Heads without a limit have pages instead.
    kept : list of int
        The tokens that are never dropped.
    core : _compiled.KeyCache
        The cache as an object of the core.
    """

    def __init__(
        self, batch: int, dims: tuple[int, int], storage: Storage, capacities: Sequence[int], kept: list[int]
    ) -> None:
        self.kept, self._storage = kept, storage
        self._elements = (storage.elements(dims[0]), storage.elements(dims[1]))
        self._capacities = list(capacities)
        lengths = [capacity if capacity <= _AT_ONCE else _FIRST_ROWS for capacity in capacities]
        self._restore(*self._new_rows(batch, capacities, lengths), 0, [0] * len(lengths))

    @property
    def count(self) -> int:
        """The number of tokens so far."""
        return self.core.count

    @property
    def first(self) -> list[int]:
        """The oldest token that each head still has."""
        return self.core.first

    @property
    def nbytes(self) -> int:
        """Memory of all rows, in bytes."""
        return sum(array.nbytes for array in (*self.keys, *self.values)) + self._pages.nbytes

    def state(self) -> tuple[_Arrays, _Arrays]:
        """Return copies of the keys and values of each head."""
        paged = {head: self._pages.rows(i, self.count) for i, head in enumerate(_paged(self._capacities))}
        heads = [paged.get(head, rows) for head, rows in enumerate(zip(self.keys, self.values, strict=True))]
        return [key.copy() for key, _ in heads], [value.copy() for _, value in heads]

    def load(self, keys: Sequence[Array], values: Sequence[Array], count: int, first: Sequence[int]) -> None:
        """Restore the rows that `state` returned, with their `count` and `first`."""
        batch, paged = len(keys[0]), _paged(self._capacities)
        pages = Pages(batch, len(paged), self._elements, self._storage.element)
        pages.reserve(count)
        for i, head in enumerate(paged):
            pages.write(i, keys[head], values[head])
        keys, values = (
            [np.array(array[:, :0] if head in paged else array) for head, array in enumerate(part)]
            for part in (keys, values)
        )
        self._restore(keys, values, pages, count, first)

    def encoded(self, rows: Array) -> npt.NDArray[Any]:
        """Convert keys or values, (batch, key heads, tokens, dims), to the form in which they are stored."""
        return rows if self._storage.stored == "same" else self.core.encoded(rows)

    def append(self, key: npt.NDArray[Any], value: npt.NDArray[Any]) -> None:
        """Add encoded tokens, (batch, key heads, tokens, ...)."""
        count = self.count + key.shape[2]
        lengths = self._lengths()
        needed = [
            length if capacity > UNLIMITED or length >= min(count, capacity) else min(max(count, 2 * length), capacity)
            for length, capacity in zip(lengths, self._capacities, strict=True)
        ]
        if needed != lengths:
            self._move(self._capacities, needed)
        if self._pages.reserve(count):
            self._restore(self.keys, self.values, self._pages, self.count, self.first)
        self.core.append(key, value)

    def shorten(self, capacities: Sequence[int]) -> None:
        """Reduce the capacities of heads that are larger than those in `capacities`."""
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
        """Drop all tokens after the first `count`."""
        self.core.truncate(count)
        if self._pages.heads:
            self._pages.truncate(count)
            self._restore(self.keys, self.values, self._pages, count, self.first)

    def reorder(self, items: npt.NDArray[Any]) -> None:
        """Replace the rows of batch item i by those of item ``items[i]``."""
        keys, values = ([array[items] for array in arrays] for arrays in (self.keys, self.values))
        self._pages.reorder(items, self.count)
        self._restore(keys, values, self._pages, self.count, self.first)

    def _restore(self, keys: _Arrays, values: _Arrays, pages: Pages, count: int, first: Sequence[int]) -> None:
        self.core = _compiled.KeyCache(keys, values, pages.core, self.kept, count, first, self._storage.stored)
        self.keys, self.values, self._pages = keys, values, pages

    def _lengths(self) -> list[int]:
        """Return the number of rows of each ring, 0 for heads with pages."""
        return [max(keys.shape[1] - len(self.kept), 0) for keys in self.keys]

    def _move(self, capacities: Sequence[int], lengths: Sequence[int]) -> None:
        """Move the rows into rings of other lengths, and into pages for heads without a limit."""
        count, first = self.count, self.first
        keys, values, pages = self._new_rows(self.keys[0].shape[0], capacities, lengths)
        before, after = _paged(self._capacities), _paged(capacities)
        if before == after:
            pages = self._pages
        pages.reserve(count)
        for head, (new, old) in enumerate(zip(lengths, self._lengths(), strict=True)):
            if head in before:
                sources = self._pages.rows(before.index(head), count)
                if head in after:
                    if before != after:
                        pages.write(after.index(head), *sources)
                    continue
            else:
                sources = (self.keys[head], self.values[head])
            first[head] = max(first[head], count - new)
            rows = np.arange(first[head], count)
            tokens = [token for token in self.kept if token < count]
            kept = tokens if head in before else old + np.arange(len(tokens))
            for target, source in zip((keys[head], values[head]), sources, strict=True):
                target[:, rows % new] = source[:, rows if head in before else rows % old]
                target[:, new : new + len(tokens)] = source[:, kept]
        self._restore(keys, values, pages, count, first)

    def _new_rows(
        self, batch: int, capacities: Sequence[int], lengths: Sequence[int]
    ) -> tuple[_Arrays, _Arrays, Pages]:
        """Return empty rows for rings of these lengths, in one allocation, which can then use huge pages."""
        rows = [
            0 if capacity > UNLIMITED else length + len(self.kept)
            for capacity, length in zip(capacities, lengths, strict=True)
        ]
        shapes = [(batch, count, elements) for elements in self._elements for count in rows]
        ends = np.cumsum([0, *(math.prod(shape) for shape in shapes)])
        memory = np.zeros(ends[-1], self._storage.element)
        arrays = [memory[ends[i] : ends[i + 1]].reshape(shape) for i, shape in enumerate(shapes)]
        pages = Pages(batch, len(_paged(capacities)), self._elements, self._storage.element)
        return arrays[: len(rows)], arrays[len(rows) :], pages


def _paged(capacities: Sequence[int]) -> list[int]:
    """Return the heads that keep all tokens."""
    return [head for head, capacity in enumerate(capacities) if capacity > UNLIMITED]
