"""Measure the time, the share of the machine's peak, the memory and the error of each contender on each case."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import headspan as hs
import numpy as np
from headspan import _core

from benchmarks.cases import Array, Case, Inputs, make_inputs, useful_work
from benchmarks.contenders import EMPTY, FULL, HEADSPAN, Contender, use_threads
from benchmarks.measure import accuracy, timing
from benchmarks.measure.memory import peak_growth
from benchmarks.measure.results import Row, Settings

# A contender whose result differs by more, relative to the largest number, computes something else and is not timed.
_LARGEST_ERROR = 1e-3


def run(
    cases: Sequence[Case],
    contenders: Sequence[Contender],
    settings: Settings,
    report: Callable[[Case, list[Row]], None] = lambda case, rows: None,
) -> list[Row]:
    """Measure all passes of all cases, and call `report` after each case."""
    rows = []
    threads = hs.get_num_threads()
    try:
        for case in cases:
            case_rows = [row for passes in case.passes for row in _run_passes(case, passes, contenders, settings)]
            report(case, case_rows)
            rows += case_rows
    finally:
        use_threads(threads)
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
                full_work = useful_work(replace(case, pattern=None), passes, inputs)
                _fill_per_pair(row, samples[row.contender], samples[FULL.name], full_work / work)
    del calls, inputs, right  # the processes that measure memory may need this memory
    headspan_names = [contender.name for contender in contenders if contender.package is None]
    for row in measured:
        if row.contender != EMPTY.name and (
            settings.memory == "all" or (settings.memory == "own" and row.contender in headspan_names)
        ):
            row.memory = peak_growth(case, passes, row.contender, threads)
    return rows


def _reason(problem: Exception) -> str:
    """Return the first line of an exception's message without leading names of exceptions."""
    message = str(problem).strip().partition("\n")[0]
    return re.sub(r"^(\w+(Error|Exception): )+", "", message) or type(problem).__name__


def _start(
    contender: Contender,
    case: Case,
    passes: str,
    inputs: Inputs,
    right: accuracy.Expected | None,
    threads: int,
    row: Row,
) -> Callable[[], Any]:
    """Prepare a contender, call it once, which may compile it, and record the error of its result."""
    prepared = contender.prepare(case, passes, inputs)
    use_threads(threads)
    value = prepared.call()
    if prepared.result is not None and right is not None:
        row.error = accuracy.error(right, prepared.result(value))
        if row.error > _LARGEST_ERROR:
            raise ValueError(f"the result differs from the definition by {row.error:.0e}")
    return prepared.call


def _fill(row: Row, samples: timing.Samples, headspan: timing.Samples) -> None:
    row.repeats = samples.repeats
    row.first_quartile, row.median, row.last_quartile = _quartiles(np.array(samples.seconds))
    row.ratio = float(np.median(_relative(samples, headspan)))
    row.peak = float(np.median(samples.peaks))
    row.seconds, row.peaks, row.retaken = samples.seconds, samples.peaks, samples.retaken


def _fill_work(row: Row, samples: timing.Samples, work: int) -> None:
    row.work = work
    row.share = float(np.median(work / np.array(samples.seconds) / np.array(samples.peaks)))


def _fill_per_pair(row: Row, samples: timing.Samples, full: timing.Samples, fewer: float) -> None:
    row.per_pair = _quartiles(fewer * _relative(samples, full))


def _relative(samples: timing.Samples, others: timing.Samples) -> Array:
    """Return times relative to those of `others` in the rounds that both took part in."""
    both = min(samples.rounds, others.rounds)
    relative: Array = np.array(samples.seconds[:both]) / np.array(others.seconds[:both])
    return relative


def _quartiles(values: Array) -> list[float]:
    return [float(q) for q in np.quantile(values, [0.25, 0.5, 0.75])]
