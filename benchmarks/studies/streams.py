"""A stream in fixed memory: ``python -m benchmarks.studies.streams --tokens 1_000_000``.

The study measures the time per token and the memory of the process along a stream, token by token and in chunks, with 8
heads, of which half or none have short spans. The resident memory is that of a process that does nothing else, and
includes the interpreter. Times are medians, with quartiles, of the last 4000 calls before a mark.
"""

from __future__ import annotations

import argparse
import statistics
import time
from multiprocessing import get_context
from typing import Any

import headspan as hs
import numpy as np

from benchmarks.measure.memory import resident
from benchmarks.output.saved import add_json_option, write_study

HEADS, HEAD_DIM = 8, 64
SPANS = {"half with spans": [60] * 4 + [np.inf] * 4, "none with spans": [np.inf] * 8}
MARKS = (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
DRAWN = 1 << 12  # number of random tokens, which are repeated
MOST_TIMES = 4000  # number of timed calls before a mark


def follow(heads: str, chunk: int, slots: int, tokens: int, merge: bool) -> list[dict[str, Any]]:
    """Feed a stream and return the measurements at each mark."""
    rng = np.random.default_rng(0)
    query, key, value = rng.standard_normal((3, 1, HEADS, DRAWN, HEAD_DIM), np.float32)
    stream = hs.memory.StreamingAttention(
        1, HEADS, HEAD_DIM, slots=slots, window=slots // 2, decay=0.95, span=SPANS[heads], ramp=4, merge=merge
    )
    marks = [*(mark for mark in MARKS if mark < tokens), tokens]
    times: list[float] = []
    rows = []
    while marks:
        first = stream.count % DRAWN
        new = np.s_[:, :, first : first + chunk]
        begin = time.perf_counter()
        stream.attend(query[new], key[new], value[new])
        times.append(time.perf_counter() - begin)
        del times[:-MOST_TIMES]
        if stream.count >= marks[0]:
            low, middle, high = (each * 1e6 / chunk for each in statistics.quantiles(times, n=4))
            rows.append(
                {"heads": heads, "chunk": chunk, "slots": slots, "merge": merge, "tokens": stream.count,
                 "microseconds": middle, "from": low, "to": high, "stream_bytes": stream.nbytes,
                 "resident_bytes": resident()}
            )  # fmt: skip
            marks.pop(0)
    return rows


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.streams", description=__doc__)
    parser.add_argument("--tokens", type=int, default=100_000)
    parser.add_argument("--slots", type=int, default=256)
    parser.add_argument("--chunks", type=int, nargs="+", default=[1, 16, 256])
    parser.add_argument("--merge", action="store_true")
    add_json_option(parser)
    options = parser.parse_args()
    if any(DRAWN % chunk for chunk in options.chunks):
        parser.error(f"chunks must divide {DRAWN}")
    names = ("heads", "chunk", "tokens", "us a token", "middle half", "stream, MiB", "resident, MiB")
    print("".join(f"{name:>16}" for name in names))
    rows = []
    for heads in SPANS:
        for chunk in options.chunks:
            with get_context("spawn").Pool(1) as pool:  # a new process with fresh memory
                new_rows = pool.apply(follow, (heads, chunk, options.slots, options.tokens, options.merge))
            rows += new_rows
            for row in new_rows:
                middle = f"{row['from']:.1f} - {row['to']:.1f}"
                print(
                    f"{heads:>16}{chunk:16}{row['tokens']:16}{row['microseconds']:16.1f}{middle:>16}"
                    f"{row['stream_bytes'] / 2**20:16.2f}{row['resident_bytes'] / 2**20:16.1f}",
                    flush=True,
                )
    write_study(options.json, {"rows": rows})


if __name__ == "__main__":
    main()
