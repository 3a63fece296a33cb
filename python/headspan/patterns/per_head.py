"""Which pattern each batch item and head gets."""

from collections.abc import Iterable, Sequence
from typing import TypeGuard, TypeVar

from headspan import _check
from headspan.patterns.base import Pattern

T = TypeVar("T")


def per_head(given: object, batch: int, heads: int, queries: int, keys: int) -> list[Pattern]:
    """Return one pattern for all, or that of each head, or of each batch item and head, item by item; or none."""
    if given is None:
        return []
    if isinstance(given, Pattern) and given._is_shared:
        return _suited([given], queries, keys)
    rows = _rows(given, batch, heads)
    differing = [pattern for row in rows for pattern in row if not pattern._is_shared]
    for pattern in differing:
        pattern._check_shares(batch, heads)
    items = batch if len(rows) > 1 or any(pattern.items is not None for pattern in differing) else 1
    if items == 1 and not differing:
        parts = rows[0]
    else:
        places = [(item, head) for item in range(items) for head in range(heads)]
        parts = [_shared(_shared(rows, item), head)._part(item, head) for item, head in places]
    shared = _suited(parts, queries, keys)
    return shared[:1] if all(pattern is shared[0] for pattern in shared) else shared


def _suited(parts: Iterable[Pattern], queries: int, keys: int) -> list[Pattern]:
    """Return the patterns of heads, equal ones as one object, which the core plans once; all must suit the tokens."""
    same: dict[Pattern, Pattern] = {}
    shared = [same.setdefault(part, part) for part in parts]
    for part in same:
        part._check_tokens(queries, keys)
    return shared


def _rows(given: object, batch: int, heads: int) -> Sequence[Sequence[Pattern]]:
    """Return for each batch item, or for all, the pattern of each head, or of all."""
    if isinstance(given, Pattern):
        return [[given]]
    rows, is_nested = listed(given)
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


def listed(given: object) -> tuple[Sequence[Sequence[Pattern]], bool]:
    """Return the rows of a list of lists of patterns, or its one row, and whether it is one of lists."""
    if _are_patterns(given):
        return [given], False
    if isinstance(given, list | tuple) and all(_are_patterns(row) for row in given):
        return given, True
    hint = f"the class {given.__name__}; write {given.__name__}(...)" if isinstance(given, type) else ""
    if hasattr(given, "__array__"):
        hint = f"{type(given).__name__}; patterns.Blocks(mask, block_size=1) makes a pattern of a mask of all pairs"
    raise TypeError(f"pattern must be a Pattern or a list of Patterns, not {hint or _check.describe(given)}")


def _are_patterns(given: object) -> TypeGuard[Sequence[Pattern]]:
    return isinstance(given, list | tuple) and all(isinstance(part, Pattern) for part in given)


def _shared(of_each: Sequence[T], index: int) -> T:
    return of_each[index if len(of_each) > 1 else 0]
