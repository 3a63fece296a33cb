"""The file of a store: LMDB transactions with retries, a single writer, and errors that say what to do."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headspan import _extra

# The map is an address range; the file is only as long as its contents. A full map is doubled.
FIRST_MAP = 1 << 30
_OVERHEAD = 1 << 18  # an upper bound on the bytes of tree pages that a transaction rewrites


class Database:
    """A map from keys to bytes on disk.

    Every transaction holds a lock, because the map must not grow while another thread reads from it.
    """

    def __init__(self, path: Path, *, readonly: bool) -> None:
        try:
            import filelock
            import lmdb
        except ImportError as error:
            raise _extra.missing("KeyValueStore", str(error.name), "store", error.name) from error
        self._lmdb, self._path, self._readonly = lmdb, path, readonly
        self._lock, self._process = threading.RLock(), os.getpid()
        self._writer = filelock.FileLock(path.resolve() / "writer.lock", blocking=False, thread_local=False)
        self._env: Any = self._opened(create=not readonly)
        if not readonly:
            try:
                self._become_writer()
                self._env.reader_check()  # clears killed readers, which would keep old pages in use
            except BaseException:
                self.close()
                raise

    @contextmanager
    def read(self) -> Iterator[Any]:
        """Open a read transaction, which sees one state. Its buffers are invalid after it ends."""
        self._check_process()
        with self._lock:
            try:
                with self._begin(write=False) as transaction:
                    yield transaction
            except self._lmdb.Error as error:
                raise OSError(f"the store at {self._path} cannot be read: {error}") from error

    def write(self, change: Callable[[Any], None], size: int) -> None:
        """Make an atomic change that adds about `size` bytes. It is on disk when this method returns."""
        self._check_process()
        with self._lock:
            while True:
                try:
                    try:
                        with self._begin(write=True) as transaction:
                            change(transaction)
                        return
                    except self._lmdb.MapFullError:
                        length = self._env.info()["map_size"]
                        self._env.set_mapsize(length + max(length, 2 * size))
                except self._lmdb.Error as error:
                    # The failure may have left the environment in a state that LMDB calls fatal.
                    self._env.close()
                    self._env = self._opened(create=False)
                    raise self._unwritten(error, size) from error

    def sync_folder(self) -> None:
        """Sync the folder and its parent, so that the names of new files are on disk."""
        if os.name == "nt":
            return  # Windows cannot open folders, and syncs names with the files
        for folder in (self._path, self._path.parent):
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def close(self) -> None:
        """Close the file. More calls do nothing."""
        if os.getpid() != self._process:
            return  # the file and its locks belong to the parent process
        with self._lock:
            if self._env is not None:
                self._env.close()
                self._env = None
            self._writer.release()

    def _check_process(self) -> None:
        """Refuse to work in a forked process. This precedes the lock, which a thread of the parent may have held."""
        if os.getpid() != self._process:
            raise ValueError(f"the store at {self._path} was opened before a fork; each process must open it itself")

    def _unwritten(self, error: Exception, size: int) -> OSError:
        """Return an error that says why the write failed. LMDB itself does not always report a full disk as such."""
        kept = f"nothing was added to the store at {self._path}, and what was there can be read"
        if isinstance(error, self._lmdb.DiskError) or shutil.disk_usage(self._path).free < size + _OVERHEAD:
            return OSError(errno.ENOSPC, f"the disk is full; {kept}")
        return OSError(f"{kept}: {error}")

    def _begin(self, *, write: bool) -> Any:
        if self._env is None:
            raise ValueError(f"the store at {self._path} is closed")
        try:
            return self._env.begin(write=write, buffers=True)
        except self._lmdb.MapResizedError:  # the writer, in another process, enlarged the map
            self._env.set_mapsize(0)
            return self._env.begin(write=write, buffers=True)

    def _opened(self, *, create: bool) -> Any:
        try:
            return self._lmdb.open(
                os.fspath(self._path.resolve()), map_size=FIRST_MAP, readonly=self._readonly, create=create
            )
        except self._lmdb.Error as error:
            if "already open" in str(error):
                raise OSError(
                    f"the store at {self._path} is already open in this process; share that store between threads"
                ) from error
            raise OSError(f"the store at {self._path} cannot be opened: {error}") from error

    def _become_writer(self) -> None:
        """Take the lock that excludes a second writer. The system releases it when this process ends."""
        try:
            self._writer.acquire()
        except TimeoutError as error:
            raise OSError(
                f"the store at {self._path} already has a writer, and only one is allowed; use readonly=True to read it"
            ) from error
