"""Patterns as text, for frameworks whose calls are made of tensors, numbers and texts."""

from __future__ import annotations

import functools
import weakref

from headspan.patterns.base import Pattern
from headspan.patterns.per_head import listed


def written_pattern(given: object) -> str:
    """Return a pattern as its spec, a list as a line for each, and of lists each list with an empty line at its end."""
    if isinstance(given, Pattern):
        one: str = spec_of(given)
        return one
    rows, is_nested = listed(given)
    end = "\n" if is_nested else ""
    return "".join(["".join([f"{spec_of(part)}\n" for part in row]) + end for row in rows])


# A pattern that is still there need not be read: of thousands of blocks that would take as long as their attention.
_alive: weakref.WeakValueDictionary[str, Pattern] = weakref.WeakValueDictionary()


def spec_of(pattern: Pattern) -> str:
    """Return the spec of a pattern, which is found by it as long as it is there."""
    written = pattern.to_spec()
    _alive[written] = pattern
    return written


def _read(line: str) -> Pattern:
    known = _alive.get(line)
    return Pattern.from_spec(line) if known is None else known


@functools.lru_cache(maxsize=256)
def read_pattern(written: str) -> Pattern | list[Pattern] | list[list[Pattern]]:
    """Return the pattern or the list again."""
    if written.endswith("\n\n"):
        return [[_read(line) for line in row.split("\n")] for row in written[:-2].split("\n\n")]
    *lines, last = written.split("\n")
    return _read(last) if last else [_read(line) for line in lines]
