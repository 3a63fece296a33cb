"""The keys with the largest products, looked for in a few of many lists: an inverted file of faiss."""

from __future__ import annotations

from typing import Any

import numpy as np

from headspan._check import Array
from headspan.retrieval.exact import Indices

SAMPLE = 64  # keys a list that its centre is learned from


class InvertedFile:
    """Keys in lists around centres; a query looks into those whose centres have the largest products with it.

    Centres are learned once, of a sample; keys that are added later go to what centres there are.
    """

    def __init__(self, key_heads: int, head_dim: int, nlist: int, nprobe: int) -> None:
        try:
            import faiss
        except ImportError as error:
            raise ImportError("KeyIndex with nlist needs faiss: pip install 'headspan[faiss]'") from error
        self._faiss: Any = faiss
        self._nprobe, self.nlist = nprobe, nlist
        self._of_head = [
            faiss.IndexIVFFlat(faiss.IndexFlatIP(head_dim), head_dim, nlist, faiss.METRIC_INNER_PRODUCT)
            for _ in range(key_heads)
        ]
        for index in self._of_head:
            index.cp.min_points_per_centroid = 1  # fewer than it likes are no reason to write to the terminal

    def __len__(self) -> int:
        count: int = self._of_head[0].ntotal
        return count

    @property
    def is_trained(self) -> bool:
        """Whether it has its centres."""
        return all(index.is_trained for index in self._of_head)

    def train(self, sample: Array) -> None:
        """Learn the centres from keys, (key heads, rows, head_dim), at least as many rows as there are lists."""
        if sample.shape[1] < self.nlist:
            raise ValueError(
                f"nlist must be at most the number of the keys added first, {sample.shape[1]}, "
                f"from which the lists are learned, not {self.nlist}"
            )
        for index, keys in zip(self._of_head, sample, strict=True):
            index.train(np.ascontiguousarray(keys))

    def add(self, key: Array) -> None:
        """Put keys, (key heads, rows, head_dim), into the lists."""
        for index, keys in zip(self._of_head, key, strict=True):
            index.add(np.ascontiguousarray(keys))

    def search(self, query: Array, k: int, before: Indices) -> Indices:
        """Return the indices of the k keys that were found, as `exact.search` does."""
        heads, queries, _ = query.shape
        found = np.full((heads, queries, k), -1, np.int64)
        if not (k and len(self)):
            return found
        for limit in np.unique(before):  # those that see the same keys go together
            rows = np.flatnonzero(before == limit)
            for head, index in enumerate(self._of_head):
                found[head, rows] = index.search(query[head, rows], k, params=self._parameters(int(limit)))[1]
        return found

    def _parameters(self, limit: int) -> Any:
        only = {} if limit >= len(self) else {"sel": self._faiss.IDSelectorRange(0, limit)}
        return self._faiss.SearchParametersIVF(nprobe=self._nprobe, **only)
