"""How do learned spans grow with their limit? ``python experiments/small/limits.py``.

`PLAN.md` describes the comparison (X2). Every run is stored when it is done, and the command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headspan as hs
import numpy as np
import torch
from headspan.torch import AdaptiveSpan, attention
from kernel_source import KernelText, kernel_source
from model import (
    HEADS,
    LAYERS,
    RATE,
    RESULTS,
    Attend,
    Model,
    attention_flops,
    descent,
    drawn,
    loss_within,
    text_description,
    windows,
    write,
)
from torch import Tensor, nn
from torch.nn import functional as F

LENGTH, RAMP, SPAN_RATE, PRICE = 2048, 32.0, 1e-3, 2e-5
LIMITS, SEEDS, STEPS, TEST_WINDOWS = (128, 512, 2048), 2, 6000, 64
STARTS: dict[str, float | None] = {"fixed": None, "from 0": 0.0, "from 32": 32.0}


def within(spans: nn.ModuleList) -> Attend:
    """Return attention within the spans of the layers."""

    def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attention(query, key, value, span=spans[layer](), ramp=RAMP)

    return attend


@torch.no_grad()
def bits(model: Model, attend: Attend, rows: Tensor) -> list[float]:
    """Return for each window the mean bits of the characters in its second half."""
    result = []
    for row in rows:
        logits = model(row[None, :-1], attend)[0, LENGTH // 2 :]
        result.append(round(float(F.cross_entropy(logits, row[1 + LENGTH // 2 :])) / math.log(2), 5))
    return result


def run(text: KernelText, limit: int, start: float | None, seed: int, steps: int) -> dict[str, Any]:
    """Train a model and return what it reached."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    model = Model(len(text.vocabulary))
    spans = nn.ModuleList(AdaptiveSpan(HEADS, limit, initial=limit if start is None else start) for _ in range(LAYERS))
    spans.requires_grad_(start is not None)
    optimizer = None if start is None else torch.optim.Adam(spans.parameters(), lr=SPAN_RATE)
    data = torch.from_numpy(text.encode(text.part("train")))
    descend, attend = descent(model, RATE, steps), within(spans)
    history, began = [], time.process_time()
    for step in range(steps):
        rows = drawn(data, rng, 1, LENGTH)
        loss = loss_within(model, rows, attend)
        if optimizer is not None:
            loss = loss + PRICE * torch.stack([span.penalty() for span in spans]).mean()
            optimizer.zero_grad()
        descend(loss)
        if optimizer is not None:
            optimizer.step()
        if (step + 1) % max(1, steps // 40) == 0:
            history.append(_tokens(spans).round(1).tolist())
            print(f"{limit} {start} {seed}: step {step + 1}, {loss.item() / math.log(2):.3f} bits", flush=True)
    seconds = time.process_time() - began
    each, learned = bits(model, attend, windows(text, "test", TEST_WINDOWS, LENGTH)), _tokens(spans)
    return {
        "bits": round(float(np.mean(each)), 5),
        "bits_of_windows": each,
        "spans": learned.round(2).tolist(),
        "mean_span": round(float(learned.mean()), 2),
        "attention_flops": round(attention_flops(learned, LENGTH, RAMP)),
        "seconds_of_a_step": round(seconds / steps, 4),
        "history": history,
    }


@torch.no_grad()
def _tokens(spans: nn.ModuleList) -> np.ndarray:
    return np.stack([span().double().numpy() for span in spans])


def plan() -> Iterator[tuple[int, str, int]]:
    """Yield all runs, those of the gate first."""
    for seed in range(SEEDS):
        yield from ((limit, "fixed", seed) for limit in LIMITS)
    for seed in range(SEEDS):
        yield from ((limit, start, seed) for limit in LIMITS for start in STARTS if start != "fixed")


def main() -> None:
    """Do the runs that are not stored."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", nargs="+", type=int, default=range(SEEDS))
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--source", type=Path, default=Path("build/kernel"), help="folder of the unpacked package")
    args = parser.parse_args()
    torch.set_num_threads(1)
    hs.set_num_threads(1)
    text = kernel_source(args.source)
    for limit, start, seed in plan():
        name = f"limits/steps{args.steps}_limit{limit}_{start.replace(' ', '')}_seed{seed}"
        if seed in args.seeds and not (RESULTS / f"{name}.json").exists():
            result = run(text, limit, STARTS[start], seed, args.steps)
            about = {"text": text_description(text), "limit": limit, "start": start, "seed": seed}
            write(name, about | result)
            print(name, result["bits"], result["mean_span"], flush=True)


if __name__ == "__main__":
    main()
