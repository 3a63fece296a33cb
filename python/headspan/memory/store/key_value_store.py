"""An append-only store of keys and values on disk, with attention over all of them in constant memory."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, overload

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan._check import Array
from headspan.memory.store.arguments import checked_rows, checked_sizes
from headspan.memory.store.database import Database
from headspan.memory.store.pieces import SIZES, Pieces
from headspan.memory.store.records import PIECE, Rows, Sizes
from headspan.memory.store.streaming import Streaming


class KeyValueStore:
    """A store of keys and values on disk, which may be larger than memory.

    `append` adds rows at the end, and `attend` attends to all rows in constant memory. The store keeps rows in records
    of 4096 and the newest rows in a few shorter records, which it merges into full ones. `append` is atomic and
    durable: when it returns, the rows are on disk and survive a crash or a power failure, and an interrupted `append`
    leaves no rows. Every record has a checksum.

    Parameters
    ----------
    path : str or path
        The folder of the store. It is created if it does not exist, but its parent must exist.
    num_key_heads, head_dim : int, optional
        The sizes of the keys. A new store needs them. The store saves all sizes, and for an existing store the
        arguments must match the saved sizes.
    value_dim : int, optional
        The head_dim of the values. By default that of the keys.
    dtype : dtype or str, optional
        The type in which keys and values are stored: float32, the default, float64 or float16. Queries, keys and values
        have the same type, but a float16 store computes in float32.
    readonly : bool
        Whether to open the store only for reading. One process may write while others read and see the new rows.

    Attributes
    ----------
    num_key_heads, head_dim, value_dim : int
    dtype : dtype
    path : Path

    Raises
    ------
    ValueError
        If sizes are missing for a new store, or differ from those of the existing store.
    FileNotFoundError
        If the store does not exist, or if the parent folder does not exist.
    OSError
        If the store has another writer, if this process has already opened it, or if it is another database.
    ImportError
        If lmdb is not installed (the extra ``store``).

    See Also
    --------
    KeyIndex : Search for the keys with the largest dot products.
    StreamingAttention : Attention over a stream in fixed memory.
    headspan.SpanCache : Cache of keys and values for generation.

    Notes
    -----
    The file is an LMDB database (Chu, "MDB: A Memory-Mapped Database and Backend for OpenLDAP", 2011), a tree of pages
    that are never overwritten in place. Checksums cover the rows, not the pages of the tree. A full record is verified
    when an opened store reads it for the first time. After a fork, each process must open the store itself.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import headspan as hs
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 2, 5000, 16), dtype=np.float32)
    >>> folder = tempfile.TemporaryDirectory()
    >>> with hs.memory.KeyValueStore(folder.name + "/memory", num_key_heads=2, head_dim=16) as store:
    ...     store.append(k[:, :3000], v[:, :3000])
    ...     store.append(k[:, 3000:], v[:, 3000:])
    >>> with hs.memory.KeyValueStore(folder.name + "/memory", readonly=True) as store:
    ...     out = store.attend(q[:, -3:])
    ...     len(store)
    5000
    >>> bool(np.allclose(out, hs.attention(q[:, -3:], k, v, causal=False), atol=1e-6))
    True
    >>> folder.cleanup()
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        num_key_heads: int | None = None,
        head_dim: int | None = None,
        *,
        value_dim: int | None = None,
        dtype: npt.DTypeLike | None = None,
        readonly: bool = False,
    ) -> None:
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"path must be a folder, not {_check.describe(path)}")
        self.path = Path(path)
        sizes = checked_sizes(num_key_heads, head_dim, value_dim, dtype)
        self._readonly = _check.flag("readonly", readonly)
        if not (self.path / "data.mdb").exists():
            self._check_new(sizes)
        self._database = Database(self.path, readonly=self._readonly)
        try:
            self._sizes = self._kept_sizes(sizes)
            self._pieces = Pieces(self._sizes, self.path)
        except BaseException:
            self._database.close()
            raise

    @property
    def num_key_heads(self) -> int:
        """The number of heads of keys and values."""
        return self._sizes.num_key_heads

    @property
    def head_dim(self) -> int:
        """The number of elements of a key."""
        return self._sizes.head_dim

    @property
    def value_dim(self) -> int:
        """The number of elements of a value."""
        return self._sizes.value_dim

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type in which keys and values are stored."""
        return np.dtype(self._sizes.dtype)

    def __repr__(self) -> str:
        return f"KeyValueStore({str(self.path)!r}, {', '.join(f'{k}={v!r}' for k, v in self._sizes._asdict().items())})"

    def __len__(self) -> int:
        with self._database.read() as transaction:
            return self._pieces.count(transaction)

    def __iter__(self) -> Iterator[Rows]:
        """Yield copies of all current rows, at most 4096 at a time."""
        count = len(self)
        for first in range(0, count, PIECE):
            yield self.rows(first, min(first + PIECE, count))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Any later use of the store is an error."""
        self._database.close()

    def append(self, key: npt.ArrayLike, value: npt.ArrayLike) -> None:
        """Add rows. They are on disk when this method returns.

        Parameters
        ----------
        key, value : array_like, shape (key_heads, tokens, dims)
            Arrays of the type of the store. A float16 store also takes float32 and rounds it.

        Raises
        ------
        ValueError
            If float16 cannot hold a number, or if the store is closed or read-only.
        OSError
            If the disk is full or the newest rows are damaged. No row is then added, and old rows stay readable.
        """
        if self._readonly:
            raise ValueError(f"the store at {self.path} was opened with readonly=True and cannot be changed")
        rows = checked_rows(self._sizes, key, value)
        if rows[0].shape[1]:
            size = rows[0].shape[1] * self._sizes.row_bytes
            self._database.write(lambda transaction: self._pieces.add(transaction, rows), size)

    def rows(self, first: int, last: int) -> Rows:
        """Return copies of the rows from `first` to `last`, without `last`.

        Parameters
        ----------
        first, last : int

        Returns
        -------
        key : ndarray, shape (key_heads, last - first, head_dim)
        value : ndarray, shape (key_heads, last - first, value_dim)

        Raises
        ------
        ValueError
            If the store does not have these rows.
        TypeError
            If `first` or `last` is not an integer.
        OSError
            If rows are damaged.
        """
        key, value = self._copies(first, last, (self.head_dim, self.value_dim))
        return key, value

    def keys(self, first: int = 0, last: int | None = None) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """Yield copies of keys without values, at most 4096 rows at a time.

        Parameters
        ----------
        first, last : int
            As for `rows`. By default all current rows.

        Yields
        ------
        first : int
            The number of the first row of `key`.
        key : ndarray, shape (key_heads, at most 4096, head_dim)

        Raises
        ------
        ValueError
            If the store does not have these rows.
        TypeError
            If `first` or `last` is not an integer.
        OSError
            If rows are damaged.
        """
        first = _check.integer("first", first, at_least=0)
        last = len(self) if last is None else _check.integer("last", last, at_least=0)
        for low in range(first, last, PIECE):
            yield low, self._copies(low, min(low + PIECE, last), (self.head_dim,))[0]

    def gather(self, indices: npt.ArrayLike) -> tuple[Array, Array, npt.NDArray[np.int64]]:
        """Read only the retrieved rows, in the form that `headspan.memory.retrieval_attention` takes.

        Parameters
        ----------
        indices : array_like of int
            Row numbers of any shape, as `headspan.memory.KeyIndex.retrieve` returns them. -1 stands for no row.

        Returns
        -------
        key : ndarray, shape (key_heads, n, head_dim)
            The keys of the n different rows, in ascending order. A float16 store returns float32.
        value : ndarray, shape (key_heads, n, value_dim)
        within : ndarray of int64, shape of indices
            The index into `key` and `value` of each entry of `indices`, or -1.

        Raises
        ------
        ValueError
            If the store does not have these rows.
        TypeError
            If `indices` are not integers.
        OSError
            If rows are damaged.
        """
        array = _check.integers("indices", indices)
        with self._database.read() as transaction:
            count = self._pieces.count(transaction)
            if array.size and not -1 <= array.min() <= array.max() < count:
                wrong = array.min() if array.min() < -1 else array.max()
                raise ValueError(f"indices must be -1 for none, or between 0 and {count - 1}, got {wrong}")
            rows = np.unique(array[array >= 0]).astype(np.int64)
            dims = (self.head_dim, self.value_dim)
            key, value = (np.empty((self.num_key_heads, rows.size, dim), self._sizes.arithmetic) for dim in dims)
            self._pieces.gather(transaction, rows, (key, value))
        return key, value, np.where(array < 0, -1, np.searchsorted(rows, array))

    @overload
    def attend(self, query: npt.ArrayLike, *, return_lse: Literal[False] = ..., **options: Any) -> Array: ...
    @overload
    def attend(self, query: npt.ArrayLike, *, return_lse: Literal[True], **options: Any) -> tuple[Array, Array]: ...
    def attend(
        self, query: npt.ArrayLike, *, return_lse: bool = False, **options: Any
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Attend to all rows, reading them from disk piece by piece.

        Parameters
        ----------
        query : array_like, shape (heads, tokens, head_dim) or (1, heads, tokens, head_dim)
            The number of heads is a multiple of the key heads. Every query sees all rows in reach of its span, before
            and after its position.
        return_lse : bool
            Whether to return the log-sum-exp too. With it, `headspan.merge_attention` merges the result with attention
            over other keys, such as a window that is not in the store.
        **options
            span, ramp, scale, temperature, alibi_slopes, softcap, sinks, persistent_key, persistent_value and
            query_positions, as for `headspan.attention`. Row i has position i. By default the last query has the
            position of the newest row. Records beyond the largest span are not read.

        Returns
        -------
        out : ndarray, shape of query, with value_dim for head_dim
            Equal to ``headspan.attention(query, keys, values, causal=False)``. 0 for a query that sees no row.
        lse : ndarray, shape of query without its last axis
            Only with `return_lse`.

        Raises
        ------
        ValueError
            If the store is closed.
        OSError
            If rows are damaged.
        """
        streaming = Streaming(self._sizes, query, options)
        with self._database.read() as transaction:
            count = self._pieces.count(transaction)
            first, last = streaming.in_reach(count)
            tail = []
            tail_begin = count - count % PIECE
            for begin, key, value in self._pieces.between(transaction, first, last):
                if begin < tail_begin:
                    streaming.add(begin, key, value)
                else:
                    tail.append((begin, key, value))
            if tail:  # one concatenated piece is faster than a few short records
                keys, values = ([record[i] for record in tail] for i in (1, 2))
                streaming.add(tail[0][0], np.concatenate(keys, axis=1), np.concatenate(values, axis=1))
            out, lse = streaming.result()
        return (out, lse) if return_lse else out

    def _copies(self, first: int, last: int, dims: tuple[int, ...]) -> list[npt.NDArray[Any]]:
        """Return copies of the keys of some rows, and of the values if `dims` has two entries."""
        first, last = _check.integer("first", first, at_least=0), _check.integer("last", last, at_least=0)
        with self._database.read() as transaction:
            count = self._pieces.count(transaction)
            if not first <= last <= count:
                raise ValueError(f"first and last must be 0 <= first <= last <= {count}, not {first} and {last}")
            copies = [np.empty((self.num_key_heads, last - first, dim), self.dtype) for dim in dims]
            for begin, *parts in self._pieces.between(transaction, first, last):
                low, high = max(first, begin), min(last, begin + parts[0].shape[1])
                for copy, part in zip(copies, parts, strict=False):
                    copy[:, low - first : high - first] = part[:, low - begin : high - begin]
        return copies

    def _kept_sizes(self, expected: dict[str, Any]) -> Sizes:
        """Return the sizes of the store. A new store first saves the sizes that were passed."""
        with self._database.read() as transaction:
            kept = transaction.get(SIZES)
            kept, others = None if kept is None else bytes(kept), transaction.stat()["entries"]
        if kept is None and others:
            raise OSError(f"the file of LMDB at {self.path} is not a store of keys and values")
        if kept is None:
            self._check_new(expected)
            sizes = Sizes(**{"value_dim": expected["head_dim"], "dtype": "float32"} | expected)
            if PIECE * sizes.row_bytes >= 1 << 31:
                raise ValueError(
                    f"rows of {sizes.row_bytes} bytes are too long: {PIECE} of them must be less than 2 GiB"
                )
            self._database.write(lambda transaction: transaction.put(SIZES, sizes.to_bytes()), PIECE)
            self._database.sync_folder()
            return sizes
        sizes = Sizes.from_bytes(kept, self.path)
        for name, size in expected.items():
            if getattr(sizes, name) != size:
                raise ValueError(f"{name} of the store at {self.path} is {getattr(sizes, name)}, not {size}")
        return sizes

    def _check_new(self, sizes: dict[str, Any]) -> None:
        """Refuse to read a missing store, and to make a store of unknown sizes."""
        if self._readonly:
            raise FileNotFoundError(errno.ENOENT, "the store does not exist", str(self.path))
        if not {"num_key_heads", "head_dim"} <= sizes.keys():
            raise ValueError(f"num_key_heads and head_dim are required, because there is no store at {self.path}")
