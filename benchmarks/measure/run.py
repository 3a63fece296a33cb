"""Measure cases: every contender's time, share of the machine's peak, memory and error."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from headspan import _core

from benchmarks.cases import Array, Case, Inputs, make_inputs, useful_work
from benchmarks.contenders import EMPTY, FULL, HEADSPAN, Contender, use_threads
from benchmarks.measure import accuracy, timing
from benchmarks.measure.memory import peak_growth

Report = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """How to measure.

    Attributes
    ----------
    threads, rounds : int
    fewest : int
        Rounds of a contender that is slow.
    budget : float, optional
        Seconds of timing for a contender on one case; where it does not suffice it takes part in fewer rounds.
    memory : str
        Whose memory is measured: "all", "own" (not that of peers) or "none".
    """

    threads: int
    rounds: int
    fewest: int
    budget: float | None
    memory: str = "all"


@dataclass
class Row:
    """One contender on one case.

    Attributes
    ----------
    case, passes, contender : str
    absent : str
        Why there are no numbers; empty if there are.
    repeats : int
        Calls in a sample.
    median, first_quartile, last_quartile : float, optional
        Seconds of a call.
    ratio : float, optional
        To headspan's time: the median over the rounds.
    work : int, optional
        Floating-point operations of the pairs with a mask above 0.
    peak : float, optional
        FLOP/s of pure multiply-adds around the calls, the median.
    share : float, optional
        Of the peak: work by time by peak, the median over the rounds.
    per_pair : list of float
        Time of a pair that the pattern allows, relative to that of full attention in the same round: the quartiles.
    memory : int, optional
        Bytes beyond the inputs at the highest.
    error : float, optional
        The largest, relative to the largest value of its array.
    seconds, peaks : list of float
        All samples.
    retaken : int
        Samples taken again since the host took the processors away.
    """

    case: str
    passes: str
    contender: str
    absent: str = ""
    repeats: int = 0
    median: float | None = None
    first_quartile: float | None = None
    last_quartile: float | None = None
    ratio: float | None = None
    work: int | None = None
    peak: float | None = None
    share: float | None = None
    per_pair: list[float] = field(default_factory=list)
    memory: int | None = None
    error: float | None = None
    seconds: list[float] = field(default_factory=list)
    peaks: list[float] = field(default_factory=list)
    retaken: int = 0


def run(
    cases: Sequence[Case],
    contenders: Sequence[Contender],
    settings: Settings,
    report: Callable[[Case, list[Row]], None] = lambda case, rows: None,
) -> list[Row]:
    """Measure all passes of all cases, and report each case when it is done."""
    rows = []
    before = _core.get_num_threads()
    try:
        for case in cases:
            mine = [row for passes in case.passes for row in _run_passes(case, passes, contenders, settings)]
            report(case, mine)
            rows += mine
    finally:
        use_threads(before)
    return rows


def _run_passes(case: Case, passes: str, contenders: Sequence[Contender], settings: Settings) -> list[Row]:
    threads = case.threads or settings.threads
    inputs = make_inputs(case, passes)
    right = None if case.kind == "layer" else accuracy.expected(case, passes, inputs)
    rows, calls = [], {}
    for contender in (c for c in contenders if c.takes(case, passes)):
        row = Row(case.name, passes, contender.name, absent=contender.obstacle(case, passes))
        rows.append(row)
        if row.absent:
            continue
        try:
            calls[contender.name] = _start(contender, case, passes, inputs, right, threads, row)
        except Exception as problem:
            if contender is HEADSPAN:
                raise
            row.absent = f"failed: {_reason(problem)}"
    use_threads(threads)
    samples = timing.measure(
        calls,
        lambda: _core.fma_peak(case.dtype, threads),
        rounds=settings.rounds,
        fewest=settings.fewest,
        budget=settings.budget,
    )
    measured = [row for row in rows if not row.absent]
    for row in measured:
        _fill(row, samples[row.contender], samples[HEADSPAN.name])
    checked = [row for row in measured if row.error is not None]
    if checked:
        work = useful_work(case, passes, inputs)
        for row in checked:
            _fill_work(row, samples[row.contender], work)
            if FULL.name in samples:
                whole = useful_work(replace(case, pattern=None), passes, inputs)
                _fill_per_pair(row, samples[row.contender], samples[FULL.name], whole / work)
    del calls, inputs, right  # the processes that measure memory may need the room
    own = [contender.name for contender in contenders if contender.package is None]
    for row in measured:
        if row.contender != EMPTY.name and (
            settings.memory == "all" or (settings.memory == "own" and row.contender in own)
        ):
            row.memory = peak_growth(case, passes, row.contender, threads)
    return rows


def _reason(problem: Exception) -> str:
    """Return what an exception says, in one line and without the names of those it passed through."""
    said = str(problem).strip().partition("\n")[0]
    return re.sub(r"^(\w+(Error|Exception): )+", "", said) or type(problem).__name__


def _start(
    contender: Contender,
    case: Case,
    passes: str,
    inputs: Inputs,
    right: accuracy.Expected | None,
    threads: int,
    row: Row,
) -> Callable[[], Any]:
    """Prepare a contender and call it once, which compiles what has to be, and check what it gives."""
    prepared = contender.prepare(case, passes, inputs)
    use_threads(threads)
    value = prepared.call()
    if prepared.result is not None and right is not None:
        row.error = accuracy.error(right, prepared.result(value))
    return prepared.call


def _fill(row: Row, samples: timing.Samples, own: timing.Samples) -> None:
    row.repeats = samples.repeats
    row.first_quartile, row.median, row.last_quartile = _quartiles(np.array(samples.seconds))
    row.ratio = float(np.median(_relative(samples, own)))
    row.peak = float(np.median(samples.peaks))
    row.seconds, row.peaks, row.retaken = samples.seconds, samples.peaks, samples.retaken


def _fill_work(row: Row, samples: timing.Samples, work: int) -> None:
    row.work = work
    row.share = float(np.median(work / np.array(samples.seconds) / np.array(samples.peaks)))


def _fill_per_pair(row: Row, samples: timing.Samples, full: timing.Samples, fewer: float) -> None:
    row.per_pair = _quartiles(fewer * _relative(samples, full))


def _relative(samples: timing.Samples, others: timing.Samples) -> Array:
    """Return times relative to those of others, in the rounds that both took part in."""
    both = min(samples.rounds, others.rounds)
    relative: Array = np.array(samples.seconds[:both]) / np.array(others.seconds[:both])
    return relative


def _quartiles(values: Array) -> list[float]:
    return [float(q) for q in np.quantile(values, [0.25, 0.5, 0.75])]


def to_json(machine: Report, settings: Settings, cases: Sequence[Case], rows: Sequence[Row]) -> Report:
    """Everything, as JSON can hold it."""
    return {
        "machine": machine,
        "settings": asdict(settings),
        "cases": [asdict(case) for case in cases],
        "rows": [asdict(row) for row in rows],
    }


def from_json(report: Report) -> tuple[list[Case], list[Row]]:
    """Cases and rows of what `to_json` gave."""
    return [Case(**case) for case in report["cases"]], [Row(**row) for row in report["rows"]]
