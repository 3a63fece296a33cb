"""Conversion of all results to JSON and back."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import headspan as hs
from headspan.lab.machine import describe_machine
from headspan.lab.runs import replace_file

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


def write_report(report: Report, path: Path) -> None:
    """Write a report of `to_json`, with one line for each case and each row."""
    lists = {
        name: ",\n".join(f"  {json.dumps(entry, allow_nan=False)}" for entry in report[name])
        for name in ("cases", "rows")
    }
    head = "".join(f' "{name}": {json.dumps(report[name])},\n' for name in ("machine", "settings"))
    body = ",\n".join(f' "{name}": [\n{lines}\n ]' for name, lines in lists.items())
    replace_file(path, f"{{\n{head}{body}\n}}\n".encode())


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--json`` of all studies."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results, the machine and the date")


def write_study(path: Path | None, results: Report) -> None:
    """Write the results of a study with the machine, the versions and the date, unless the path is None."""
    if path is not None:
        machine = describe_machine(hs.get_num_threads())
        replace_file(path, (json.dumps({"machine": machine, **results}, indent=1, allow_nan=False) + "\n").encode())
