"""The table: what the attention of each library can do on a CPU, tried.

A cell says *yes* where an argument of the library gives the numbers of the definition in float32, *dense* where a mask
or a bias of all pairs has to be written for it, which computes all pairs, and *no* where there is nothing, or where it
was tried and raised; what was raised stands below the table.
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

from benchmarks.abilities.cases import ABILITIES, Inputs, expected, inputs
from benchmarks.measure.machine import describe_machine

LIBRARIES = {
    "headspan": ("headspan", "benchmarks.abilities.own", "tries"),
    "torch, sdpa": ("torch", "benchmarks.abilities.of_torch", "of_sdpa"),
    "torch, flex": ("torch", "benchmarks.abilities.of_torch", "of_flex"),
    "jax": ("jax", "benchmarks.abilities.of_jax", "of_jax"),
}
TOLERANCE = 1e-4


@dataclass
class Cell:
    """What came of a try."""

    library: str
    ability: str
    had: str  # yes, dense or no
    error: float | None = None  # the largest, against the definition
    raised: str | None = None


def tried(library: str, ability: str, how: str, compute: Callable[[Inputs], Any], given: Inputs, right: Any) -> Cell:
    """Try one, whatever comes of it."""
    try:
        found = compute(given)
        error = None if right is None else _difference(found, right)
    except Exception as problem:  # what a library cannot do it says in many ways
        lines = str(problem).strip().splitlines()
        return Cell(library, ability, "no", raised=f"{type(problem).__name__}: {lines[0] if lines else ''}")
    if error is not None and not error < TOLERANCE:
        return Cell(library, ability, "no", error, "other numbers than those of the definition")
    return Cell(library, ability, how, error)


def _difference(found: Any, right: Any) -> float:
    if isinstance(right, tuple):
        return max(_difference(one, its) for one, its in zip(found, right, strict=True))
    return float(np.abs(np.asarray(found, np.float64) - right).max())


def all_cells() -> list[Cell]:
    """Try everything with the libraries that are installed."""
    given, cells = inputs(), []
    right = expected(given)
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
                cells.append(tried(library, ability, how, compute, given, right.get(ability)))
            else:
                cells.append(Cell(library, ability, "no"))
    return cells


def table(cells: list[Cell], machine: dict[str, Any]) -> str:
    """Return the cells as Markdown, with the versions of all."""
    versions = {"headspan": hs.__version__, **machine["versions"]}
    libraries = list(dict.fromkeys(cell.library for cell in cells))
    heads = [f"{name} ({versions[LIBRARIES[name][0]].partition('+')[0]})" for name in libraries]
    lines = [f"| | {' | '.join(heads)} |", f"| --- |{' --- |' * len(libraries)}"]
    had = {(cell.library, cell.ability): cell for cell in cells}
    for ability, words in ABILITIES.items():
        its = [had[name, ability] for name in libraries]
        lines.append(f"| {ability}: {words} | {' | '.join(f'{c.had}*' if c.raised else c.had for c in its)} |")
    raised = [f"- {cell.library}, {cell.ability}: {cell.raised}" for cell in cells if cell.raised]
    return "\n".join([*lines, "", *(["Tried, and what was raised (*):", "", *raised] if raised else [])])


def main() -> None:
    """Try everything, print the table, and write it where it is asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.abilities", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every cell, with the versions")
    given = parser.parse_args()
    machine: dict[str, Any] = describe_machine(1)
    cells = all_cells()
    print(table(cells, machine))
    if given.json:
        given.json.write_text(
            json.dumps({"machine": machine, "cells": [asdict(cell) for cell in cells]}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
