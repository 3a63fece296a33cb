"""The heads of all layers side by side, as pictures and views take them, and the characters they read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def side_by_side(layers: Sequence[tuple[Array, Array, Array]]) -> list[Array]:
    """Return query, key and value of all heads, each (layers * heads, tokens, head_dim), of the first sequence."""
    return [np.concatenate([layer[i][0] for layer in layers]) for i in range(3)]


def head_names(layers: int, heads: int) -> list[str]:
    """Return what the heads are called, counted from 1 as in all pictures."""
    return [f"layer {layer + 1}, head {head + 1}" for layer, head in np.ndindex(layers, heads)]


def characters(data: NDArray[np.uint8]) -> list[str]:
    """Return every byte as one character; those of several bytes have no one place."""
    return [chr(byte) if 0x20 <= byte < 0x7F or byte in (0x09, 0x0A) else "\u00b7" for byte in data.tolist()]
