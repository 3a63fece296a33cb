"""Time until the view shows the loss after a move of spans: ``python experiments/real/moves.py``.

SmolLM2 reads 200 tokens of the Bible. All heads of one layer get another span, and the model is computed from this
layer on.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import median
from typing import Any

import headspan.torch
from headspan.lab import load_pretrained
from run import SIZES, Results
from texts import windows

TOKENS, MOVES = 200, 5


def seconds_of_moves(view: Any, layers: int) -> float:
    """Return the median of the seconds that some moves take which compute as many of the last layers."""
    head = len(view.model_spans.spans[0]) * (len(view.model_spans.spans) - layers)
    seconds = []
    for move in range(MOVES):
        began = time.perf_counter()
        view.span = [8.0 + move if place >= head else span for place, span in enumerate(view.span)]
        assert view.loss > view.recorded_loss
        seconds.append(time.perf_counter() - began)
    return round(median(seconds), 3)


def main() -> None:
    """Measure what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("build/texts"), help="folder of the unpacked texts")
    args = parser.parse_args()
    model, tokenizer = load_pretrained("smollm2")[1:]
    ids = windows("bible", tokenizer, args.folder, **SIZES).held_out[0, :TOKENS]
    view = headspan.torch.explore(model, tokenizer.decode(ids), tokenizer)
    results = Results("moves")
    for layers in (1, 10, 30):
        results.once(f"last layers: {layers}", lambda layers=layers: seconds_of_moves(view, layers))


if __name__ == "__main__":
    main()
