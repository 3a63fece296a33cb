"""The source of Linux as a text whose parts have no subsystem in common.

``apt-get download linux-source-6.1`` fetches Debian's package, ``dpkg-deb`` unpacks it, and nothing is installed.
"""

from __future__ import annotations

import hashlib
import subprocess
import tarfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from headspan.lab.text import Text
from numpy.typing import NDArray

PACKAGE = "linux-source-6.1"
FOLDERS = ("block", "crypto", "drivers", "fs", "ipc", "kernel", "lib", "mm", "net", "security", "sound")
FAMILY_BYTES = 64_000  # the most that a subsystem contributes
LONGEST = 40_000  # bytes of a file; tables of registers are longer


class Part(NamedTuple):
    """One part of the text, with the number of files and their bytes."""

    families: list[str]
    files: dict[str, str]
    data: bytes


def kernel_source(folder: Path) -> KernelText:
    """Read the text, and fetch it before if `folder` does not have it."""
    parts = [_part(families) for families in _split(_families(_archive(folder)))]
    data = b"".join(part.data for part in parts)
    files = {name: sha256 for part in parts for name, sha256 in part.files.items()}
    (package,) = folder.glob(f"{PACKAGE}_*.deb")
    text = Text.from_bytes(data, f"C files of Debian's {package.stem}", files=files)
    return KernelText(**vars(text), sizes=tuple(len(part.data) for part in parts))


@dataclass(frozen=True)
class KernelText(Text):
    """The text; of its families, 80 % are for training, 10 % for validation and 10 % for the test.

    Attributes
    ----------
    sizes : tuple of int
        The bytes of the three parts.
    """

    sizes: tuple[int, ...] = ()

    def part(self, name: str) -> NDArray[np.uint8]:
        """Return the bytes of "train", "validation" or "test"."""
        ends = np.cumsum((0, *self.sizes))
        which = ("train", "validation", "test").index(name)
        return self.data[ends[which] : ends[which + 1]]


def _archive(folder: Path) -> Path:
    path = folder / "usr" / "src" / f"{PACKAGE}.tar.xz"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "download", "-qq", PACKAGE], cwd=folder, check=True)
        (package,) = folder.glob(f"{PACKAGE}_*.deb")
        subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
    return path


def _families(archive: Path) -> dict[str, dict[str, bytes]]:
    """Return C files by subsystem, which is a folder of the second level, or a folder of the first level without it."""
    families: dict[str, dict[str, bytes]] = defaultdict(dict)
    with tarfile.open(archive) as tar:
        for member in tar:
            parents = member.name.split("/")[1:-1]
            if parents and parents[0] in FOLDERS and member.name.endswith(".c") and member.size <= LONGEST:
                name = member.name.partition("/")[2]
                families["/".join(parents[:2])][name] = tar.extractfile(member).read()
    return families


def _split(families: dict[str, dict[str, bytes]]) -> list[dict[str, dict[str, bytes]]]:
    """Deal families to the parts by a hash of their names, which does not depend on their order."""
    parts: list[dict[str, dict[str, bytes]]] = [{}, {}, {}]
    for name in sorted(families, key=_hash):
        tenth = int(_hash(name)[:8], 16) % 10
        parts[0 if tenth < 8 else tenth - 7][name] = families[name]
    return parts


def _part(families: dict[str, dict[str, bytes]]) -> Part:
    chosen: dict[str, bytes] = {}
    for files in families.values():
        size = 0
        for name in sorted(files, key=_hash):
            if size + len(files[name]) <= FAMILY_BYTES:
                chosen[name] = files[name]
                size += len(files[name])
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in chosen.items()}
    return Part(list(families), hashes, b"".join(chosen.values()))


def _hash(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()
