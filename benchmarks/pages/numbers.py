"""Numbers on pages that come from files: how a figure is found, compared with its file, and replaced.

A figure is a text of a page in which ``#`` stands for a number and ``@`` for a name, with the values of a file. A
number on the page must be the value, rounded to as many decimals as the page prints. A hyphen stands for a value that
the file does not have.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PATTERNS = {"#": r"(-|[+-]?[\d,]*\.?\d+)", "@": r"(-|[\w-]+)"}


class Unmeasured(float):
    """A number that no file has: NaN, of which every part is NaN."""

    def __new__(cls) -> Unmeasured:
        """Return a NaN."""
        return super().__new__(cls, "nan")

    def __getitem__(self, key: object) -> Unmeasured:
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(())


class _Entries(dict[str, Any]):
    def __missing__(self, key: str) -> Unmeasured:
        return Unmeasured()


@dataclass(frozen=True)
class Figure:
    """A text of a page with numbers.

    Attributes
    ----------
    page : str
        Path of the page in the repository.
    file : str
        Path of the file in the repository, or a pattern that several files match.
    has_file : bool
    text : str
    values : tuple of float or str
    """

    page: str
    file: str
    has_file: bool
    text: str
    values: tuple[float | str, ...]

    @property
    def is_measured(self) -> bool:
        """Whether the file has all values."""
        return not any(map(_is_missing, self.values))


def _is_missing(value: float | str) -> bool:
    return not isinstance(value, str) and math.isnan(value)


def load(root: Path, file: str) -> Any:
    """Return the entries of a file, a list for a pattern of files, or `Unmeasured`."""
    paths = sorted(root.glob(file))
    loaded = [json.loads(path.read_text(), object_hook=_Entries) for path in paths]
    return Unmeasured() if not loaded else loaded if "*" in file else loaded[0]


def figures_of(page: str, file: str, entries: Callable[[Any], Iterator[tuple[Any, ...]]], root: Path) -> list[Figure]:
    """Return the figures that a function yields as texts and values."""
    has_file = any(root.glob(file))
    return [Figure(page, file, has_file, text, tuple(values)) for text, *values in entries(load(root, file))]


def find(figure: Figure, page: str) -> re.Match[str]:
    """Return the place of a figure in the text of its page.

    Raises
    ------
    ValueError
        If the text does not occur once.
    """
    pattern = "".join(
        _PATTERNS.get(part, re.sub(r"(?:\\?\s)+", r"\\s+", re.escape(part))) for part in re.split("([#@])", figure.text)
    )
    matches = list(re.finditer(rf"(?<![\w.]){pattern}(?![\w]|\.\d)", page))
    if len(matches) != 1 or len(matches[0].groups()) != len(figure.values):
        raise ValueError(f"{figure.page} must have once, with {len(figure.values)} values: {figure.text}")
    return matches[0]


def _printed(figure: Figure, value: float | str, like: str) -> str:
    """Return a value in the form of what the page prints now."""
    if isinstance(value, str):
        return value
    if _is_missing(value):
        return "-" if figure.has_file else like
    fraction = like.partition(".")[2]
    decimals = len(fraction) if like != "-" else max(0, 1 - math.floor(math.log10(abs(value)))) if value else 0
    number = f"{value:{'+' if like[0] == '+' else ''}{',' if abs(value) >= 10_000 else ''}.{decimals}f}"
    return re.sub(r"\b0\.", ".", number) if re.match(r"[+-]?\.", like) else number


def wrong_numbers(figure: Figure, page: str) -> list[str]:
    """Return a message for each number of a figure that is not that of the file."""
    try:
        match = find(figure, page)
    except ValueError as error:
        return [str(error)]
    right = [_printed(figure, value, like) for value, like in zip(figure.values, match.groups(), strict=True)]
    place = f"{figure.page}: {' '.join(match[0].split())}"
    return [
        f"{place}: {printed} should be {expected} as in {figure.file}"
        for printed, expected in zip(match.groups(), right, strict=True)
        if printed.replace(",", "") != expected.replace(",", "")
    ]


def with_numbers(figure: Figure, page: str) -> str:
    """Return the text of a page with the numbers of the file."""
    match = find(figure, page)
    for place in range(len(figure.values), 0, -1):
        begin, end = match.span(place)
        page = page[:begin] + _printed(figure, figure.values[place - 1], match[place]) + page[end:]
    return page
