"""The numbers of a report as one JSON document, with null for numbers that are not finite."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headspan.lab.report.measure import Saving
from headspan.lab.runs import Row


def history_of(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """Return the metrics as columns; validation is None in rows without an evaluation."""
    return {name: [row.get(name) for row in rows] for name in ("step", "bits", "validation", "spans")}


def finite_rows(rows: Sequence[Row]) -> list[Row]:
    """Return the rows whose spans are all finite."""
    return [row for row in rows if np.isfinite(np.array(row["spans"], float)).all()]


def saving_numbers(saving: Saving | None) -> dict[str, Any]:
    """Return the times of a `Saving` by name, or None for each of them without a `Saving`."""
    names = {
        "forward seconds": "forward",
        "full forward seconds": "full_forward",
        "forward and backward seconds": "both",
        "full forward and backward seconds": "full_both",
        "rounds": "rounds",
    }
    return {name: None if saving is None else getattr(saving, field) for name, field in names.items()}


def mean_or_none(values: NDArray[Any]) -> float | None:
    """Return the mean, or None if it is not finite."""
    mean = float(values.mean(dtype=np.float64))
    return mean if math.isfinite(mean) else None


def document(numbers: Mapping[str, Any]) -> str:
    """Return the numbers as standard JSON, with null in place of NaN and infinity."""
    return json.dumps(_plain(numbers), indent=2, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
