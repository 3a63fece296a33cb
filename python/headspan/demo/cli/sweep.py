"""What ``headspan sweep`` does."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from headspan.demo.cli.bar import Bar
from headspan.demo.runs import RunError
from headspan.demo.sweep.figures import write_figures
from headspan.demo.sweep.grid import Point, read_plan
from headspan.demo.sweep.table import write_numbers
from headspan.demo.sweep.work import Sweep, do_all


def sweep(options: argparse.Namespace) -> int:
    """Do the runs of a sweep that are not over, write what they came to, and return the exit code."""
    plan = read_plan(options.config)
    folder = options.out or Path("runs") / options.config.stem
    work = Sweep(plan, folder)
    work.check()
    again = shlex.join(["headspan", "sweep", str(options.config), *(["--out", str(folder)] if options.out else [])])
    print(f"runs: {len(plan.points)}, {len(work.results())} of them over; folder {folder}")

    def after(point: Point) -> None:
        with work.held():
            results = work.results()
            write_numbers(plan, results, folder)
        (own,) = (result for result in results if result["run"] == point.name)
        said = own["outcome"]
        if said == "finished":
            said = f"{own['test bits per character']:.4f} bits per character, mean span {own['mean span']:.1f}"
        print(f"{point.name}: {said}", flush=True)

    try:
        outcome, outcomes = do_all(work, Bar, minutes=options.minutes, after=after)
    except KeyboardInterrupt:
        print(f"interrupted; the sweep goes on with:\n  {again}")
        raise
    with work.held():
        results = work.results()
        write_numbers(plan, results, folder)
        missing = write_figures(results, folder)
    for sentence in missing:
        print(sentence)
    print(f"table: {folder / 'table.md'}\nnumbers: {folder / 'results.json'}")
    return _ended(work, outcome, outcomes, again)


def _ended(work: Sweep, outcome: str, outcomes: dict[str, str], again: str) -> int:
    results = work.results()
    open_ = len(work.plan.points) - len(results)
    if outcome != "finished" and open_:
        print(f"the sweep ended early ({outcome}); runs that are not over: {open_}; it goes on with:\n  {again}")
        return 0
    elsewhere = [name for name, ended in outcomes.items() if ended == "elsewhere" and work.result(name) is None]
    if elsewhere:
        print(f"another call is at {', '.join(elsewhere)}; when it has ended:\n  {again}")
        return 0
    diverged = [result["run"] for result in results if result["outcome"] == "diverged"]
    if diverged:
        waits = f"; windows of equal cost to them that cannot be found: {open_}" if open_ else ""
        raise RunError(f"the loss of {', '.join(diverged)} is no longer a number{waits}")
    return 0
