"""Conversion of all results to JSON and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.cases import Case
from benchmarks.measure.results import Row, Settings

Report = dict[str, Any]


def to_json(machine: Report, settings: Settings, cases: Sequence[Case], rows: Sequence[Row]) -> Report:
    """Return the machine, the settings, the cases and their results in a form that JSON can represent."""
    return {
        "machine": machine,
        "settings": asdict(settings),
        "cases": [asdict(case) for case in cases],
        "rows": [asdict(row) for row in rows],
    }


def from_json(report: Report) -> tuple[list[Case], list[Row]]:
    """Return the cases and rows of a report that `to_json` returned."""
    return [Case(**case) for case in report["cases"]], [Row(**row) for row in report["rows"]]
