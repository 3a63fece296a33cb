"""Time against length: ``python -m benchmarks.studies.lengths --most 1_048_576``.

One head of 64, forward only. Full attention, hierarchical attention, blocks selected by content, and the selection
itself take turns, and so do local windows with as many pairs per query as hierarchical and selected attention. A row
also shows the time relative to a quarter of the length: 16 is quadratic growth, 4 is linear growth.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import headspan as hs
import numpy as np
from headspan.patterns import Pattern, Window

from benchmarks.measure.turns import medians
from benchmarks.output.saved import add_json_option, write_study

HEAD_DIM = 64
SHORTEST, FULL_UP_TO = 4096, 65_536


def contenders(tokens: int) -> dict[str, Callable[[], object]]:
    """Return the timed functions for a length, by name."""
    query, key, value = np.random.default_rng(0).standard_normal((3, 1, tokens, HEAD_DIM), np.float32)

    def select() -> Pattern:
        return hs.sparse.selected_blocks(query, key, keep=8, block_size=(64, 4), always=("own", "first"))

    def attend(pattern: Pattern) -> Callable[[], object]:
        return lambda: hs.attention(query, key, value, pattern=pattern)

    sizes: dict[str, Any] = {"tokens": tokens, "num_heads": 1, "head_dim": HEAD_DIM}
    selected = select()
    timed: dict[str, Callable[[], object]] = {
        "hierarchical": lambda: hs.sparse.hierarchical_attention(query, key, value),
        "its window": attend(Window(round(hs.sparse.hierarchical_cost(**sizes).pairs / tokens) + 1)),
        "selected": attend(selected),
        "selecting": select,
        "same window": attend(Window(round(hs.cost(pattern=selected, **sizes).pairs / tokens) + 1)),
    }
    if tokens <= FULL_UP_TO:
        timed["full"] = lambda: hs.attention(query, key, value)
    return timed


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.lengths", description=__doc__)
    parser.add_argument("--most", type=int, default=1 << 20, help="tokens of the longest")
    parser.add_argument("--rounds", type=int, default=7)
    add_json_option(parser)
    options = parser.parse_args()
    names = ("full", "hierarchical", "its window", "selected", "selecting", "same window")
    print("milliseconds (and how many times those of a quarter of the length)")
    print("".join(f"{name:>18}" for name in ("tokens", *names)))
    rows: list[dict[str, Any]] = []
    tokens = SHORTEST
    while tokens <= options.most:
        seconds = medians(contenders(tokens), options.rounds)
        row = {"tokens": tokens, **{name: 1e3 * time for name, time in seconds.items()}}
        cells = ""
        for name in names:
            before = rows[-1].get(name) if rows else None
            ratio = f" ({row[name] / before:.1f})" if before and name in row else ""
            cells += f"{f'{row[name]:.1f}{ratio}' if name in row else '-':>18}"
        print(f"{tokens:18}{cells}", flush=True)
        rows.append(row)
        tokens *= 4
    write_study(options.json, {"rounds": options.rounds, "rows": rows})


if __name__ == "__main__":
    main()
