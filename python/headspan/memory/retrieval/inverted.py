"""Approximate search for the keys with the largest products, in an inverted file of faiss."""

from __future__ import annotations

from typing import Any

import numpy as np

from headspan import _extra
from headspan._check import Array
from headspan.memory.retrieval.exact import Indices

SAMPLE = 64  # keys per list from which the centres are learned


class InvertedFile:
    """Lists of keys around centres. A query searches the lists whose centres have the largest products with it.

    The centres are means of keys without normalization, and each key belongs to the nearest centre. For products, faiss
    by default normalizes the centres to length 1 and assigns each key to the centre with the largest product, which
    mixes unrelated keys if their lengths differ. With keys made of words, that found 13 of 32, and this class 31.
    """

    def __init__(self, key_heads: int, head_dim: int, nlist: int) -> None:
        try:
            import faiss
        except ImportError as error:
            raise _extra.missing("KeyIndex with nlist", "faiss", "faiss", error.name) from error
        self._faiss: Any = faiss
        self.nlist = nlist
        self._indexes = [
            faiss.IndexIVFFlat(faiss.IndexFlatIP(head_dim), head_dim, nlist, faiss.METRIC_INNER_PRODUCT)
            for _ in range(key_heads)
        ]
        self._nearest = [faiss.IndexFlatL2(head_dim) for _ in range(key_heads)]  # indexes of the centres

    def __len__(self) -> int:
        count: int = self._indexes[0].ntotal
        return count

    @property
    def is_trained(self) -> bool:
        """Whether the centres are learned."""
        return all(nearest.ntotal for nearest in self._nearest)

    def train(self, sample: Array) -> None:
        """Learn the centres from keys, (key heads, rows, head_dim), with at least as many rows as lists."""
        if sample.shape[1] < self.nlist:
            raise ValueError(
                f"nlist must be at most the number of the keys added first, {sample.shape[1]}, "
                f"from which the lists are learned, not {self.nlist}"
            )
        # These options also keep faiss from printing a warning about few keys.
        options = {"max_points_per_centroid": SAMPLE, "min_points_per_centroid": 1, "seed": 1}
        for index, nearest, keys in zip(self._indexes, self._nearest, sample, strict=True):
            means = self._faiss.Kmeans(keys.shape[1], self.nlist, **options)
            means.train(np.ascontiguousarray(keys))
            nearest.add(means.centroids)
            index.quantizer.add(means.centroids)
            index.is_trained = True

    def add(self, key: Array) -> None:
        """Add keys, (key heads, rows, head_dim), to the lists."""
        pointer = self._faiss.swig_ptr
        for index, nearest, keys in zip(self._indexes, self._nearest, key, strict=True):
            rows = np.ascontiguousarray(keys)
            lists = nearest.search(rows, 1)[1].ravel()
            index.add_core(len(rows), pointer(rows), None, pointer(lists))

    def search(self, query: Array, k: int, before: Indices, nprobe: int) -> Indices:
        """Return the indices of the best k keys in `nprobe` lists, in the form of `exact.search`."""
        heads, queries, _ = query.shape
        indices = np.full((heads, queries, k), -1, np.int64)
        if not (k and len(self)):
            return indices
        for limit in np.unique(before):  # queries with the same limit share a call
            rows = np.flatnonzero(before == limit)
            selector = {} if limit >= len(self) else {"sel": self._faiss.IDSelectorRange(0, int(limit))}
            parameters = self._faiss.SearchParametersIVF(nprobe=nprobe, **selector)
            for head, index in enumerate(self._indexes):
                indices[head, rows] = index.search(query[head, rows], k, params=parameters)[1]
        return indices
