"""The functions that yield the figures of pages.

A function yields the texts of one page with the values of one file. Put a new text there, with ``#`` for each number
and ``@`` for each name, or write a new function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.pages.numbers import Figure, figures_of

ROOT = Path(__file__).parents[2]
Entries = Callable[[Any], Iterator[tuple[Any, ...]]]
_FUNCTIONS: list[tuple[str, str, Entries]] = []


def figures(page: str, file: str) -> Callable[[Entries], Entries]:
    """Register a function that yields texts of a page and values of a file, or of all files of a pattern."""

    def register(entries: Entries) -> Entries:
        _FUNCTIONS.append((page, file, entries))
        return entries

    return register


def all_figures(root: Path = ROOT) -> list[Figure]:
    """Return the figures of all pages."""
    for path in sorted(Path(__file__).parent.glob("of_*.py")):
        import_module(f"benchmarks.pages.{path.stem}")
    return [figure for page, file, entries in _FUNCTIONS for figure in figures_of(page, file, entries, root)]
