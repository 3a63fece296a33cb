"""Times of calls that take turns, for the studies."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping


def seconds_in_turns(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each call in each of `rounds` rounds, in which the calls take turns, after a warm-up."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 1):
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            if number:
                times[name].append(time.perf_counter() - begin)
    return times


def medians(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the median seconds of each call over the rounds of `seconds_in_turns`."""
    return {name: statistics.median(seconds) for name, seconds in seconds_in_turns(calls, rounds).items()}
