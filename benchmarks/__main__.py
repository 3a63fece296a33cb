"""The command ``python -m benchmarks``."""

from __future__ import annotations

import os

# The threads of NumPy are not measured and must not spin next to those that are. NumPy reads this when it is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from fnmatch import fnmatchcase
from pathlib import Path

import headspan as hs
from headspan.lab.machine import describe_machine

from benchmarks.cases import CASES, Case
from benchmarks.contenders import PEERS, choose
from benchmarks.measure.results import Row, Settings
from benchmarks.measure.run import run
from benchmarks.output import tables
from benchmarks.output.saved import Report, from_json, to_json, write_report

FULL = Settings(threads=0, rounds=15, fewest=3, budget=6.0)
QUICK = Settings(threads=0, rounds=9, fewest=2, budget=0.8, memory="own")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds, no memory of peers, and the main cases only")
    names = ", ".join(peer.name for peer in PEERS)
    parser.add_argument("--peers", nargs="*", metavar="NAME", help=f"only these; none for headspan alone: {names}")
    parser.add_argument("--cases", nargs="+", metavar="PATTERN", help="only cases whose name matches, or of that group")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured, after each case")
    parser.add_argument("--resume", action="store_true", help="skip the cases that the file of --json has already")
    parser.add_argument("--figures", type=Path, metavar="DIR", help="draw the figures as SVG (needs matplotlib)")
    parser.add_argument("--from", type=Path, metavar="FILE", dest="source", help="measure nothing, read this JSON")
    parser.add_argument("--threads", type=int, metavar="N", help="of everybody; unless given, those of headspan")
    parser.add_argument("--rounds", type=int, metavar="N", help="of every case, however long they take")
    return parser


def _select(cases: Sequence[Case], patterns: Sequence[str] | None, quick: bool) -> list[Case]:
    if patterns is None:
        return [case for case in cases if case.quick or not quick]

    def named(case: Case) -> bool:
        return any(p in case.name or p == case.group or fnmatchcase(case.name, p) for p in patterns)

    return [case for case in cases if named(case)]


def _print(text: str) -> None:
    print(text, flush=True)


def main(arguments: Sequence[str] | None = None, cases: Sequence[Case] = CASES) -> int:
    """Run the command.

    Parameters
    ----------
    arguments : sequence of str, optional
        Arguments of the command. Default: the arguments of the process.
    cases : sequence of Case
        The cases to choose from.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    for name in ("threads", "rounds"):
        number = getattr(options, name)
        if number is not None and number < 1:
            parser.error(f"--{name} must be at least 1, not {number}")
    if options.source is not None:
        report = _selected(json.loads(options.source.read_text()), options)
        _print_report(report)
    else:
        try:
            contenders = choose(options.peers)
        except ValueError as error:
            parser.error(str(error))
        selected = _select(cases, options.cases, options.quick)
        if not selected:
            parser.error(f"no case is named so; there are {', '.join(case.name for case in cases)}")
        settings = replace(QUICK if options.quick else FULL, threads=options.threads or hs.get_num_threads())
        if options.rounds is not None:
            settings = replace(settings, rounds=options.rounds, budget=None)
        report = to_json(describe_machine(settings.threads), settings, [], [])
        if options.resume and options.json is not None and options.json.exists():
            report = _resumed(parser, options.json, report)
        _print(tables.heading(report["machine"]))
        progress = _Progress(selected, report, options.json)
        run(progress.missing, contenders, settings, progress)
        _print(tables.notes(progress.rows))
    if options.figures is not None:
        from benchmarks.output.figures import draw

        for path in draw(*from_json(report), options.figures):
            _print(f"wrote {path}")
    return 0


def _selected(report: Report, options: argparse.Namespace) -> Report:
    """Return the part of a report with the selected cases."""
    cases, rows = from_json(report)
    names = {case.name for case in _select(cases, options.cases, options.quick)}
    parts = {"cases": [asdict(case) for case in cases], "rows": [asdict(row) for row in rows]}
    return {
        **report,
        "cases": [case for case in parts["cases"] if case["name"] in names],
        "rows": [row for row in parts["rows"] if row["case"] in names],
    }


def _resumed(parser: argparse.ArgumentParser, path: Path, new: Report) -> Report:
    """Return the report in a file, which must be of the same machine and settings on any day."""
    report: Report = json.loads(path.read_text())
    same = {**report["machine"], "date": new["machine"]["date"]} == new["machine"]
    if not same or report["settings"] != new["settings"]:
        parser.error(f"{path} was measured on another machine or with other settings; choose another file")
    return report


class _Progress:
    """A callback that adds a case to the report, writes it, and prints the table of a group after its last case.

    Attributes
    ----------
    missing : list of Case
        The selected cases that the report did not have at first.
    rows : list of Row
        The rows of all cases of the report.
    """

    def __init__(self, cases: Sequence[Case], report: Report, path: Path | None) -> None:
        self._report, self._path = report, path
        self._cases, self.rows = from_json(report)
        self.missing = [case for case in cases if case not in self._cases]
        self._left = [case.name for case in self.missing]

    def __call__(self, case: Case, rows: list[Row]) -> None:
        self._left.remove(case.name)
        self._cases.append(case)
        self.rows += rows
        self._report["cases"].append(asdict(case))
        self._report["rows"] += map(asdict, rows)
        if self._path is not None:
            write_report(self._report, self._path)
        if sys.stderr.isatty():
            print(f"{case.name} done, {len(self._left)} cases left", file=sys.stderr)
        if not any(other.group == case.group and other.name in self._left for other in self.missing):
            _print(tables.group_table(case.group, self._cases, self.rows))


def _print_report(report: Report) -> None:
    cases, rows = from_json(report)
    _print(tables.heading(report["machine"]))
    for group in dict.fromkeys(case.group for case in cases):
        _print(tables.group_table(group, cases, rows))
    _print(tables.notes(rows))


if __name__ == "__main__":
    sys.exit(main())
