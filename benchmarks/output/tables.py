"""The results as text, with one table per group of cases, in 120 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.cases import BACKWARD, BOTH, FORWARD, GROUPS, Case
from benchmarks.contenders import HEADSPAN, HEADSPAN_CONTENDERS, PEERS
from benchmarks.measure.results import Row
from benchmarks.output import rivals

_WIDTH = 120
_LINE = "{:<14} {:<16} {:<16} {:>9} {:>21} {:>9} {:>8} {:>10} {:>8}"
_HEAD = ("case", "passes", "contender", "median", "quartiles", "x headspan", "of peak", "memory", "error")
_PAIR_LINE = "{:<14} {:>8} {:>8} {:>24} {:>24} {:>24}"
_LEGEND = """\
median, quartiles  time of a call
x headspan         time relative to headspan's in the same round, the median over the rounds
of peak            work of the pairs with a mask above 0 (4 head_dim per pair forward, 10 backward) divided by the time,
                   as a share of the speed of pure multiply-adds on as many threads at that moment
memory             largest resident memory in addition to the inputs: results, scratch, masks made before
error              largest difference from float64, relative to the largest value of its array (out and gradients)"""


def _scaled(value: float, units: Sequence[tuple[float, str]]) -> str:
    size, unit = next((u for u in units if value >= u[0]), units[-1])
    number = value / size
    digits = 0 if number >= 99.95 else 1 if number >= 9.995 else 2
    return f"{number:.{digits}f} {unit}"


def time_text(seconds: float) -> str:
    """Format a time with three digits and a unit."""
    return _scaled(seconds, ((1, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")))


def memory_text(size: int) -> str:
    """Format a size with three digits and a unit. The kernel counts memory no more precisely."""
    return "<0.3 MB" if size < 3e5 else _scaled(size, ((1e9, "GB"), (1e6, "MB")))


def _optional(value: Any, text: Any) -> str:
    return "-" if value is None else text(value)


def _lines(case: Case, rows: Sequence[Row]) -> Iterator[str]:
    """Yield the lines of one case. Contenders that are not installed share one line."""
    shown = case.name
    for passes in case.passes:
        shown_passes = passes
        case_rows = [row for row in rows if row.case == case.name and row.passes == passes]
        for row in case_rows:
            if row.absent == "not installed":
                continue
            if row.absent:
                line = f"{shown:<14} {shown_passes:<16} {row.contender:<16} {row.absent}"
            else:
                assert row.median is not None
                assert row.first_quartile is not None
                assert row.last_quartile is not None
                line = _LINE.format(
                    shown,
                    shown_passes,
                    row.contender,
                    time_text(row.median),
                    f"{time_text(row.first_quartile)} - {time_text(row.last_quartile)}",
                    _optional(row.ratio, lambda ratio: f"{ratio:.3g}"),
                    _optional(row.share, lambda share: f"{share:.1%}"),
                    _optional(row.memory, memory_text),
                    _optional(row.error, lambda error: f"{error:.0e}"),
                )
            yield line[:_WIDTH].rstrip()
            shown = shown_passes = ""
        missing = [row.contender for row in case_rows if row.absent == "not installed"]
        if missing:
            yield f"{'':<31} not installed: {', '.join(missing)}"[:_WIDTH]


def group_table(group: str, cases: Sequence[Case], rows: Sequence[Row]) -> str:
    """Return the table of the cases of one group."""
    lines = [GROUPS.get(group, group), "", _LINE.format(*_HEAD), "-" * _WIDTH]
    members = [case for case in cases if case.group == group]
    for case in members:
        lines += _lines(case, rows)
    names = {case.name for case in members}
    retaken = sum(row.retaken for row in rows if row.case in names)
    if retaken:
        lines += ["", f"{retaken} samples were taken again: the host had taken the processors away."]
    return "\n".join([*lines, *rivals.lines(members, rows), *_per_pair(members, rows)]) + "\n"


def _per_pair(cases: Sequence[Case], rows: Sequence[Row]) -> Iterator[str]:
    """Yield the lines of a second table for patterns: the time per allowed pair."""
    by_key = {(row.case, row.passes): row for row in rows if row.contender == HEADSPAN.name and row.per_pair}
    passes = (FORWARD, BACKWARD, BOTH)
    shown = [case for case in cases if any((case.name, p) in by_key for p in passes)]
    if not shown:
        return
    yield from ("", "Time per allowed pair, relative to headspan-full's in the same round: median (quartiles)", "")
    yield _PAIR_LINE.format("case", "allowed", "at most", *passes)
    yield "-" * _WIDTH
    for case in shown:
        case_rows = [by_key.get((case.name, p)) for p in passes]
        work = None if case_rows[0] is None else case_rows[0].work
        allowed = _optional(work, lambda work, case=case: f"{work / (4 * case.head_dim * case.scores):.2%}")
        yield _PAIR_LINE.format(
            case.name, allowed, _optional(case.at_most, str), *(_optional(row, _pair_text) for row in case_rows)
        ).rstrip()


def _pair_text(row: Row) -> str:
    first, median, last = row.per_pair
    return f"{median:.2f} ({first:.2f} - {last:.2f})"


def heading(machine: Mapping[str, Any]) -> str:
    """Return a description of the machine and of the columns."""
    build = machine["build"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    lines = [
        f"{machine['cpu']}, {machine['cores']} cores, {machine['threads']} threads",
        _wrapped(f"headspan's kernel: {build['isa']}, {build['compiler']}; Python {machine['python']}, {versions}"),
        "",
        _LEGEND,
        "",
    ]
    return "\n".join(lines)


def notes(rows: Sequence[Row]) -> str:
    """Return the remarks about the peers that took part."""
    present = {row.contender for row in rows if not row.absent}
    remarks = [
        f"{peer.name}: {peer.note}" for peer in (*HEADSPAN_CONTENDERS, *PEERS) if peer.note and peer.name in present
    ]
    return "\n".join(_wrapped(remark) for remark in remarks)


def _wrapped(text: str) -> str:
    return textwrap.fill(text, _WIDTH, subsequent_indent="    ")
