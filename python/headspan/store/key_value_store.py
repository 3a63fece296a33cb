"""Keys and values on disk that are only added to, and attention over all of them in constant memory."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan._check import Array
from headspan.store.arguments import checked_rows, checked_sizes
from headspan.store.database import Database
from headspan.store.pieces import SIZES, Pieces
from headspan.store.records import PIECE, Rows, Sizes
from headspan.store.streaming import Streaming


class KeyValueStore:
    """Keys and values on disk, more than memory holds: rows are added at the end, and attended to in constant memory.

    Rows lie in pieces of 4096, newer ones in a few shorter records that become a piece when there are enough of them.
    What `append` has returned from is on disk: neither the end of the process nor that of the machine's power loses it,
    and of an `append` that was interrupted there is nothing. Every record has a checksum.

    Parameters
    ----------
    path : str or path
        A folder, made unless it is there, for which its parent has to be.
    key_heads, head_dim : int, optional
        Of the keys; needed to make a store. They are kept in it, and an opened one is checked for those given.
    value_dim : int, optional
        head_dim of the values; that of the keys unless given.
    dtype : dtype or str, optional
        As what keys and values are kept: float32, unless given, or float64, in which queries, keys and values are given
        then; or float16, half the bytes, which is computed with in float32.
    readonly : bool
        Whether to read only. One process may write while others read; they see what is added.

    Attributes
    ----------
    key_heads, head_dim, value_dim : int
    dtype : dtype
    path : Path

    Raises
    ------
    ValueError
        If sizes are missing for a new store, or are not those of the one that is there.
    TypeError
        For a wrong type.
    FileNotFoundError
        If there is nothing to read, or no folder to make the store in.
    OSError
        If another `KeyValueStore` writes to it, if this process has opened it already, or if it is no store.
    ImportError
        Without lmdb (``pip install 'headspan[store]'``).

    Notes
    -----
    The file is one of LMDB (Chu, "MDB: A Memory-Mapped Database and Backend for OpenLDAP", 2011), a tree of pages that
    are never written in place. Checksums are those of the rows; the tree's own pages have none. A piece is verified
    when an opened store first reads it. Processes that are forked open the store afterwards, each for itself.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import headspan as hs
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 2, 5000, 16), dtype=np.float32)
    >>> folder = tempfile.TemporaryDirectory()
    >>> with hs.KeyValueStore(folder.name + "/memory", key_heads=2, head_dim=16) as store:
    ...     store.append(k[:, :3000], v[:, :3000])
    ...     store.append(k[:, 3000:], v[:, 3000:])
    >>> with hs.KeyValueStore(folder.name + "/memory", readonly=True) as store:
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
        key_heads: int | None = None,
        head_dim: int | None = None,
        *,
        value_dim: int | None = None,
        dtype: npt.DTypeLike | None = None,
        readonly: bool = False,
    ) -> None:
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"path must be that of a folder, not {_check.describe(path)}")
        self.path = Path(path)
        given = checked_sizes(key_heads, head_dim, value_dim, dtype)
        self._readonly = _check.flag("readonly", readonly)
        if not (self.path / "data.mdb").exists():
            self._check_new(given)
        self._database = Database(self.path, readonly=self._readonly)
        try:
            self._sizes = self._kept_sizes(given)
            self._pieces = Pieces(self._sizes, self.path)
        except BaseException:
            self._database.close()
            raise

    @property
    def key_heads(self) -> int:
        """Heads of keys and values."""
        return self._sizes.key_heads

    @property
    def head_dim(self) -> int:
        """Numbers of a key."""
        return self._sizes.head_dim

    @property
    def value_dim(self) -> int:
        """Numbers of a value."""
        return self._sizes.value_dim

    @property
    def dtype(self) -> np.dtype[Any]:
        """As what keys and values are kept."""
        return np.dtype(self._sizes.dtype)

    def __repr__(self) -> str:
        return f"KeyValueStore({str(self.path)!r}, {', '.join(f'{k}={v!r}' for k, v in self._sizes._asdict().items())})"

    def __len__(self) -> int:
        with self._database.read() as transaction:
            return self._pieces.count(transaction)

    def __iter__(self) -> Iterator[Rows]:
        """Give all rows that there are now, a piece at a time, as copies."""
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
        """Let go of the file; what is asked of the store afterwards is an error."""
        self._database.close()

    def append(self, key: npt.ArrayLike, value: npt.ArrayLike) -> None:
        """Add rows; they are on disk when this returns.

        Parameters
        ----------
        key, value : array_like, shape (key_heads, tokens, dims)
            Of the type of the store; for float16 float32, too, which is rounded.

        Raises
        ------
        ValueError
            For a wrong shape, numbers that float16 cannot hold, or a store that is closed or was opened to read.
        TypeError
            For a wrong type.
        OSError
            If the disk is full, or the newest rows are damaged. In either case nothing is added, and what was there can
            be read.
        """
        if self._readonly:
            raise ValueError(f"the store at {self.path} was opened with readonly=True, and cannot be appended to")
        rows = checked_rows(self._sizes, key, value)
        if rows[0].shape[1]:
            size = rows[0].shape[1] * self._sizes.row_bytes
            self._database.write(lambda transaction: self._pieces.add(transaction, rows), size)

    def rows(self, first: int, last: int) -> Rows:
        """Return copies of the rows from ``first`` up to, but not with, ``last``.

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
            For rows that are not there.
        TypeError
            For what is no integer.
        OSError
            If rows are damaged.
        """
        key, value = self._copies(first, last, (self.head_dim, self.value_dim))
        return key, value

    def keys(self, first: int = 0, last: int | None = None) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """Give keys without their values, a piece at a time, as copies.

        Parameters
        ----------
        first, last : int
            As for `rows`; up to the end, as it is now, unless given.

        Yields
        ------
        first : int
            The number of the first row of the piece.
        key : ndarray, shape (key_heads, at most 4096, head_dim)

        Raises
        ------
        ValueError
            For rows that are not there.
        TypeError
            For what is no integer.
        OSError
            If rows are damaged.
        """
        first = _check.integer("first", first, at_least=0)
        last = len(self) if last is None else _check.integer("last", last, at_least=0)
        for low in range(first, last, PIECE):
            yield low, self._copies(low, min(low + PIECE, last), (self.head_dim,))[0]

    def gather(self, indices: npt.ArrayLike) -> tuple[Array, Array, npt.NDArray[np.int64]]:
        """Read the rows that were retrieved, and no others, as `headspan.retrieval_attention` takes them.

        Parameters
        ----------
        indices : array_like of int
            Numbers of rows, of any shape, as `headspan.KeyIndex.retrieve` gives them; -1 stands for none.

        Returns
        -------
        key : ndarray, shape (key_heads, n, head_dim)
            Of the n different rows that are named, in their order, and of the type that is computed in: float32 if
            float16 is kept.
        value : ndarray, shape (key_heads, n, value_dim)
        within : ndarray of int64, shape of indices
            Which of these the indices are.

        Raises
        ------
        ValueError
            For rows that are not there.
        TypeError
            For what is no integer.
        OSError
            If rows are damaged.
        """
        array = _check.integers("indices", indices)
        with self._database.read() as transaction:
            count = self._pieces.count(transaction)
            if array.size and not -1 <= array.min() <= array.max() < count:
                wrong = array.min() if array.min() < -1 else array.max()
                raise ValueError(f"indices must lie between -1, for none, and {count - 1}, but hold {wrong}")
            rows = np.unique(array[array >= 0]).astype(np.int64)
            dims = (self.head_dim, self.value_dim)
            key, value = (np.empty((self.key_heads, rows.size, dim), self._sizes.arithmetic) for dim in dims)
            self._pieces.gather(transaction, rows, (key, value))
        return key, value, np.where(array < 0, -1, np.searchsorted(rows, array))

    def attend(self, query: npt.ArrayLike, *, return_lse: bool = False, **options: Any) -> Any:
        """Attend to all rows, as they come from disk, a piece at a time.

        Parameters
        ----------
        query : array_like, shape (heads, tokens, head_dim) or (1, heads, tokens, head_dim)
            Any number of queries; heads is a multiple of the key heads. Every query sees every row that its span
            reaches, whatever their order.
        return_lse : bool
            Whether to return the log-sum-exp too, with which `headspan.merge_attention` puts the result together with
            attention over other keys, such as a window that is not in the store.
        **options
            span, ramp, scale, temperature, alibi_slopes, softcap, sinks, memory_key, memory_value and query_positions,
            as for `headspan.attention`. Row i stands at position i, and the last query beside the newest row unless
            `query_positions` say otherwise. Pieces beyond the largest span are not read.

        Returns
        -------
        out : ndarray, shape of query, with value_dim for head_dim
            That of ``headspan.attention(query, keys, values, causal=False)``. 0 for a query that sees nothing.
        lse : ndarray, shape of query without its last axis
            Only with `return_lse`.

        Raises
        ------
        ValueError
            For a wrong shape or value, or a store that is closed.
        TypeError
            For a wrong type or option.
        OSError
            If rows are damaged.
        """
        streaming = Streaming(self._sizes, query, options)
        with self._database.read() as transaction:
            count = self._pieces.count(transaction)
            first, last = streaming.in_reach(count)
            tail = []
            whole = count - count % PIECE
            for begin, key, value in self._pieces.between(transaction, first, last):
                if begin < whole:
                    streaming.add(begin, key, value)
                else:
                    tail.append((begin, key, value))
            if tail:  # a few short records, which are faster as one
                keys, values = ([its[i] for its in tail] for i in (1, 2))
                streaming.add(tail[0][0], np.concatenate(keys, axis=1), np.concatenate(values, axis=1))
            out, lse = streaming.result()
        return (out, lse) if return_lse else out

    def _copies(self, first: int, last: int, dims: tuple[int, ...]) -> list[npt.NDArray[Any]]:
        """Return the keys of some rows, and their values if there are dims for them, too."""
        first, last = _check.integer("first", first, at_least=0), _check.integer("last", last, at_least=0)
        with self._database.read() as transaction:
            count = self._pieces.count(transaction)
            if not first <= last <= count:
                raise ValueError(f"first and last must be 0 <= first <= last <= {count}, not {first} and {last}")
            copies = [np.empty((self.key_heads, last - first, dim), self.dtype) for dim in dims]
            for begin, *parts in self._pieces.between(transaction, first, last):
                low, high = max(first, begin), min(last, begin + parts[0].shape[1])
                for copy, part in zip(copies, parts, strict=False):
                    copy[:, low - first : high - first] = part[:, low - begin : high - begin]
        return copies

    def _kept_sizes(self, given: dict[str, Any]) -> Sizes:
        """Return the sizes that the store has, after it got those given if it is new."""
        with self._database.read() as transaction:
            kept = transaction.get(SIZES)
            kept, others = None if kept is None else bytes(kept), transaction.stat()["entries"]
        if kept is None and others:
            raise OSError(f"the file of LMDB at {self.path} is no store of keys and values")
        if kept is None:
            self._check_new(given)
            sizes = Sizes(**{"value_dim": given["head_dim"], "dtype": "float32"} | given)
            if PIECE * sizes.row_bytes >= 1 << 31:
                raise ValueError(
                    f"rows of {sizes.row_bytes} bytes are too long: {PIECE} of them must be less than 2 GiB"
                )
            self._database.write(lambda transaction: transaction.put(SIZES, sizes.to_bytes()), PIECE)
            self._database.sync_folder()
            return sizes
        sizes = Sizes.from_bytes(kept, self.path)
        for name, its in given.items():
            if getattr(sizes, name) != its:
                raise ValueError(f"{name} of the store at {self.path} is {getattr(sizes, name)}, not {its}")
        return sizes

    def _check_new(self, given: dict[str, Any]) -> None:
        """Refuse to read what is not there, and to make a store of unknown sizes."""
        if self._readonly:
            raise FileNotFoundError(errno.ENOENT, "there is no store to read", str(self.path))
        if not {"key_heads", "head_dim"} <= given.keys():
            raise ValueError(f"key_heads and head_dim are needed to make a store, and there is none at {self.path}")
