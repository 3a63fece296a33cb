"""The keys with the largest products, looked for in a few of many lists: an inverted file of faiss."""

from __future__ import annotations

from typing import Any

import numpy as np

from headspan._check import Array
from headspan.retrieval.exact import Indices

SAMPLE = 64  # keys a list that its centre is learned from


class InvertedFile:
    """Keys in lists around centres; a query looks into those whose centres have the largest products with it.

    A key belongs to the nearest centre, and centres are means of keys, as long as these are. What faiss does by itself
    for products, centres of length 1 and each key with the one of the largest product, brings together keys that have
    little in common where their lengths differ: of 32 keys made of words it found 13 where this finds 31.
    """

    def __init__(self, key_heads: int, head_dim: int, nlist: int) -> None:
        try:
            import faiss
        except ImportError as error:
            raise ImportError("KeyIndex with nlist needs faiss: pip install 'headspan[faiss]'") from error
        self._faiss: Any = faiss
        self.nlist = nlist
        self._of_head = [
            faiss.IndexIVFFlat(faiss.IndexFlatIP(head_dim), head_dim, nlist, faiss.METRIC_INNER_PRODUCT)
            for _ in range(key_heads)
        ]
        self._nearest = [faiss.IndexFlatL2(head_dim) for _ in range(key_heads)]  # of the centres

    def __len__(self) -> int:
        count: int = self._of_head[0].ntotal
        return count

    @property
    def is_trained(self) -> bool:
        """Whether it has its centres."""
        return all(nearest.ntotal for nearest in self._nearest)

    def train(self, sample: Array) -> None:
        """Learn the centres from keys, (key heads, rows, head_dim), at least as many rows as there are lists."""
        if sample.shape[1] < self.nlist:
            raise ValueError(
                f"nlist must be at most the number of the keys added first, {sample.shape[1]}, "
                f"from which the lists are learned, not {self.nlist}"
            )
        # Fewer keys than faiss likes are no reason to write to the terminal.
        options = {"max_points_per_centroid": SAMPLE, "min_points_per_centroid": 1, "seed": 1}
        for index, nearest, keys in zip(self._of_head, self._nearest, sample, strict=True):
            means = self._faiss.Kmeans(keys.shape[1], self.nlist, **options)
            means.train(np.ascontiguousarray(keys))
            nearest.add(means.centroids)
            index.quantizer.add(means.centroids)
            index.is_trained = True

    def add(self, key: Array) -> None:
        """Put keys, (key heads, rows, head_dim), into the lists."""
        pointer = self._faiss.swig_ptr
        for index, nearest, keys in zip(self._of_head, self._nearest, key, strict=True):
            rows = np.ascontiguousarray(keys)
            lists = nearest.search(rows, 1)[1].ravel()
            index.add_core(len(rows), pointer(rows), None, pointer(lists))

    def search(self, query: Array, k: int, before: Indices, nprobe: int) -> Indices:
        """Return the indices of the k keys that were found in so many lists, as `exact.search` does."""
        heads, queries, _ = query.shape
        found = np.full((heads, queries, k), -1, np.int64)
        if not (k and len(self)):
            return found
        for limit in np.unique(before):  # those that see the same keys go together
            rows = np.flatnonzero(before == limit)
            only = {} if limit >= len(self) else {"sel": self._faiss.IDSelectorRange(0, int(limit))}
            parameters = self._faiss.SearchParametersIVF(nprobe=nprobe, **only)
            for head, index in enumerate(self._of_head):
                found[head, rows] = index.search(query[head, rows], k, params=parameters)[1]
        return found
