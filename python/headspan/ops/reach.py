"""Reach of spans and patterns in tokens: what a cache must keep and what a slice of the tokens must receive."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headspan.ops.spans import farthest
from headspan.patterns.base import Pattern, Primitive
from headspan.patterns.primitives import Blockwise, Global, Window

UNLIMITED = 2**62


def of_spans(spans: npt.NDArray[np.float64], ramp: float) -> npt.NDArray[np.int64]:
    """Return the largest distance at which the mask of each span is above 0."""
    furthest = farthest(spans, ramp)
    return np.where(furthest < UNLIMITED, furthest, UNLIMITED).astype(np.int64)


def of_pattern(pattern: Pattern | None, *, ahead: bool = False) -> int:
    """Return how far back or ahead a token sees in a pattern, without global tokens, which are kept separately."""
    if pattern is None:
        return UNLIMITED
    return max(min(_of_primitive(part, ahead) for part in conjunction) for conjunction in pattern.conjunctions())


def _of_primitive(primitive: Primitive, ahead: bool) -> int:
    if isinstance(primitive, Window):
        return (primitive.ahead if ahead else primitive.size - 1) * primitive.dilation
    if isinstance(primitive, Blockwise):
        return ((primitive.ahead if ahead else primitive.back) + 1) * primitive.block_size - 1
    return 0 if isinstance(primitive, Global) else UNLIMITED
