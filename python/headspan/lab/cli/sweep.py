"""The command ``headspan sweep``."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from headspan.lab.cli.bar import Bar
from headspan.lab.runs import RunError
from headspan.lab.sweep.figures import write_figures
from headspan.lab.sweep.grid import Point, read_plan
from headspan.lab.sweep.table import write_numbers
from headspan.lab.sweep.work import Sweep, do_all


def sweep(options: argparse.Namespace) -> int:
    """Train the unfinished runs of a sweep, write its table and pictures, and return the exit code."""
    plan = read_plan(options.config)
    folder = options.out or Path("runs") / options.config.stem
    work = Sweep(plan, folder)
    work.check()
    command = shlex.join(["headspan", "sweep", str(options.config), *(["--out", str(folder)] if options.out else [])])
    print(f"runs: {len(plan.points)}, {len(work.results())} of them finished; folder {folder}")

    def after(point: Point) -> None:
        with work.held():
            results = work.results()
            write_numbers(plan, results, map(work.text, plan.points), folder)
        (result,) = (result for result in results if result["run"] == point.name)
        summary = result["outcome"]
        if summary == "finished":
            summary = f"{result['test bits per character']:.4f} bits per character, mean span {result['mean span']:.1f}"
        print(f"{point.name}: {summary}", flush=True)

    try:
        outcome, outcomes = do_all(work, Bar, minutes=options.minutes, after=after)
    except KeyboardInterrupt:
        print(f"interrupted; continue the sweep with:\n  {command}")
        raise
    with work.held():
        results = work.results()
        write_numbers(plan, results, map(work.text, plan.points), folder)
        missing = write_figures(results, folder)
    for sentence in missing:
        print(sentence)
    print(f"table: {folder / 'table.md'}\nnumbers: {folder / 'results.json'}")
    return _exit_code(work, outcome, outcomes, command)


def _exit_code(work: Sweep, outcome: str, outcomes: dict[str, str], command: str) -> int:
    results = work.results()
    unfinished = len(work.plan.points) - len(results)
    if outcome != "finished" and unfinished:
        print(f"the sweep ended early ({outcome}); unfinished runs: {unfinished}; continue with:\n  {command}")
        return 0
    claimed = [name for name, ending in outcomes.items() if ending == "elsewhere" and work.result(name) is None]
    if claimed:
        print(f"another call trains {', '.join(claimed)}; when it has ended:\n  {command}")
        return 0
    diverged = [result["run"] for result in results if result["outcome"] == "diverged"]
    if diverged:
        waits = f"; windows of equal cost that cannot be determined: {unfinished}" if unfinished else ""
        raise RunError(f"the loss of {', '.join(diverged)} is no longer finite{waits}")
    return 0
