"""Two texts that Debian packages contain: prose, and documentation that repeats itself from far away.

``apt-get download`` fetches the packages, ``dpkg-deb`` unpacks them, and nothing is installed.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import torch
from headspan.torch.fitting.data import windows_of

PACKAGES = {"bible": ("bible-kjv", "bible-kjv-text"), "python": ("python3.11-doc",)}


class Windows(NamedTuple):
    """Windows of a text for the fit, and held-out windows of two lengths.

    Attributes
    ----------
    sha256 : str
        Of the whole text.
    fitted, held_out, long : Tensor
        Token ids, (windows, tokens).
    """

    sha256: str
    fitted: torch.Tensor
    held_out: torch.Tensor
    long: torch.Tensor


def windows(
    name: str, tokenizer: object, folder: Path, *, tokens: int, count: int, long: int, long_count: int
) -> Windows:
    """Cut a text into windows: the fit takes those of the first half, and the others are from the second half.

    The parts are far apart, so that no held-out window continues a fitted one. Held-out windows are evenly spaced.
    """
    text = _text(name, folder)
    middle = text.index("\n", len(text) // 2)
    fitted = windows_of("text", text[:middle], tokenizer, tokens)
    held_out = windows_of("text", text[middle:], tokenizer, tokens)
    others = windows_of("text", text[middle:], tokenizer, long)
    return Windows(
        hashlib.sha256(text.encode()).hexdigest(), fitted, _spread(held_out, count), _spread(others, long_count)
    )


def _spread(ids: torch.Tensor, count: int) -> torch.Tensor:
    return ids[torch.linspace(0, len(ids) - 1, count).long()]


def _text(name: str, folder: Path) -> str:
    path = folder / f"{name}.txt"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        for package in PACKAGES[name]:
            subprocess.run(["apt-get", "download", "-qq", package], cwd=folder, check=True)
            (archive,) = folder.glob(f"{package}_*.deb")
            subprocess.run(["dpkg-deb", "-x", archive, folder / package], check=True)
        path.write_text(_bible(folder) if name == "bible" else _python(folder), encoding="utf-8")
    return path.read_text(encoding="utf-8")


def _bible(folder: Path) -> str:
    """Return the verses without their numbers, a chapter a paragraph."""
    command = [folder / "bible-kjv/usr/bin/bible", "-p", folder / "bible-kjv-text/usr/lib", "-f", "gen1:1-rev22:21"]
    verses = subprocess.run(
        command, check=True, capture_output=True, text=True, env=os.environ | {"COLUMNS": "100000"}
    ).stdout
    text, chapter = [], None
    for line in verses.splitlines():
        place, verse = re.fullmatch(r"(\S+?):\d+ (.*)", line.strip()).groups()
        text.append(("\n\n" if place != chapter else " ") * (chapter is not None) + verse)
        chapter = place
    return "".join(text)


def _python(folder: Path) -> str:
    """Return the sources of the pages in the order of their paths."""
    sources = folder / "python3.11-doc/usr/share/doc/python3.11/html/_sources"
    return "\n\n".join(page.read_text(encoding="utf-8") for page in sorted(sources.rglob("*.rst.txt")))
