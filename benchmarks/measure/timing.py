"""Time calls in turns, each between two measurements of the machine's peak at that moment.

The host of a virtual machine can take its processors away, which the system counts as stolen time. Short calls on two
threads can then take twice as long. Such samples are repeated, for every contender.
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

# Calls are repeated until a sample takes this many seconds, since stolen time is counted in hundredths of a second.
_SHORTEST = 0.05
# Pause in seconds after a call, because some libraries' threads keep spinning for a while.
_PAUSE = 5e-3
# A sample is repeated, for up to _RETAKING seconds, if the host took more than this share of the processors' time.
_MOST_STOLEN = 0.02
_RETAKING = 2.0


@dataclass
class Samples:
    """The samples of one contender, one per round.

    Attributes
    ----------
    repeats : int
        Number of calls in a sample.
    rounds : int
        Number of rounds, from the first on, that the contender takes part in.
    seconds : list of float
        Time of one call.
    peaks : list of float
        FLOP/s of pure multiply-adds, the mean of the measurements directly before and after the calls.
    retaken : int
        Number of samples that were discarded because the host took the processors away.
    """

    repeats: int
    rounds: int = 0
    seconds: list[float] = field(default_factory=list)
    peaks: list[float] = field(default_factory=list)
    retaken: int = 0

    def take(self, call: Callable[[], Any], peak: Callable[[], float]) -> None:
        """Take samples until one is undisturbed or time runs out, and keep the least disturbed one."""
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
    """Return the stolen processor time in seconds: the time that the host gave to other virtual machines."""
    try:
        total = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    except OSError:
        return 0.0
    return int(total[8]) / os.sysconf("SC_CLK_TCK")


def time_once(call: Callable[[], Any], repeats: int = 1) -> float:
    """Return the seconds of one call, the mean over `repeats` calls."""
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
    """Time calls in turns over several rounds, with the reverse order in every second round.

    Parameters
    ----------
    calls : mapping of str to callable
        The functions to time. They must have been called before.
    peak : callable
        Measures the FLOP/s of pure multiply-adds.
    rounds : int
    fewest : int
    budget : float, optional
        Time limit for a contender in seconds. A slower one takes part in the first rounds only, at least in `fewest`.
    """
    samples = {}
    for name, call in calls.items():
        seconds = time_once(call)
        samples[name] = Samples(repeats=max(1, math.ceil(_SHORTEST / max(seconds, 1e-8))))
        # The time of this call counts towards the budget.
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
