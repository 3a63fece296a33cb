"""Sparsity patterns: the keys that a query may see, as expressions of primitives joined by ``|`` and ``&``.

Patterns use token indices. With S keys, the last query has index ``S - 1``, like the last key, and the query before it
has index ``S - 2``. Each class below defines which pairs it allows of a query with index p and a key with index j.
Causality and the span further restrict the pairs of a pattern.
"""

from headspan.patterns.base import Pattern
from headspan.patterns.blocks import Blocks
from headspan.patterns.mask import Mask
from headspan.patterns.neighborhood import Neighborhood
from headspan.patterns.primitives import Blockwise, Fixed, Full, Global, Random, Strided, Window

__all__ = [
    "Blocks",
    "Blockwise",
    "Fixed",
    "Full",
    "Global",
    "Mask",
    "Neighborhood",
    "Pattern",
    "Random",
    "Strided",
    "Window",
]


def __dir__() -> list[str]:
    return __all__
