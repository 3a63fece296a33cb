"""Time against length: ``python -m benchmarks.studies.lengths --most 1_048_576``.

One head of 64, forward only, in turn: full attention, the local window, hierarchical attention and blocks that the
content chooses (and what choosing them takes), all but the first of about as many pairs a query. A row also says how
much longer everybody took than at a quarter of the length: 16 would be quadratic, 4 linear.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headspan as hs
import numpy as np
from headspan.patterns import Local, Pattern

from benchmarks.measure.turns import medians

HEAD_DIM = 64
SHORTEST, FULL_UP_TO = 4096, 65_536


def contenders(tokens: int, window: int) -> dict[str, Callable[[], object]]:
    """Return what is timed at a length, by name."""
    query, key, value = np.random.default_rng(0).standard_normal((3, 1, tokens, HEAD_DIM), np.float32)

    def select() -> Pattern:
        return hs.selected_blocks(query, key, keep=8, query_block=64, key_block=4, always=("own", "first"))

    def attend(pattern: Pattern) -> Callable[[], object]:
        return lambda: hs.attention(query, key, value, pattern=pattern)

    timed: dict[str, Callable[[], object]] = {
        "local": attend(Local(window)),
        "hierarchical": lambda: hs.hierarchical_attention(query, key, value),
        "selected": attend(select()),
        "selecting": select,
    }
    if tokens <= FULL_UP_TO:
        timed["full"] = lambda: hs.attention(query, key, value)
    return timed


def pairs(tokens: int) -> int:
    """Return how many means and tokens a query of hierarchical attention meets, on average."""
    return round(hs.hierarchical_cost(tokens=tokens, heads=1, head_dim=HEAD_DIM).pairs / tokens)


def measure(tokens: int, rounds: int) -> dict[str, Any]:
    """Time everybody at a length, in turn; medians."""
    window = pairs(tokens)
    timed = contenders(tokens, window)
    return {"tokens": tokens, "window": window, **{name: 1e3 * its for name, its in medians(timed, rounds).items()}}


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.lengths", description=__doc__)
    parser.add_argument("--most", type=int, default=1 << 20, help="tokens of the longest")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="a file to be written")
    options = parser.parse_args()
    names = ("full", "local", "hierarchical", "selected", "selecting")
    print("milliseconds (and how many times those of a quarter of the length)")
    print("".join(f"{name:>18}" for name in ("tokens", "window", *names)))
    rows: list[dict[str, Any]] = []
    tokens = SHORTEST
    while tokens <= options.most:
        row = measure(tokens, options.rounds)
        cells = ""
        for name in names:
            before = rows[-1].get(name) if rows else None
            grown = f" ({row[name] / before:.1f})" if before and name in row else ""
            cells += f"{f'{row[name]:.1f}{grown}' if name in row else '-':>18}"
        print(f"{tokens:18}{row['window']:18}{cells}", flush=True)
        rows.append(row)
        tokens *= 4
    if options.json:
        options.json.write_text(json.dumps({"threads": hs.get_num_threads(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
