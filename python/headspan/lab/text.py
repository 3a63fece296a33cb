"""The text that a model is trained on, and its bits per byte without a model."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import stat
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headspan.lab.runs import RunError

STANDARD_LIBRARY = "the Python standard library's source"
STANDARD_LIBRARY_BYTES = 8_000_000

# These folders hold tests, generated tables, or files that differ between machines.
_SKIPPED = {
    "__pycache__", "config", "dist-packages", "ensurepip", "idlelib", "lib-dynload", "lib2to3",
    "pydoc_data", "site-packages", "test", "tests", "tkinter", "turtledemo",
}  # fmt: skip


@dataclass(frozen=True)
class Text:
    """A text with its vocabulary, split into 90 % training, 5 % validation and 5 % test data.

    Attributes
    ----------
    name : str
        Name of the file or of the source.
    path : str or None
        Absolute path of the file, or None for the standard library.
    data : ndarray of uint8
        The bytes of the text.
    vocabulary : ndarray of uint8
        The byte values that occur in the text, sorted.
    sha256 : str
        SHA-256 hash of the bytes.
    files : dict of str to str
        SHA-256 hashes of the files that the text consists of, in their order, by their paths.
    """

    name: str
    path: str | None
    data: NDArray[np.uint8]
    vocabulary: NDArray[np.uint8]
    sha256: str
    files: dict[str, str]

    @classmethod
    def from_bytes(cls, data: bytes, name: str, path: str | None = None, files: dict[str, str] | None = None) -> Text:
        """Create a text from bytes, by default those of one file."""
        array, sha256 = np.frombuffer(data, np.uint8), hashlib.sha256(data).hexdigest()
        return cls(name, path, array, np.unique(array), sha256, {name: sha256} if files is None else files)

    @property
    def about(self) -> dict[str, Any]:
        """The description of the text in ``config.json``."""
        return {
            "name": self.name,
            "path": self.path,
            "bytes": len(self.data),
            "sha256": self.sha256,
            "vocabulary": self.vocabulary.tolist(),
        }

    def encode(self, data: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return the index in the vocabulary of each byte of `data`."""
        return np.searchsorted(self.vocabulary, data)

    def part(self, name: str) -> NDArray[np.uint8]:
        """Return the bytes of one part, ``"train"``, ``"validation"`` or ``"test"``, which follow in this order.

        The split is the usual one of text8 and enwik8: 90, 5 and 5 million bytes.
        """
        size = len(self.data)
        first, second = size * 90 // 100, size * 95 // 100
        bounds = {"train": (0, first), "validation": (first, second), "test": (second, size)}
        start, stop = bounds[name]
        return self.data[start:stop]


def read_text(path: str | Path) -> Text:
    """Read a file of any kind; each byte is one character."""
    path = Path(path)
    if not stat.S_ISREG(path.stat().st_mode):  # a pipe may never end, and the report could not read it again
        raise RunError(f"{path} is not a regular file")
    return Text.from_bytes(path.read_bytes(), path.name, str(path.resolve()))


def load_text(about: Any) -> Text:
    """Read the text that the ``config.json`` of a run describes."""
    path = about.get("path", "") if isinstance(about, dict) else ""
    if path is None:
        return standard_library()
    if not isinstance(path, str) or not path or "\0" in path:
        raise RunError("config.json does not name the text that the run was trained on")
    return read_text(path)


def standard_library(limit: int = STANDARD_LIBRARY_BYTES) -> Text:
    """Read the source code of the running Python's standard library, at most `limit` bytes.

    The files are sorted by a hash of their names. This order mixes the packages and is the same on every machine, so
    the same Python version always gives the same text.
    """
    root = Path(sysconfig.get_paths()["stdlib"])
    names = [path.relative_to(root) for path in root.rglob("*.py")]
    names = [name for name in names if _is_library_source(name)]
    names.sort(key=lambda name: hashlib.sha256(name.as_posix().encode()).digest())
    chunks: dict[str, bytes] = {}
    size = 0
    for name in names:
        source = (root / name).read_bytes()
        if size + len(source) <= limit:
            chunks[name.as_posix()] = source
            size += len(source)
    files = {name: hashlib.sha256(source).hexdigest() for name, source in chunks.items()}
    return Text.from_bytes(b"".join(chunks.values()), STANDARD_LIBRARY, files=files)


def _is_library_source(name: Path) -> bool:
    if name.parts[0].startswith(("_sysconfigdata", "sitecustomize", "config-")):
        return False
    return not _SKIPPED.intersection(name.parts) and name.parts[:1] != ("encodings",)


def baselines(data: bytes) -> dict[str, float]:
    """Return the bits per byte of `data` without a model: unigram entropy, ``gzip -9`` and ``xz -9``."""
    counts: NDArray[Any] = np.bincount(np.frombuffer(data, np.uint8))
    share = counts[counts > 0] / len(data)
    return {
        "unigram entropy": float(-(share * np.log2(share)).sum()),
        "gzip -9": 8 * len(gzip.compress(data, 9)) / len(data),
        "xz -9": 8 * len(lzma.compress(data, preset=9)) / len(data),
    }
