"""A store on disk: ``python -m benchmarks.studies.store --keys 10_000_000 --folder /where/the/disk/is``.

The study measures the time for appending and opening, and for attention to all keys on disk: the first time, when each
piece is verified, and again. It also measures the memory of attention without the pages of the file and, if the keys
fit into memory, the time of attention in memory, in turns with that from disk.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context

import headspan as hs
import numpy as np

from benchmarks.measure.memory import status

HEAD_DIM = 64
CASES = ((1, 1), (8, 1), (8, 16))  # heads and queries per head, all on one key head
AT_ONCE = 1 << 17  # rows per append


def fill(path: str, keys: int) -> float:
    """Fill a store and return the seconds for appending."""
    rng = np.random.default_rng(0)
    seconds = 0.0
    with hs.memory.KeyValueStore(path, 1, HEAD_DIM) as store:
        for first in range(0, keys, AT_ONCE):
            key, value = rng.standard_normal((2, 1, min(AT_ONCE, keys - first), HEAD_DIM), np.float32)
            seconds += timed(partial(store.append, key, value))
    return seconds


def timed(call: Callable[[], object]) -> float:
    """Return the seconds for a call."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def query_of(heads: int, tokens: int) -> np.ndarray:
    """Return the queries of a case."""
    return np.random.default_rng(1).standard_normal((heads, tokens, HEAD_DIM), np.float32)


def process_memory(path: str, heads: int, tokens: int) -> tuple[float, int]:
    """Return the seconds of a first pass and the growth of this process's memory during it, in bytes."""
    query = query_of(heads, tokens)
    before, peak, done = status("RssAnon"), 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.002):
            peak = max(peak, status("RssAnon"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    with hs.memory.KeyValueStore(path, readonly=True) as store:
        seconds = timed(partial(store.attend, query))
        peak = max(peak, status("RssAnon"))
    done.set()
    watcher.join()
    return seconds, peak - before


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.store", description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--folder", help="where the store is made; the system's for temporary files unless given")
    parser.add_argument("--without-memory", action="store_true", help="for more keys than memory holds")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = f"{folder}/store"
        size = options.keys * 2 * HEAD_DIM * 4
        seconds = fill(path, options.keys)
        print(f"{options.keys} keys of {HEAD_DIM}, {size / 2**20:.0f} MiB: appended at {size / seconds / 1e6:.0f} MB/s")
        openings = [timed(lambda: hs.memory.KeyValueStore(path).close()) for _ in range(20)]
        print(f"opened in {statistics.median(openings) * 1e3:.2f} ms")
        first = {}
        for case in CASES:
            with get_context("spawn").Pool(1) as pool:  # a new process with fresh memory
                first[case] = pool.apply(process_memory, (path, *case))
        with hs.memory.KeyValueStore(path, readonly=True) as store:
            rows = None if options.without_memory else store.rows(0, len(store))
            names = ("heads", "queries", "first, ms", "own MiB", "again, ms", "in memory", "ratio")
            print("\n" + "".join(f"{name:>11}" for name in names))
            for heads, tokens in CASES:
                query = query_of(heads, tokens)
                streamed, in_memory = [], []
                for _ in range(options.rounds):
                    streamed.append(timed(partial(store.attend, query)))
                    if rows is not None:
                        in_memory.append(timed(partial(hs.attention, query, *rows, causal=False)))
                seconds, growth = first[heads, tokens]
                again = statistics.median(streamed)
                line = f"{heads:11}{tokens:11}{seconds * 1e3:11.1f}{growth / 2**20:11.1f}{again * 1e3:11.1f}"
                if in_memory:
                    ratio = statistics.median(s / m for s, m in zip(streamed, in_memory, strict=True))
                    line += f"{statistics.median(in_memory) * 1e3:11.1f}{ratio:11.2f}"
                print(line)


if __name__ == "__main__":
    main()
