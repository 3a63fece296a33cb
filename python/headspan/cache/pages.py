"""Rows of key heads that keep all tokens, in pages: a text grows without a copy, and beams share what they share."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from headspan import _core
from headspan._check import Array

ROWS = _core.page_rows  # of a page


class Pages:
    """Pages of some key heads of all batch items.

    Attributes
    ----------
    keys, values : list of ndarray, shape (heads, pages, ROWS, elements)
        Slabs, in which pages lie one after another; they are counted over all slabs.
    table : ndarray, shape (batch, pages)
        Which pages the rows of each batch item lie in. Items may share whole pages; the last one is of one item alone.
    """

    def __init__(self, batch: int, heads: int, elements: tuple[int, int], dtype: np.dtype[Any]) -> None:
        self.heads, self._elements, self._dtype = heads, elements, dtype
        self.keys: list[npt.NDArray[Any]] = []
        self.values: list[npt.NDArray[Any]] = []
        self.table: npt.NDArray[np.int64] = np.zeros((batch, 0), np.int64)
        if heads:
            self.reserve(1)

    @property
    def core(self) -> _core.Pages:
        """The same as the core takes it."""
        return _core.Pages(self.keys, self.values, self.table)

    @property
    def nbytes(self) -> int:
        """Memory of all pages."""
        return sum(slab.nbytes for slab in (*self.keys, *self.values))

    def reserve(self, count: int) -> bool:
        """Have room for so many tokens; return whether there was none before."""
        batch, pages = self.table.shape
        more = -(-count // ROWS) - pages
        if not self.heads or more <= 0:
            return False
        self.table = np.concatenate([self.table, self._free(batch * more).reshape(batch, more)], axis=1)
        return True

    def reorder(self, items: npt.NDArray[Any], count: int) -> None:
        """Let item i go on from the ``count`` tokens of item ``items[i]``, whose whole pages it shares."""
        if self.heads:
            self._cut(self.table[items], count)

    def truncate(self, count: int) -> None:
        """Forget all tokens but so many."""
        if self.heads:
            self._cut(self.table, count)

    def rows(self, head: int, count: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return copies of the first keys and values of a head, (batch, count, elements)."""
        key, value = (np.concatenate([slab[head] for slab in slabs])[self.table] for slabs in (self.keys, self.values))
        batch = len(self.table)
        return (
            key.reshape(batch, -1, self._elements[0])[:, :count],
            value.reshape(batch, -1, self._elements[1])[:, :count],
        )

    def write(self, head: int, key: Array, value: Array) -> None:
        """Set the first rows of a head, for which there is room; (batch, count, elements)."""
        for slabs, rows in ((self.keys, key), (self.values, value)):
            for item, pages in enumerate(self.table):
                for i, first in enumerate(range(0, rows.shape[1], ROWS)):
                    part = rows[item, first : first + ROWS]
                    _page(slabs, pages[i])[head, : len(part)] = part

    def _cut(self, table: npt.NDArray[np.int64], count: int) -> None:
        """Keep the pages of so many tokens; the one that is written to next becomes each item's own."""
        last = count // ROWS
        table = table[:, : last + 1].copy()
        if table.shape[1] > last:
            _, first_users = np.unique(table[:, last], return_index=True)
            sharing = np.setdiff1d(np.arange(len(table)), first_users)
            own = self._free(len(sharing), used=table)
            for item, page in zip(sharing, own, strict=True):
                for slabs in (self.keys, self.values):
                    _page(slabs, page)[:] = _page(slabs, table[item, last])
            table[sharing, last] = own
        self.table = table

    def _free(self, count: int, used: npt.NDArray[np.int64] | None = None) -> npt.NDArray[np.int64]:
        """Return pages that nobody uses, of a new slab if there are too few: one that is larger, the more there are."""
        there = sum(slab.shape[1] for slab in self.keys)
        free = np.setdiff1d(np.arange(there), self.table if used is None else used)[:count]
        missing = count - len(free)
        if missing > 0:
            pages = max(missing, there // 8)
            shape = (self.heads, pages, ROWS)
            key, value = (np.zeros((*shape, elements), self._dtype) for elements in self._elements)
            self.keys, self.values = [*self.keys, key], [*self.values, value]
            free = np.concatenate([free, np.arange(there, there + missing)])
        return free


def _page(slabs: list[npt.NDArray[Any]], page: int) -> npt.NDArray[Any]:
    """Return a page of all heads, (heads, ROWS, elements)."""
    for slab in slabs:
        if page < slab.shape[1]:
            return slab[:, page]
        page -= slab.shape[1]
    raise IndexError(page)
