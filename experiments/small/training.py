"""Train the models with full attention that the other experiments need.

``python experiments/small/training.py --seed 0`` trains the model of a seed. What it reached, and which of its heads
copied at every `WATCH_EVERY` steps, is written to ``experiments/results/``.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from copying import copying
from kernel_source import kernel_source
from model import CONTEXT, Model, arguments, bits, text_description, train, windows, write

WATCH_EVERY, WATCHED_WINDOWS = 250, 16


def main() -> None:
    """Train the model of one seed."""
    args = arguments(__doc__.splitlines()[0], batch=2)
    text = kernel_source(args.source)
    watched = windows(text, "validation", WATCHED_WINDOWS)
    history: list[dict[str, Any]] = []

    def watch(step: int, model: Model) -> None:
        if step % WATCH_EVERY == 0:
            history.append({"step": step, **copying(model, watched)})

    began = time.process_time()
    model = train(text, args.seed, args.steps, args.batch, watch)
    seconds = time.process_time() - began
    args.models.mkdir(parents=True, exist_ok=True)
    torch.save({"weights": model.state_dict(), "text": text.sha256}, args.models / f"{args.name}.pt")
    reached = bits(model, windows(text, "validation", 64))
    write(
        f"model_{args.name}",
        {
            "seed": args.seed,
            "steps": args.steps,
            "batch": args.batch,
            "context": CONTEXT,
            "parameters": sum(p.numel() for p in model.parameters()),
            "processor_seconds": round(seconds),
            "text": text_description(text),
            "bits_per_character": round(float(reached.mean()), 4),
            "history": history,
        },
    )
    print(f"{reached.mean():.4f} bits per character on 64 windows of the validation part")


if __name__ == "__main__":
    main()
