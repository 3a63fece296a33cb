"""Which pattern each head gets."""

from headspan import _check
from headspan.patterns.base import Pattern, suited


def per_head(given: object, heads: int, queries: int, keys: int) -> list[Pattern]:
    """Return the pattern of each head, or one for all, or none."""
    if given is None:
        return []
    if isinstance(given, Pattern):
        return given._of_heads(heads, queries, keys)
    parts = listed(given)
    if len(parts) != heads:
        raise ValueError(f"pattern must be one or a list of {heads}, one for each head, not of {len(parts)}")
    if any(part.heads is not None for part in parts):
        raise ValueError("a list of patterns must not hold Blocks per head")
    return suited(parts, queries, keys)


def listed(given: object) -> list[Pattern]:
    """Return the patterns of a list."""
    if isinstance(given, list | tuple) and all(isinstance(part, Pattern) for part in given):
        return list(given)
    hint = f"the class {given.__name__}; write {given.__name__}(...)" if isinstance(given, type) else ""
    if hasattr(given, "__array__"):
        hint = f"{type(given).__name__}; patterns.Blocks(mask, block_size=1) makes a pattern of a mask of all pairs"
    raise TypeError(f"pattern must be a Pattern or a list of Patterns, not {hint or _check.describe(given)}")
