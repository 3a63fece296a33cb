"""Patterns: which keys a query may see at all, as expressions of primitives joined by ``|`` and ``&``.

A pattern goes by index: of S keys the last query has index ``S - 1``, as the last key has, and the query before it
``S - 2``. With p the index of a query and j that of a key, each class below says which pairs it allows. A span works
inside a pattern, causality on top of it.
"""

from headspan.patterns.base import Pattern
from headspan.patterns.blocks import Blocks
from headspan.patterns.neighborhood import Neighborhood
from headspan.patterns.primitives import Blockwise, Fixed, Full, Global, Local, Random, Strided

__all__ = [
    "Blocks",
    "Blockwise",
    "Fixed",
    "Full",
    "Global",
    "Local",
    "Neighborhood",
    "Pattern",
    "Random",
    "Strided",
]


def __dir__() -> list[str]:
    return __all__
