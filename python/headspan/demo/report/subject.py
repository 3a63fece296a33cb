"""What a report is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headspan.demo.config import ModelConfig, TrainConfig
from headspan.demo.model.forward import mean_spans
from headspan.demo.report import pictures
from headspan.demo.report.page import figure
from headspan.demo.runs import Row, Run, State
from headspan.demo.text import Text

Array = NDArray[Any]


@dataclass(frozen=True)
class Subject:
    """All that the sections of a report are made of."""

    run: Run
    text: Text
    model: ModelConfig
    training: TrainConfig
    state: State
    bits: Array  # of every character of the test text but the first
    layer_spans: Sequence[Any]  # of each layer: (heads,), a number, or (batch, heads, characters) on a passage
    rows: list[Row]  # the metrics up to the state; a run that was killed may have noted more
    pictures: dict[str, Any] = field(default_factory=dict)  # drawn so far, by their names

    @property
    def spans(self) -> Array:
        """The span of every head, (layers, heads); the mean where characters predict them."""
        return mean_spans(self.model.heads, self.layer_spans)

    @property
    def test_bits(self) -> float:
        """Bits per character of the test text."""
        return float(self.bits.mean(dtype=np.float64))

    def figure(self, picture: Any, name: str, label: str, *, wide: bool = False) -> str:
        """Return a picture for the page, and keep it."""
        self.pictures[name] = picture
        return figure(pictures.for_page(pictures.to_svg(picture, name)), label, wide=wide)
