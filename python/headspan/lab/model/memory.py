"""The memory of a stream: hidden states of its earlier segments."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headspan.lab.config import ModelConfig

Array = NDArray[Any]


class Memory:
    """The hidden states before a batch, for each layer, as far back as the heads can attend.

    The states are constants: no gradient flows from a step into an earlier one.

    Parameters
    ----------
    config : ModelConfig
    layers : list of ndarray, shape (batch, characters, width), optional
        Content of a saved memory, as returned by `layers`. By default the memory is empty.

    References
    ----------
    Dai et al., "Transformer-XL: Attentive Language Models beyond a Fixed-Length Context", 2019, section 3.2.
    """

    def __init__(self, config: ModelConfig, layers: list[Array] | None = None) -> None:
        self.length = config.reach + config.taps - 1
        self._taps = config.taps
        self._segments: list[list[Array]] = [[] for _ in range(config.layers)]
        for segments, array in zip(self._segments, layers or [], strict=False):
            segments.append(array)

    def before(self, layer: int, reach: int) -> Array | None:
        """Return the states before a segment within `reach` and the extent of the taps, or None if there are none."""
        needed, parts = reach + self._taps - 1, []
        for segment in reversed(self._segments[layer]):
            if needed <= 0:
                break
            parts.append(segment[:, -needed:])
            needed -= segment.shape[1]
        return np.concatenate(parts[::-1], axis=1) if parts else None

    def keep(self, layer: int, x: Array) -> None:
        """Add a segment and drop those that are out of reach."""
        segments = self._segments[layer]
        segments.append(x)
        while sum(segment.shape[1] for segment in segments[1:]) >= self.length:
            del segments[0]

    def layers(self) -> list[Array]:
        """Return the content of the memory, one array per layer, from which a new memory can continue."""
        return [np.concatenate(segments, axis=1) for segments in self._segments if segments]
