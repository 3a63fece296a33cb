"""The default of `causal`."""

from __future__ import annotations

from collections.abc import Sequence

from headspan import _check
from headspan.patterns.base import Pattern


def resolve_causal(
    causal: object, patterns: Sequence[Pattern], queries: int, keys: int, *, placed: bool = False
) -> bool:
    """Return `causal` if it was passed, or otherwise the default for the patterns of the heads.

    Parameters
    ----------
    causal : bool or None
    patterns : sequence of Pattern
        One pattern for all heads, one per head, or none.
    queries, keys : int
    placed : bool
        Whether `query_positions` were passed.

    Raises
    ------
    ValueError
        If the choice is ambiguous: for a pattern that looks both ways, or queries before all keys.
    TypeError
        If `causal` is not a bool.
    """
    if causal is not None:
        return _check.flag("causal", causal)
    choices = set()
    for pattern in dict.fromkeys(patterns):
        for primitive in pattern.primitives():
            if primitive.default_causal is None:
                raise ValueError(
                    f"causal must be given with {primitive.short_name()}, which looks both ways: "
                    "True for keys up to the query's own, False for all of them"
                )
        choices.add(all(primitive.default_causal for primitive in pattern.primitives()))
    if len(choices) > 1:
        raise ValueError("causal must be given if only some heads have patterns that are causal along each axis")
    if queries > keys and not placed:
        raise ValueError(
            f"causal must be given for more queries than keys, {queries} and {keys}: False for all keys; "
            "with True, queries before all keys see none"
        )
    return choices.pop() if choices else True
