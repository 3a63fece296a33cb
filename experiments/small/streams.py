"""What a trained model loses if it reads a stream with fixed memory.

The memory keeps the newest tokens, the first and the newest tokens, or those with the most received weight. ``python
experiments/small/streams.py --seed 0`` replaces the attention of all layers of the model of a seed. The decay and the
window are chosen on the validation part of the text. The file in ``experiments/results/`` has the results of both
parts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import headspan as hs
import numpy as np
from model import Array, Study, arguments, write

DECAYS = (0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 1.0)
SINKS = 4


class Memory(Protocol):
    """Attention that reads a stream in pieces."""

    def attend(self, query: Array, key: Array, value: Array) -> Array:
        """Return the output for the queries of a piece."""


Make = Callable[[int, int, int], Memory]
"""Makes a memory from batch, heads and head_dim."""


def kept(**rule: float) -> Make:
    """Return a function that makes memories for the tokens with the most received weight."""
    return lambda *sizes: hs.memory.StreamingAttention(*sizes, **rule)


def sinks_and_window(slots: int) -> Make:
    """Return a function that makes caches of the first SINKS tokens and newer ones, `slots` besides the current one."""
    return lambda batch, heads, head_dim: hs.SpanCache(
        batch, heads, head_dim, span=[slots - SINKS] * heads, ramp=0, first_tokens=SINKS
    )


def in_pieces(make: Make, piece: int) -> Callable[[Array, Array, Array], Array]:
    """Return attention that gives a new memory pieces of this many tokens."""

    def attend(query: Array, key: Array, value: Array) -> Array:
        batch, heads, tokens, head_dim = query.shape
        memory = make(batch, heads, head_dim)
        parts = [slice(first, first + piece) for first in range(0, tokens, piece)]
        return np.concatenate([memory.attend(query[:, :, i], key[:, :, i], value[:, :, i]) for i in parts], axis=2)

    return attend


def main() -> None:
    """Choose a decay and a window on one part of the text, and measure all memories on another."""
    args = arguments(__doc__.splitlines()[0], windows=16, piece=1)
    validation = Study(args, "validation")
    test = Study(args, "test")
    chosen, rows = [], []

    def measure(study: Study, name: str, make: Make, **about: float) -> dict[str, object]:
        row = {"memory": name, **about, **study.excess(in_pieces(make, args.piece))}
        print(study.about["part"], row, flush=True)
        return row

    for slots in (64, 96):
        rules = [{"slots": slots, "window": window, "decay": decay} for window in (16, 32) for decay in DECAYS]
        tried = [measure(validation, "received weight", kept(**rule), **rule) for rule in rules]
        chosen += tried
        best = rules[int(np.argmin([row["excess"] for row in tried]))]
        rows.append(measure(test, "window", kept(slots=slots, window=slots, decay=1.0), slots=slots))
        rows.append(measure(test, "first tokens and window", sinks_and_window(slots), slots=slots))
        for window in (16, 32):
            rule = {"slots": slots, "window": window, "decay": 1.0}
            rows.append(measure(test, "received weight", kept(**rule), **rule))
        rows.append(measure(test, "received weight, chosen decay", kept(**best), **best))
        rows.append(measure(test, "chosen decay, merged", kept(**best, merge=True), **best))
    write(f"streams_{args.name}", {**test.about, "piece": args.piece, "chosen on": chosen, "rows": rows})


if __name__ == "__main__":
    main()
