"""What a stream remembers of its earlier segments."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headspan.demo.config import ModelConfig

Array = NDArray[Any]


class Memory:
    """The hidden states before a batch, layer by layer, as far back as heads can come to look.

    They are constants: a step has no gradient that leads into an earlier one.

    Parameters
    ----------
    config : ModelConfig
    layers : list of ndarray, shape (batch, characters, width), optional
        What a memory held before; nothing unless given.

    References
    ----------
    Dai et al., "Transformer-XL: Attentive Language Models beyond a Fixed-Length Context", 2019, section 3.2.
    """

    def __init__(self, config: ModelConfig, layers: list[Array] | None = None) -> None:
        self.length = config.reach + config.taps - 1
        self._taps = config.taps
        self._segments: list[list[Array]] = [[] for _ in range(config.layers)]
        for kept, array in zip(self._segments, layers or [], strict=False):
            kept.append(array)

    def before(self, layer: int, reach: int) -> Array | None:
        """Return what comes before a segment as far as it is reached, and what taps at its beginning need; or None."""
        needed, parts = reach + self._taps - 1, []
        for segment in reversed(self._segments[layer]):
            if needed <= 0:
                break
            parts.append(segment[:, -needed:])
            needed -= segment.shape[1]
        return np.concatenate(parts[::-1], axis=1) if parts else None

    def keep(self, layer: int, x: Array) -> None:
        """Add a segment, and forget those that nobody can reach any more."""
        kept = self._segments[layer]
        kept.append(x)
        while sum(segment.shape[1] for segment in kept[1:]) >= self.length:
            del kept[0]

    def layers(self) -> list[Array]:
        """Return what is remembered of each layer, for a memory that goes on from here."""
        return [np.concatenate(kept, axis=1) for kept in self._segments if kept]
