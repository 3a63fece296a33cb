"""The patterns of the cases, by the names that cases and JSON files use."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from headspan.patterns import Blocks, Blockwise, Global, Neighborhood, Pattern, Strided, Window

_BLOCK = 64


def _quarter_of_blocks(tokens: int) -> Pattern:
    """Draw a random quarter of the blocks in each row of blocks."""
    blocks = -(-tokens // _BLOCK)
    mask = np.tile(np.arange(blocks) < max(1, blocks // 4), (blocks, 1))
    return Blocks(np.random.default_rng(0).permuted(mask, axis=1), _BLOCK)


def _neighborhood(tokens: int) -> Pattern:
    """Return a 7 x 7 window on a square grid of tokens."""
    side = math.isqrt(tokens)
    return Neighborhood((side, side), window=min(7, side))


# Functions of the number of tokens, which must be a square for the neighborhood.
PATTERNS: dict[str, Callable[[int], Pattern]] = {
    "local": lambda tokens: Window(65, 64),
    "strided-32": lambda tokens: Strided(32),
    "strided-128": lambda tokens: Strided(128),
    "blockwise-256": lambda tokens: Blockwise(256),
    "longformer": lambda tokens: Window(65, 64) | Global(range(min(4, tokens))),
    "mixed": lambda tokens: Window(65, 64) | Strided(128) | Global(range(min(4, tokens))),
    "blocks-25": _quarter_of_blocks,
    "neighborhood-7": _neighborhood,
}
