"""Timing in turns, each call between two looks at what the machine can do at that moment.

The host of a virtual machine may take its processors away, which the system counts. Short calls on two threads then
take twice as long by chance; such samples are taken again, whoever's they are.
"""

from __future__ import annotations

import gc
import itertools
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Shorter calls are repeated until a sample takes so many seconds: what the host takes is counted in hundredths only.
_SHORTEST = 0.05
# Threads of a library that waits in a loop are still busy right after its call.
_PAUSE = 5e-3
# A sample is taken again if the host took away more than this share of the processors' time, for so many seconds.
_MOST_STOLEN = 0.02
_RETAKING = 2.0


@dataclass
class Samples:
    """Samples of one contender, one a round.

    Attributes
    ----------
    repeats : int
        Calls in a sample.
    rounds : int
        Those it takes part in, which are the first.
    seconds : list of float
        Of one call.
    peaks : list of float
        FLOP/s of pure multiply-adds: the mean of just before and just after.
    retaken : int
        Samples that were thrown away for what the host did.
    """

    repeats: int
    rounds: int = 0
    seconds: list[float] = field(default_factory=list)
    peaks: list[float] = field(default_factory=list)
    retaken: int = 0

    def take(self, call: Callable[[], Any], peak: Callable[[], float]) -> None:
        """Add a sample, the least disturbed of those taken."""
        attempts: list[tuple[float, float, float]] = []
        first = now = time.perf_counter()
        while not attempts or (attempts[-1][0] > _MOST_STOLEN and now - first < _RETAKING):
            time.sleep(_PAUSE)
            started, stolen = time.perf_counter(), stolen_seconds()
            before = peak()
            seconds = time_once(call, self.repeats)
            time.sleep(_PAUSE)
            middle = (before + peak()) / 2
            now = time.perf_counter()
            share = (stolen_seconds() - stolen) / (now - started) / (os.cpu_count() or 1)
            attempts.append((share, seconds, middle))
        _, seconds, middle = min(attempts)
        self.retaken += len(attempts) - 1
        self.seconds.append(seconds)
        self.peaks.append(middle)


def stolen_seconds() -> float:
    """Processor time that the host of this virtual machine gave to others, as far as the system tells."""
    try:
        total = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    except OSError:
        return 0.0
    return int(total[8]) / os.sysconf("SC_CLK_TCK")


def time_once(call: Callable[[], Any], repeats: int = 1) -> float:
    """Return the seconds of one call, the mean of so many in a row."""
    turns = itertools.repeat(None, repeats)
    started = time.perf_counter()
    for _ in turns:
        call()
    return (time.perf_counter() - started) / repeats


def measure(
    calls: Mapping[str, Callable[[], Any]],
    peak: Callable[[], float],
    *,
    rounds: int,
    fewest: int = 1,
    budget: float | None = None,
) -> dict[str, Samples]:
    """Time calls in turn for some rounds, every other one in the reverse order.

    Parameters
    ----------
    calls : mapping of str to callable
        All of them called before, and warm.
    peak : callable
        Measures the FLOP/s of pure multiply-adds.
    rounds : int
    fewest : int
    budget : float, optional
        Seconds for one contender. Who needs more takes part in the first rounds only, though in the fewest at least.
    """
    samples = {}
    for name, call in calls.items():
        seconds = time_once(call)
        samples[name] = Samples(repeats=max(1, math.ceil(_SHORTEST / max(seconds, 1e-8))))
        # What this call took is spent of the budget too.
        affordable = rounds if budget is None else int((budget - seconds) / (seconds * samples[name].repeats))
        samples[name].rounds = min(rounds, max(fewest, affordable))
    names = list(calls)
    gc.collect()
    gc.disable()
    try:
        for turn in range(rounds):
            for name in names if turn % 2 == 0 else reversed(names):
                if turn < samples[name].rounds:
                    samples[name].take(calls[name], peak)
    finally:
        gc.enable()
    return samples
