"""Time a training step of each model with torch's attention and with the diff: ``python -m benchmarks.drop_ins``.

The models take turns, and each result is the median over the rounds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.drop_ins import chat, gpt, windows
from benchmarks.drop_ins.patched import patched

VOCABULARY, WIDTH, HEADS, LAYERS = 256, 512, 8, 4


def models(tokens: int, window: int) -> dict[str, dict[str, Any]]:
    """Return the measured models by the form of the model and by the kind of attention."""
    full: list[int | None] = [None] * LAYERS
    local = [window] * (LAYERS - 1) + [None]
    gpt_diff, chat_diff, windows_diff = (patched(name) for name in ("gpt", "chat", "windows"))

    def gpt_of(module: Any) -> Any:
        return module.Model(VOCABULARY, WIDTH, HEADS, LAYERS, tokens)

    def chat_of(module: Any, by_layer: list[int | None]) -> Any:
        return module.Model(VOCABULARY, WIDTH, HEADS, HEADS // 2, by_layer)

    def windows_of(module: Any, by_layer: list[int | None]) -> Any:
        return module.Model(VOCABULARY, WIDTH, HEADS, by_layer, tokens)

    short = gpt_of(gpt_diff)
    with torch.no_grad():
        for block in short.blocks:
            block.attention.span.fraction.copy_(torch.tensor([32.0] * (HEADS - 1) + [tokens / 2]) / tokens)
    return {
        "nanoGPT": {
            "torch": gpt_of(gpt),
            "headspan, spans at the limit": gpt_of(gpt_diff),
            "headspan, spans of 32, one of half": short,
        },
        "nanochat": {
            "torch, no windows": chat_of(chat, full),
            "torch, windows": chat_of(chat, local),
            "headspan, no windows": chat_of(chat_diff, full),
            "headspan, windows": chat_of(chat_diff, local),
        },
        "LLMs from scratch": {
            "torch, no windows": windows_of(windows, full),
            "torch, windows": windows_of(windows, local),
            "headspan, no windows": windows_of(windows_diff, full),
            "headspan, windows": windows_of(windows_diff, local),
        },
    }


def step_of(model: Any, ids: torch.Tensor) -> Callable[[], None]:
    """Return a function that does a training step without the update by the optimizer."""

    def step() -> None:
        model.zero_grad()
        scores = model(ids[:, :-1])
        torch.nn.functional.cross_entropy(scores.flatten(0, 1), ids[:, 1:].flatten()).backward()

    return step


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.drop_ins", description=__doc__)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--window", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    ids = torch.randint(VOCABULARY, (1, options.tokens + 1))
    print(f"{options.tokens} tokens, windows of {options.window}, {torch.get_num_threads()} threads")
    for form, kinds in models(options.tokens, options.window).items():
        steps = {name: step_of(model, ids) for name, model in kinds.items()}
        times: dict[str, list[float]] = {name: [] for name in steps}
        for turn in range(options.rounds + 1):
            for name, step in steps.items():
                begin = time.perf_counter()
                step()
                if turn:  # the first round warms up
                    times[name].append(time.perf_counter() - begin)
        first, *_ = times.values()
        print(f"\n{form:38}{'ms':>8}{'of the first':>14}")
        for name, seconds in times.items():
            ratio = statistics.median(one / other for one, other in zip(seconds, first, strict=True))
            print(f"  {name:36}{statistics.median(seconds) * 1e3:8.0f}{ratio:14.2f}")


if __name__ == "__main__":
    main()
