"""Patterns as text, for frameworks whose calls take only tensors, numbers and strings."""

from __future__ import annotations

import functools
import weakref

from headspan.patterns.base import Pattern
from headspan.patterns.per_head import listed


def written_pattern(pattern: object) -> str:
    """Return a pattern as its spec, a list as one line per pattern; a blank line ends each list of a nested list."""
    if isinstance(pattern, Pattern):
        one: str = spec_of(pattern)
        return one
    rows, is_nested = listed(pattern)
    end = "\n" if is_nested else ""
    return "".join(["".join([f"{spec_of(part)}\n" for part in row]) + end for row in rows])


# Live patterns by spec. Parsing the spec of thousands of blocks would take as long as their attention.
_alive: weakref.WeakValueDictionary[str, Pattern] = weakref.WeakValueDictionary()


def spec_of(pattern: Pattern) -> str:
    """Return the spec of a pattern and remember the pattern while it is alive."""
    written = pattern.to_spec()
    _alive[written] = pattern
    return written


def _read(line: str) -> Pattern:
    known = _alive.get(line)
    return Pattern.from_spec(line) if known is None else known


@functools.lru_cache(maxsize=256)
def read_pattern(written: str) -> Pattern | list[Pattern] | list[list[Pattern]]:
    """Return the pattern, or the list of patterns, that `written_pattern` wrote."""
    if written.endswith("\n\n"):
        return [[_read(line) for line in row.split("\n")] for row in written[:-2].split("\n\n")]
    *lines, last = written.split("\n")
    return _read(last) if last else [_read(line) for line in lines]
