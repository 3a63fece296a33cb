"""How many tokens back somebody can look: what a cache has to keep."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headspan.patterns.base import Pattern, Primitive
from headspan.patterns.primitives import Blockwise, Global, Local

UNLIMITED = 2**62


def of_spans(spans: npt.NDArray[np.float64], ramp: float) -> npt.NDArray[np.int64]:
    """Return the largest distance at which the mask of each span is above 0."""
    furthest = np.maximum(np.floor(spans), np.ceil(spans + ramp) - 1)
    return np.where(furthest < UNLIMITED, furthest, UNLIMITED).astype(np.int64)


def of_pattern(pattern: Pattern | None) -> int:
    """Return how far back a pattern lets a token see, but for global tokens, which are kept for themselves."""
    if pattern is None:
        return UNLIMITED
    return max(min(map(_of_primitive, conjunction)) for conjunction in pattern._conjunctions())


def _of_primitive(primitive: Primitive) -> int:
    if isinstance(primitive, Local):
        return primitive.before * primitive.dilation
    if isinstance(primitive, Blockwise):
        return (primitive.back + 1) * primitive.block_size - 1
    return 0 if isinstance(primitive, Global) else UNLIMITED
