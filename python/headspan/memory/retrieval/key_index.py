"""An index over keys in memory or in a store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan._check import Array
from headspan._help import described
from headspan.memory.retrieval.exact import PIECE, Indices, Piece, longest, search, together
from headspan.memory.retrieval.inverted import SAMPLE, InvertedFile

if TYPE_CHECKING:
    from headspan.memory.store import KeyValueStore


class KeyIndex:
    """An index that finds the keys with the largest dot products with a query, for `retrieval_attention`.

    Without `nlist` the search goes through all keys and is exact. Its result does not depend on the number of threads,
    and ties go to the first key. With `nlist` the index is an inverted file of faiss, which divides the keys into
    `nlist` lists. A query searches `nprobe` of the lists and may miss keys in the others.

    Parameters
    ----------
    num_key_heads, head_dim : int
    dtype : dtype or str, optional
        The type of keys and queries: float32, the default, or float64.
    nlist : int, optional
        The number of lists of an inverted file, which needs float32 and the extra ``faiss``. A usual
        choice is the square root of the number of keys. The first call of `add` learns the centres of the lists from
        its keys, which should be at least 40 per list.
    nprobe : int
        The number of lists that a query searches. A larger number finds more of the best keys and takes longer.

    Attributes
    ----------
    num_key_heads, head_dim : int
    dtype : dtype
    nprobe : int
        You may set it at any time.

    Raises
    ------
    ValueError
        If a size is less than 1.
    TypeError
        If `nlist` is used with float64.
    ImportError
        If `nlist` is used and faiss is not installed.

    See Also
    --------
    KeyValueStore : Keys and values on disk.
    retrieval_attention : Attention to near keys and to retrieved keys.

    References
    ----------
    Johnson, Douze and Jegou, "Billion-scale similarity search with GPUs", IEEE Transactions on Big Data 2021, section
    2.2, describe inverted files. Wu et al., "Memorizing Transformers", ICLR 2022, section 3.2, search a memory of keys
    with queries.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> key = np.random.default_rng(0).standard_normal((2, 1000, 16), dtype=np.float32)
    >>> key /= np.linalg.norm(key, axis=-1, keepdims=True)
    >>> index = hs.memory.KeyIndex(2, 16)
    >>> index.add(key)
    >>> indices = index.retrieve(key[:, [3, 5]], 4)  # (key heads, queries, 4)
    >>> indices[:, :, 0]
    array([[3, 5],
           [3, 5]])
    """

    def __init__(
        self,
        num_key_heads: int,
        head_dim: int,
        *,
        dtype: npt.DTypeLike | None = None,
        nlist: int | None = None,
        nprobe: int = 16,
    ) -> None:
        self.num_key_heads = _check.integer("num_key_heads", num_key_heads, at_least=1)
        self.head_dim = _check.integer("head_dim", head_dim, at_least=1)
        self.dtype = _checked_dtype(dtype)
        lists = None if nlist is None else _check.integer("nlist", nlist, at_least=1)
        self.nprobe = _check.integer("nprobe", nprobe, at_least=1)
        if lists and self.dtype != np.float32:
            raise TypeError(f"dtype must be float32 with nlist, the type of faiss, not {self.dtype}")
        self._inverted = InvertedFile(self.num_key_heads, self.head_dim, lists) if lists else None
        self._store: KeyValueStore | None = None
        self._keys = np.empty((self.num_key_heads, 0, self.head_dim), self.dtype)  # with spare room after the keys
        self._longest: list[npt.NDArray[np.float64]] = []  # for each PIECE of keys, the longest key per head
        self._count = 0

    @classmethod
    def of_store(cls, store: KeyValueStore, *, nlist: int | None = None, nprobe: int = 16) -> Self:
        """Make an index over the keys of a store.

        `retrieve` reads the keys, including those appended after the index was made. Without `nlist` each call reads
        all keys piece by piece in fixed memory. With `nlist` each key is read once, into an inverted file in memory.

        Parameters
        ----------
        store : KeyValueStore
        nlist, nprobe : int
            As for `KeyIndex`. The first call of `retrieve` learns the centres from a sample of the keys in the store.

        Returns
        -------
        KeyIndex

        Raises
        ------
        ValueError
            If `nlist` or `nprobe` is less than 1.
        TypeError
            If `store` is not a `KeyValueStore`.
        ImportError
            If `nlist` is used and faiss is not installed.
        """
        if not hasattr(store, "gather"):
            raise TypeError(f"store must be a KeyValueStore, not {_check.describe(store)}")
        dtype = np.float64 if store.dtype == np.float64 else np.float32
        index = cls(store.num_key_heads, store.head_dim, dtype=dtype, nlist=nlist, nprobe=nprobe)
        index._store = store
        return index

    def __repr__(self) -> str:
        sizes = {"num_key_heads": self.num_key_heads, "head_dim": self.head_dim, "dtype": self.dtype}
        lists = {} if self._inverted is None else {"nlist": self._inverted.nlist, "nprobe": self.nprobe}
        return f"<{described(self, **sizes, **lists)} with {len(self)} keys{' of a store' * (self._store is not None)}>"

    def __len__(self) -> int:
        return self._count if self._store is None else len(self._store)

    def add(self, key: npt.ArrayLike) -> None:
        """Append keys.

        Parameters
        ----------
        key : array_like, shape (key_heads, rows, head_dim)
            The keys, which are copied.

        Raises
        ------
        ValueError
            If the shape is wrong, a number is not finite, the first call has fewer keys than `nlist`, or the index is
            that of a store, to which you append keys instead. No key is then added.
        """
        if self._store is not None:
            raise ValueError("key must be appended to the store; this index then finds it there")
        keys = self._checked_array("key", key)
        if keys.ndim != 3 or (keys.shape[0], keys.shape[2]) != (self.num_key_heads, self.head_dim):
            raise ValueError(f"key must be of shape ({self.num_key_heads}, rows, {self.head_dim}), not {keys.shape}")
        _check.limits("key", keys)
        if not keys.size:
            return
        if self._inverted is None:
            self._append(keys)
        else:
            if not self._inverted.is_trained:
                self._inverted.train(keys)
            self._inverted.add(keys)
        self._count += keys.shape[1]

    def retrieve(self, query: npt.ArrayLike, k: int, *, before: npt.ArrayLike | None = None) -> Indices:
        """Find the keys with the largest products.

        Parameters
        ----------
        query : array_like, shape (batch, heads, tokens, head_dim)
            Queries of the type of the index. Leading axes may be left out. The number of heads is a multiple of the key
            heads, and consecutive heads share a key head, as in `attention`.
        k : int
            The number of keys to find for each query.
        before : int or array_like of int, shape (tokens,), optional
            Each query sees only keys whose number is less than `before`. A causal model with a window passes
            ``p - window`` or less for a query at position p.

        Returns
        -------
        ndarray of int64, shape (batch, heads, tokens, k)
            The numbers of the keys, the largest product first, padded with -1 if fewer than k keys are found.

        Raises
        ------
        ValueError
            If a number is not finite.
        """
        queries = self._checked_array("query", query)
        count = _check.integer("k", k, at_least=0)
        shape = queries.shape
        heads = shape[-3] if len(shape) > 2 else 1
        if not 2 <= len(shape) <= 4 or shape[-1] != self.head_dim:
            raise ValueError(f"query must be of shape (batch, heads, tokens, {self.head_dim}), not {shape}")
        if not heads or heads % self.num_key_heads:
            raise ValueError(f"query must have a multiple of the {self.num_key_heads} key heads, not {heads} heads")
        _check.limits("query", queries)
        batch, tokens = shape[0] if len(shape) == 4 else 1, shape[-2]
        limits = self._limits(before, tokens)
        grouped = queries.reshape(batch, self.num_key_heads, heads // self.num_key_heads, tokens, self.head_dim)
        flat = np.ascontiguousarray(grouped.swapaxes(0, 1)).reshape(self.num_key_heads, -1, self.head_dim)
        flat_indices = self._search(flat, count, np.tile(limits, batch * heads // self.num_key_heads))
        indices = flat_indices.reshape(self.num_key_heads, batch, heads // self.num_key_heads, tokens, count).swapaxes(
            0, 1
        )
        return indices.reshape(*shape[:-1], count)

    def _search(self, query: Array, k: int, before: Indices) -> Indices:
        if self._inverted is None:
            return search(query, self._pieces(int(before.max(initial=0)), together(len(before))), k, before)
        if self._store is not None:
            self._catch_up(self._store, self._inverted)
        return self._inverted.search(query, k, before, _check.integer("nprobe", self.nprobe, at_least=1))

    def _pieces(self, last: int, size: int) -> Iterator[Piece]:
        """Yield the keys before `last` in pieces of `size` keys, or in the pieces of the store."""
        if self._store is not None:
            for first, part in self._store.keys(0, last):
                keys = self._finite(first, part)
                yield Piece(first, keys, longest(keys))
            return
        for first in range(0, last, size):
            lengths = np.max(self._longest[first // PIECE : (first + size) // PIECE], axis=0)
            yield Piece(first, self._keys[:, first : min(first + size, last)], lengths)

    def _catch_up(self, store: KeyValueStore, inverted: InvertedFile) -> None:
        """Add the new keys of a store to the lists."""
        count = len(store)
        if count and not inverted.is_trained:
            pieces = -(-count // PIECE)
            stride = max(pieces // -(-SAMPLE * inverted.nlist // PIECE), 1)  # spreads the sample over the whole store
            starts = range(0, count, stride * PIECE)
            parts = [part for at in starts for part in store.keys(at, min(at + PIECE, count))]
            inverted.train(np.concatenate([self._finite(*part) for part in parts], axis=1))
        for first, keys in store.keys(len(inverted), count):
            inverted.add(self._finite(first, keys))

    def _finite(self, first: int, keys: npt.NDArray[Any]) -> Array:
        """Return keys of a store in the type of the index, after checking that they are finite."""
        _check.limits(f"the keys of the store from row {first} on", keys)
        return keys.astype(self.dtype, copy=False)

    def _append(self, keys: Array) -> None:
        """Copy keys into the spare room, which doubles when it is full."""
        end = self._count + keys.shape[1]
        if end > self._keys.shape[1]:
            room = np.empty((self.num_key_heads, max(end, 2 * self._keys.shape[1]), self.head_dim), self.dtype)
            room[:, : self._count] = self._keys[:, : self._count]
            self._keys = room
        self._keys[:, self._count : end] = keys
        full = self._count // PIECE
        pieces = [self._keys[:, first : min(first + PIECE, end)] for first in range(full * PIECE, end, PIECE)]
        self._longest[full:] = map(longest, pieces)

    def _limits(self, before: npt.ArrayLike | None, tokens: int) -> Indices:
        """Return the number of keys that each query may see."""
        if before is None:
            return np.full(tokens, len(self), np.int64)
        array = _check.integers("before", before)
        if array.shape not in ((), (tokens,)):
            raise ValueError(f"before must be a number or of shape ({tokens},), not {array.shape}")
        _check.non_negative("before", array)
        return np.broadcast_to(np.minimum(array, len(self)).astype(np.int64), tokens)

    def _checked_array(self, name: str, array_like: object) -> Array:
        array = _check.float_array(name, array_like)
        if array.dtype != self.dtype:
            raise TypeError(f"{name} must be {self.dtype}, the type of the index, not {array.dtype}")
        return array


def _checked_dtype(dtype: npt.DTypeLike | None) -> np.dtype[Any]:
    try:
        checked = np.dtype(np.float32 if dtype is None else dtype)
    except TypeError:
        checked = np.dtype(object)
    if checked not in _check.FLOATS:
        raise TypeError(f"dtype must be float32 or float64, not {_check.describe(dtype)}")
    return checked
