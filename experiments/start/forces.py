"""What moves the spans of the demo's model, the loss or the price: ``python experiments/start/forces.py``.

The model is trained at several prices. Every 100 steps the gradient of the loss alone with respect to each span is
computed on evenly spaced windows of the validation text. ``--picture`` only draws what is stored.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import headspan as hs
import matplotlib as mpl
import numpy as np
from headspan.lab import TrainConfig, as_config, train
from headspan.lab.lm import ModelConfig
from headspan.lab.machine import describe_machine
from headspan.lab.runs import Run, State
from headspan.lab.text import Text, standard_library
from headspan.lab.training.engines import objective
from headspan.lab.training.start import current_state
from matplotlib import pyplot as plt

ROOT = Path(__file__).parents[2]
RESULT, PICTURE = ROOT / "experiments" / "results" / "start" / "forces.json", ROOT / "docs" / "pictures" / "forces.svg"
PRICES = (0.0, TrainConfig.span_penalty, 1000 * TrainConfig.span_penalty)  # nats for a character of mean span
EVERY, WINDOWS, BATCH = 100, 96, 8


def gradients(state: State, model: ModelConfig, tokens: np.ndarray, context: int) -> np.ndarray:
    """Return the mean gradient of the loss with respect to the span of each head, in nats for a character."""
    starts = np.linspace(0, len(tokens) - context - 1, WINDOWS).astype(int)
    windows = tokens[starts[:, None] + np.arange(context + 1)]
    without_price = objective("numpy", model, 0.0)
    parts = [without_price(state.parameters, part, None) for part in np.split(windows, WINDOWS // BATCH)]
    return np.mean([part.gradients["span"] for part in parts], axis=0)


def history(text: Text, price: float, folder: Path) -> dict[str, Any]:
    """Train a model at a price and return its spans and gradients."""
    model, training = ModelConfig(len(text.vocabulary)), replace(TrainConfig(), span_penalty=price)
    run = Run.create(folder / f"{price:g}", as_config(model, training, text))
    tokens = text.encode(text.part("validation"))
    rows: list[dict[str, Any]] = []
    for step in range(0, training.steps + 1, EVERY):
        if step:
            train(run, text, steps=EVERY)
        state = current_state(run, model, training.seed)
        forces = gradients(state, model, tokens, training.context)
        spans = state.parameters["span"]
        rows.append({"step": step, "spans": spans.round(2).tolist(), "loss": forces.tolist()})
        print(f"{price:g} {step}: mean span {spans.mean():.1f}, |gradient| {np.abs(forces).mean():.2g}", flush=True)
    return {
        "price_of_a_head": price / (model.layers * model.heads),
        "bits": run.metrics()[-1]["validation"],
        "rows": rows,
    }


def draw(result: dict[str, Any]) -> None:
    """Draw the gradient of the loss beside that of the price, and the mean span at each price."""
    runs = result["runs"]
    with mpl.rc_context({"svg.hashsalt": "headspan", "font.size": 10}):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
        demo = runs[f"{TrainConfig.span_penalty:g}"]
        steps = [row["step"] for row in demo["rows"]]
        forces = np.array([np.ravel(row["loss"]) for row in demo["rows"]])
        left.plot(steps, forces, color="tab:blue", linewidth=0.7)
        left.plot([], [], color="tab:blue", label="loss, each head")
        left.axhline(demo["price_of_a_head"], color="tab:red", label="price")
        left.axhline(0, color="black", linewidth=0.8, linestyle=":")
        left.set_yscale("symlog", linthresh=1e-7)
        left.set_ylabel("gradient of a span (nats for a character)")
        left.set_title("Above 0 a span shrinks, below 0 it grows", fontsize=10)
        for price, run in runs.items():
            means = [np.mean(row["spans"]) for row in run["rows"]]
            right.plot([row["step"] for row in run["rows"]], means, label=f"price {float(price):g}")
        right.set_ylabel("mean span (characters)")
        right.set_ylim(bottom=0)
        for axes in (left, right):
            axes.set_xlabel("step")
            axes.legend(frameon=False, fontsize=9)
        figure.savefig(PICTURE, metadata={"Date": None})


def main() -> None:
    """Run the study, or draw what is stored."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture", action="store_true")
    if not parser.parse_args().picture:
        text = standard_library()
        with tempfile.TemporaryDirectory() as folder:
            runs = {f"{price:g}": history(text, price, Path(folder)) for price in PRICES}
        about = {"machine": describe_machine(hs.get_num_threads()), "text": {"name": text.name, "sha256": text.sha256}}
        RESULT.write_text(json.dumps({**about, "runs": runs}) + "\n")
    draw(json.loads(RESULT.read_text()))


if __name__ == "__main__":
    main()
