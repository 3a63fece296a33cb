"""Pages of rows, for key heads that keep all tokens: they grow without copies, and beams share pages."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from headspan import _compiled
from headspan._check import Array

ROWS = _compiled.page_rows  # per page


class Pages:
    """The pages of some key heads for all batch items.

    Attributes
    ----------
    keys, values : list of ndarray, shape (heads, pages, ROWS, elements)
        Slabs of pages. Page numbers count through all slabs.
    table : ndarray, shape (batch, pages)
        The pages of each batch item. Items may share full pages. The last page belongs to one item only.
    """

    def __init__(self, batch: int, heads: int, elements: tuple[int, int], dtype: np.dtype[Any]) -> None:
        self.heads, self._elements, self._dtype = heads, elements, dtype
        self.keys: list[npt.NDArray[Any]] = []
        self.values: list[npt.NDArray[Any]] = []
        self.table: npt.NDArray[np.int64] = np.zeros((batch, 0), np.int64)
        if heads:
            self.reserve(1)

    @property
    def core(self) -> _compiled.Pages:
        """The pages as an object of the core."""
        return _compiled.Pages(self.keys, self.values, self.table)

    @property
    def nbytes(self) -> int:
        """Memory of all pages, in bytes."""
        return sum(slab.nbytes for slab in (*self.keys, *self.values))

    def reserve(self, count: int) -> bool:
        """Make room for `count` tokens, and return whether new pages were needed."""
        batch, pages = self.table.shape
        missing = -(-count // ROWS) - pages
        if not self.heads or missing <= 0:
            return False
        self.table = np.concatenate([self.table, self._free(batch * missing).reshape(batch, missing)], axis=1)
        return True

    def reorder(self, items: npt.NDArray[Any], count: int) -> None:
        """Replace item i by the first `count` tokens of item ``items[i]``. Both share full pages."""
        if self.heads:
            self._cut(self.table[items], count)

    def truncate(self, count: int) -> None:
        """Drop all tokens after the first `count`."""
        if self.heads:
            self._cut(self.table, count)

    def rows(self, head: int, count: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return copies of the first `count` keys and values of a head, (batch, count, elements)."""
        key, value = (np.concatenate([slab[head] for slab in slabs])[self.table] for slabs in (self.keys, self.values))
        batch = len(self.table)
        return (
            key.reshape(batch, -1, self._elements[0])[:, :count],
            value.reshape(batch, -1, self._elements[1])[:, :count],
        )

    def write(self, head: int, key: Array, value: Array) -> None:
        """Write the first rows of a head, (batch, count, elements), into reserved pages."""
        for slabs, rows in ((self.keys, key), (self.values, value)):
            for item, pages in enumerate(self.table):
                for i, first in enumerate(range(0, rows.shape[1], ROWS)):
                    part = rows[item, first : first + ROWS]
                    _page(slabs, pages[i])[head, : len(part)] = part

    def _cut(self, table: npt.NDArray[np.int64], count: int) -> None:
        """Keep the pages of `count` tokens, and copy the page that is written next if items share it."""
        last = count // ROWS
        table = table[:, : last + 1].copy()
        if table.shape[1] > last:
            _, first_users = np.unique(table[:, last], return_index=True)
            sharing = np.setdiff1d(np.arange(len(table)), first_users)
            copies = self._free(len(sharing), used=table)
            for item, page in zip(sharing, copies, strict=True):
                for slabs in (self.keys, self.values):
                    _page(slabs, page)[:] = _page(slabs, table[item, last])
            table[sharing, last] = copies
        self.table = table

    def _free(self, count: int, used: npt.NDArray[np.int64] | None = None) -> npt.NDArray[np.int64]:
        """Return unused pages. If there are too few, add a slab whose size grows with the number of pages."""
        total = sum(slab.shape[1] for slab in self.keys)
        free = np.setdiff1d(np.arange(total), self.table if used is None else used)[:count]
        missing = count - len(free)
        if missing > 0:
            pages = max(missing, total // 8)
            shape = (self.heads, pages, ROWS)
            key, value = (np.zeros((*shape, elements), self._dtype) for elements in self._elements)
            self.keys, self.values = [*self.keys, key], [*self.values, value]
            free = np.concatenate([free, np.arange(total, total + missing)])
        return free


def _page(slabs: list[npt.NDArray[Any]], page: int) -> npt.NDArray[Any]:
    """Return a page of all heads, (heads, ROWS, elements)."""
    for slab in slabs:
        if page < slab.shape[1]:
            return slab[:, page]
        page -= slab.shape[1]
    raise IndexError(page)
