"""Test what the attention of each library can compute on a CPU, and print a table.

A cell is *yes* if an argument of the library gives the results of the definition in float32, *dense* if the user has to
write a mask or bias of all pairs, which computes all pairs, and *no* if the library has no such option or raised an
error. The errors are listed below the table.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import headspan as hs
import numpy as np
from headspan.lab.machine import describe_machine

from benchmarks.abilities.cases import ABILITIES, Inputs, expected, inputs

LIBRARIES = {
    "headspan": ("headspan", "benchmarks.abilities.of_headspan", "tries"),
    "torch, sdpa": ("torch", "benchmarks.abilities.of_torch", "of_sdpa"),
    "torch, flex": ("torch", "benchmarks.abilities.of_torch", "of_flex"),
    "jax": ("jax", "benchmarks.abilities.of_jax", "of_jax"),
}
TOLERANCE = 1e-4


@dataclass
class Cell:
    """The result of testing one ability of one library."""

    library: str
    ability: str
    had: str  # yes, dense or no
    error: float | None = None  # the largest deviation from the definition
    raised: str | None = None


def tried(library: str, ability: str, how: str, compute: Callable[[Inputs], Any], arrays: Inputs, right: Any) -> Cell:
    """Test one ability of a library and return the cell, also if the library raises an error."""
    try:
        result = compute(arrays)
        error = None if right is None else _difference(result, right)
    except Exception as problem:  # libraries raise errors of many types for what they do not support
        lines = str(problem).strip().splitlines()
        return Cell(library, ability, "no", raised=f"{type(problem).__name__}: {lines[0] if lines else ''}")
    if error is not None and not error < TOLERANCE:
        return Cell(library, ability, "no", error, "other numbers than those of the definition")
    return Cell(library, ability, how, error)


def _difference(result: Any, right: Any) -> float:
    if isinstance(right, tuple):
        return max(_difference(*pair) for pair in zip(result, right, strict=True))
    return float(np.abs(np.asarray(result, np.float64) - right).max())


def all_cells() -> list[Cell]:
    """Test all abilities of the libraries that are installed."""
    arrays, cells = inputs(), []
    right = expected(arrays)
    for library, (package, module, function) in LIBRARIES.items():
        try:
            tries = getattr(import_module(module), function)()
        except ModuleNotFoundError as error:
            if error.name != package:
                raise
            continue
        for ability in ABILITIES:
            if ability in tries:
                how, compute = tries[ability]
                cells.append(tried(library, ability, how, compute, arrays, right.get(ability)))
            else:
                cells.append(Cell(library, ability, "no"))
    return cells


def table(cells: list[Cell], machine: dict[str, Any]) -> str:
    """Return the cells as a Markdown table with the versions of the libraries."""
    versions = {"headspan": hs.__version__, **machine["versions"]}
    libraries = list(dict.fromkeys(cell.library for cell in cells))
    heads = [f"{name} ({versions[LIBRARIES[name][0]].partition('+')[0]})" for name in libraries]
    lines = [f"| | {' | '.join(heads)} |", f"| --- |{' --- |' * len(libraries)}"]
    by_name = {(cell.library, cell.ability): cell for cell in cells}
    for ability, words in ABILITIES.items():
        row = [by_name[name, ability] for name in libraries]
        lines.append(f"| {ability}: {words} | {' | '.join(f'{c.had}*' if c.raised else c.had for c in row)} |")
    raised = [f"- {cell.library}, {cell.ability}: {cell.raised}" for cell in cells if cell.raised]
    return "\n".join([*lines, "", *(["Tried, and what was raised (*):", "", *raised] if raised else [])])


def main() -> None:
    """Test all abilities, print the table, and write the cells to the file of ``--json``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.abilities", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every cell, with the versions")
    options = parser.parse_args()
    machine: dict[str, Any] = describe_machine(1)
    cells = all_cells()
    print(table(cells, machine))
    if options.json:
        options.json.write_text(
            json.dumps({"machine": machine, "cells": [asdict(cell) for cell in cells]}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
