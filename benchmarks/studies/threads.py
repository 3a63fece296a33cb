"""Simulate the backward pass on more threads than the machine has: ``python -m benchmarks.studies.threads``.

The study measures four cases on one thread and on all threads, and fits the times of a tile and of a group to the
backward passes on one thread. With these costs it simulates the chunks of the backward pass on any number of threads by
the rules of ``src/attention/sums/chunk_queue.h``, which say which chunk a thread takes and what it waits for. The
simulation assumes equally fast cores and ignores shared caches, memory bandwidth and clock frequencies.
"""

from __future__ import annotations

import argparse
import dataclasses
import heapq
import statistics
import time
from collections.abc import Iterator
from typing import Any

import headspan as hs
import numpy as np
from headspan import _core
from headspan.ops.spans import farthest

from benchmarks.output.saved import add_json_option, write_study

CASES: dict[str, tuple[int, int, list[float] | float | None]] = {
    "2 x 8 heads, 2048 tokens, full": (16, 2048, None),
    "2 x 8 heads, 2048 tokens, span 256": (16, 2048, 256),
    "8 heads, 8192 tokens, spans 8 8 8 16 16 32 64 4000": (8, 8192, [8, 8, 8, 16, 16, 32, 64, 4000]),
    "1 head, 8192 tokens, full": (1, 8192, None),
}
SIMULATED = (1, 2, 4, 8, 16, 64)
RAMP = 32
LANES, TILE, RANGE, GROUPS = _core.group_queries, _core.tile_keys, _core.range_keys, _core.chunk_groups


@dataclasses.dataclass
class Costs:
    """Times in seconds of a tile, of a group, and of each visit of a group to a range of keys."""

    tile: float
    group: float
    visit: float = 0.5e-6


@dataclasses.dataclass
class Head:
    """The chunks of a head: the first range of keys that each chunk visits, and its time in each range."""

    tops: list[int]
    times: list[list[float]]
    taken: int = 0
    done: int = 0
    threads: int = 0

    def __post_init__(self) -> None:
        self.left = [top + 1 for top in self.tops]  # for each chunk, the range that it left last
        self.work = sum(map(sum, self.times)) / len(self.times)


def extents(tokens: int, span: float | None) -> list[tuple[int, int]]:
    """Return the first key and the end of the keys of each group of queries, in whole tiles."""
    reach = tokens if span is None else int(farthest(span, RAMP))
    firsts = [max(0, group * LANES - reach) // TILE * TILE for group in range(tokens // LANES)]
    return [(first, (group + 1) * LANES) for group, first in enumerate(firsts)]


def head_of(tokens: int, span: float | None, costs: Costs) -> Head:
    """Return the chunks of a head with their times."""
    keys = extents(tokens, span)
    head: tuple[list[int], list[list[float]]] = ([], [])
    for begin in range(0, len(keys), GROUPS):
        groups = keys[begin : begin + GROUPS]
        top, bottom = (groups[-1][1] - 1) // RANGE, groups[0][0] // RANGE
        times = []
        for number in range(top, bottom - 1, -1):
            tiles = [(min(last, (number + 1) * RANGE) - max(first, number * RANGE)) / TILE for first, last in groups]
            times.append(sum(count * costs.tile + costs.visit for count in tiles if count > 0))
        times[0] += len(groups) * costs.group
        head[0].append(top)
        head[1].append(times)
    return Head(*head)


def makespan(heads: list[Head], threads: int) -> float:
    """Return the time at which the last thread ends."""
    order = sorted(range(len(heads)), key=lambda i: -heads[i].work * len(heads[i].times))

    def take(current: Head | None) -> Head | None:
        if current is not None:
            current.threads -= 1
            if current.threads == 0 and current.taken < len(current.times):
                return current
        if order:
            return heads[order.pop(0)]
        unfinished = [head for head in heads if head.taken < len(head.times)]
        return min(unfinished, key=lambda x: (x.threads, -x.work * (len(x.times) - x.taken)), default=None)

    def thread() -> Iterator[tuple[float, Head, int, int]]:
        """Yield the seconds of each step with its head, its chunk, and the range that earlier chunks must have left."""
        head = take(None)
        while head is not None:
            chunk, head.taken, head.threads = head.taken, head.taken + 1, head.threads + 1
            for i, seconds in enumerate(head.times[chunk]):
                yield seconds, head, chunk, head.tops[chunk] - i
                head.left[chunk] = head.tops[chunk] - i
            head.left[chunk] = -1
            while head.done < len(head.left) and head.left[head.done] == -1:
                head.done += 1
            head = take(head)

    now = 0.0
    waiting: list[tuple[Iterator[tuple[float, Head, int, int]], tuple[float, Head, int, int]]] = []
    events: list[tuple[float, int, Iterator[tuple[float, Head, int, int]]]] = []
    starting = [thread() for _ in range(threads)]
    count = 0
    while True:
        for worker in starting:
            step = next(worker, None)
            if step is not None:
                waiting.append((worker, step))
        starting = []
        for worker, step in list(waiting):
            seconds, head, chunk, number = step
            if all(left <= number for left in head.left[head.done : chunk]):
                waiting.remove((worker, step))
                heapq.heappush(events, (now + seconds, count, worker))
                count += 1
        if not events:
            return now
        now, _, worker = heapq.heappop(events)
        starting = [worker]


def of_head(span: list[float] | float | None, head: int) -> float | None:
    """Return the span of a head."""
    return span[head] if isinstance(span, list) else span


def counted(case: tuple[int, int, list[float] | float | None]) -> tuple[float, float]:
    """Return the numbers of tiles and of groups of a case."""
    heads, tokens, span = case
    keys = [extent for head in range(heads) for extent in extents(tokens, of_head(span, head))]
    return sum(last - first for first, last in keys) / TILE, float(len(keys))


def measured(
    case: tuple[int, int, list[float] | float | None], numbers: list[int], rounds: int
) -> dict[int, tuple[float, float]]:
    """Return the median seconds of forward and backward pass for each number of threads, which take turns."""
    heads, tokens, span = case
    rng = np.random.default_rng(0)
    query, key, value = rng.standard_normal((3, 1, heads, tokens, 64), dtype=np.float32)
    options: dict[str, Any] = {}
    if span is not None:
        options = {"span": np.broadcast_to(np.asarray(span, np.float32), heads), "ramp": RAMP}
    gradient = np.ones_like(query)
    times: dict[int, list[tuple[float, float]]] = {number: [] for number in numbers}
    for _ in range(rounds + 1):
        for number in numbers:
            hs.set_num_threads(number)
            begin = time.perf_counter()
            _, vjp = hs.attention_vjp(query, key, value, **options)
            between = time.perf_counter()
            vjp(gradient)
            times[number].append((between - begin, time.perf_counter() - between))
    medians = {}
    for number, rows in times.items():
        forward, backward = zip(*rows[1:], strict=True)  # the first round warms up
        medians[number] = statistics.median(forward), statistics.median(backward)
    return medians


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, nargs="*", help="numbers to measure; 1, 2, 4 ... as many as there are")
    add_json_option(parser)
    options = parser.parse_args()
    available = hs.get_num_threads()
    numbers = options.threads or [n for n in (1, 2, 4, 8, 16, 32, 64) if n <= available]
    times = {name: measured(case, numbers, options.rounds) for name, case in CASES.items()}
    counts = np.array([counted(case) for case in CASES.values()])
    alone = np.array([of_case[min(numbers)][1] for of_case in times.values()])
    tile, group = np.linalg.lstsq(counts / alone[:, None], np.ones(len(CASES)), rcond=None)[0]
    costs = Costs(float(tile), max(float(group), 0.0))
    print(f"a tile takes {1e6 * costs.tile:.1f} us, a group {1e6 * costs.group:.1f} us")
    results = {}
    for name, (heads, tokens, span) in CASES.items():
        simulated = {}
        for n in SIMULATED:
            simulated[n] = makespan([head_of(tokens, of_head(span, head), costs) for head in range(heads)], n)
        speedups = {n: simulated[1] / seconds for n, seconds in simulated.items()}
        results[name] = {
            "measured_ms": {n: [1e3 * seconds for seconds in both] for n, both in times[name].items()},
            "backward_speedup_simulated": speedups,
        }
        print(f"\n{name}\n  measured, forward / backward in ms: ", end="")
        print(*(f"{n}: {1e3 * both[0]:.1f} / {1e3 * both[1]:.1f}" for n, both in times[name].items()), sep=", ")
        print("  backward pass, times as fast, simulated: ", end="")
        print(*(f"{n}: {ratio:.1f}" for n, ratio in speedups.items()), sep=", ")
    hs.set_num_threads(available)
    fitted = {"tile_us": 1e6 * costs.tile, "group_us": 1e6 * costs.group}
    write_study(options.json, {**fitted, "cases": results})


if __name__ == "__main__":
    main()
