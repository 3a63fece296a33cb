"""The data of a run that its report shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headspan.lab.config import ModelConfig, TrainConfig
from headspan.lab.model.forward import mean_spans
from headspan.lab.report import pictures
from headspan.lab.report.page import figure
from headspan.lab.runs import Row, Run, State
from headspan.lab.text import Text
from headspan.lab.training.baselines import Pairs

Array = NDArray[Any]


@dataclass(frozen=True)
class Subject:
    """The run, model and measurements that the sections of a report use."""

    run: Run
    text: Text
    model: ModelConfig
    training: TrainConfig
    state: State
    bits: Array  # of each character of the test text except the first
    layer_spans: Sequence[Any]  # per layer: (heads,), a number, or (batch, heads, characters) on a passage
    pairs: Pairs | None  # None if spans are not finite
    rows: list[Row]  # metrics up to the step of the state; a killed run may have written more
    pictures: dict[str, Any] = field(default_factory=dict)  # pictures drawn so far, by name

    @property
    def spans(self) -> Array:
        """The span of each head, (layers, heads), or its mean if characters predict spans."""
        return mean_spans(self.model.heads, self.layer_spans)

    @property
    def test_bits(self) -> float:
        """Mean bits per character on the test text."""
        return float(self.bits.mean(dtype=np.float64))

    def figure(self, picture: Any, name: str, label: str, *, wide: bool = False) -> str:
        """Store a picture under its name and return its HTML."""
        self.pictures[name] = picture
        return figure(pictures.for_page(pictures.to_svg(picture, name)), label, wide=wide)
