"""Arrays, names and characters in the form that pictures and interactive views expect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def side_by_side(layers: Sequence[tuple[Array, Array, Array]]) -> list[Array]:
    """Return query, key and value of the first sequence, each of shape (layers * heads, tokens, head_dim)."""
    return [np.concatenate([layer[i][0] for layer in layers]) for i in range(3)]


def head_names(layers: int, heads: int) -> list[str]:
    """Return the names of the heads, counted from 0 as in all pictures and messages."""
    return [f"layer {layer}, head {head}" for layer, head in np.ndindex(layers, heads)]


def characters(data: NDArray[np.uint8]) -> list[str]:
    """Return one character per byte, with a dot for bytes that are not printable ASCII, tab or newline."""
    return [chr(byte) if 0x20 <= byte < 0x7F or byte in (0x09, 0x0A) else "\u00b7" for byte in data.tolist()]
