"""Assignment of patterns to batch items and heads."""

from collections.abc import Iterable, Sequence
from typing import TypeGuard, TypeVar

from headspan import _check
from headspan.patterns.base import Pattern

T = TypeVar("T")


def per_head(patterns: object, batch: int, heads: int, queries: int, keys: int) -> list[Pattern]:
    """Return one pattern for all, one per head, or one per batch item and head, item by item; empty for None."""
    if patterns is None:
        return []
    if isinstance(patterns, Pattern) and patterns.is_shared:
        return _checked([patterns], queries, keys)
    rows = _rows(patterns, batch, heads)
    differing = [pattern for row in rows for pattern in row if not pattern.is_shared]
    for pattern in differing:
        pattern.check_batch(batch, heads)
    items = batch if len(rows) > 1 or any(pattern.items is not None for pattern in differing) else 1
    if items == 1 and not differing:
        parts = rows[0]
    else:
        places = [(item, head) for item in range(items) for head in range(heads)]
        parts = [_shared(_shared(rows, item), head).part(item, head) for item, head in places]
    shared = _checked(parts, queries, keys)
    return shared[:1] if all(pattern is shared[0] for pattern in shared) else shared


def _checked(parts: Iterable[Pattern], queries: int, keys: int) -> list[Pattern]:
    """Check that patterns fit the tokens; return them with equal ones as one object, which the core plans once."""
    same: dict[Pattern, Pattern] = {}
    shared = [same.setdefault(part, part) for part in parts]
    for part in same:
        part.check_tokens(queries, keys)
    return shared


def _rows(patterns: object, batch: int, heads: int) -> Sequence[Sequence[Pattern]]:
    """Return a row per batch item, or one for all, with a pattern per head, or one for all."""
    if isinstance(patterns, Pattern):
        return [[patterns]]
    rows, is_nested = listed(patterns)
    if not is_nested:
        if len(rows[0]) != heads:
            raise ValueError(f"pattern must be one or a list of {heads}, one for each head, not of {len(rows[0])}")
        return rows
    if len(rows) != batch:
        raise ValueError(f"pattern must hold a list for each item of a batch of {batch}, not {len(rows)} lists")
    for row in rows:
        if len(row) not in (1, heads):
            raise ValueError(f"pattern must hold 1 or {heads} patterns for each batch item, not {len(row)}")
    return rows


def listed(value: object) -> tuple[Sequence[Sequence[Pattern]], bool]:
    """Return the rows of a nested list of patterns, or a list as its one row, and whether the list is nested."""
    if _are_patterns(value):
        return [value], False
    if isinstance(value, list | tuple) and all(_are_patterns(row) for row in value):
        return value, True
    hint = f"the class {value.__name__}; write {value.__name__}(...)" if isinstance(value, type) else ""
    if hasattr(value, "__array__"):
        hint = f"{type(value).__name__}; patterns.Mask(mask) makes a pattern of a mask"
    raise TypeError(f"pattern must be a Pattern or a list of Patterns, not {hint or _check.describe(value)}")


def _are_patterns(patterns: object) -> TypeGuard[Sequence[Pattern]]:
    return isinstance(patterns, list | tuple) and all(isinstance(part, Pattern) for part in patterns)


def _shared(rows: Sequence[T], index: int) -> T:
    return rows[index if len(rows) > 1 else 0]
