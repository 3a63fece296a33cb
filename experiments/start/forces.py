"""What moves the spans of the demo's model, the loss or the price: ``python experiments/start/forces.py``.

The model is trained at several prices, and once with spans that start at their limit. Every 100 steps the gradient of
the loss alone with respect to each span is computed on evenly spaced windows of the validation text. Runs that are
stored are only drawn.
"""

from __future__ import annotations

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
DEMO = "price 2e-06"
# The fields of ModelConfig and of TrainConfig that differ from the demo. A price is for a character of mean span.
RUNS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "price 0": ({}, {"span_penalty": 0.0}),
    DEMO: ({}, {}),
    "price 0.002": ({}, {"span_penalty": 2e-3}),
    "start at the limit": ({"span_init": 512.0}, {"span_penalty": 1e-4, "span_delay": 500}),
}
EVERY, WINDOWS, BATCH = 100, 96, 8


def gradients(state: State, model: ModelConfig, tokens: np.ndarray, context: int) -> np.ndarray:
    """Return the mean gradient of the loss with respect to the span of each head, in nats for a character."""
    starts = np.linspace(0, len(tokens) - context - 1, WINDOWS).astype(int)
    windows = tokens[starts[:, None] + np.arange(context + 1)]
    without_price = objective("numpy", model, 0.0)
    parts = [without_price(state.parameters, part, None) for part in np.split(windows, WINDOWS // BATCH)]
    return np.mean([part.gradients["span"] for part in parts], axis=0)


def history(text: Text, of_model: dict[str, Any], of_training: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Train a model and return its spans and gradients."""
    model = replace(ModelConfig(len(text.vocabulary)), **of_model)
    training = replace(TrainConfig(), **of_training)
    run = Run.create(folder, as_config(model, training, text))
    tokens = text.encode(text.part("validation"))
    rows: list[dict[str, Any]] = []
    for step in range(0, training.steps + 1, EVERY):
        if step:
            train(run, text, steps=EVERY)
        state = current_state(run, model, training.seed)
        forces = gradients(state, model, tokens, training.context)
        spans = state.parameters["span"]
        rows.append({"step": step, "spans": spans.round(2).tolist(), "loss": forces.tolist()})
        print(f"{step}: mean span {spans.mean():.1f}, |gradient| {np.abs(forces).mean():.2g}", flush=True)
    price = training.span_penalty / (model.layers * model.heads)
    return {"price_of_a_head": price, "bits": run.metrics()[-1]["validation"], "rows": rows}


def draw(result: dict[str, Any]) -> None:
    """Draw the gradients of the loss and of the price, and the mean span at each price."""
    runs = result["runs"]
    demo = runs[DEMO]
    with mpl.rc_context({"svg.hashsalt": "headspan", "font.size": 10}):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
        points = [(row["step"], force) for row in demo["rows"] for force in np.ravel(row["loss"])]
        left.plot(*zip(*points, strict=True), ".", color="tab:blue", markersize=4, label="loss, a head")
        left.axhline(demo["price_of_a_head"], color="tab:red", label="price")
        left.axhline(0, color="black", linewidth=0.8, linestyle=":")
        left.set_yscale("symlog", linthresh=1e-7)
        left.set_ylabel("gradient of a span (nats for a character)")
        left.set_title("Above 0 a span shrinks, below 0 it grows", fontsize=10)
        for name, run in runs.items():
            means = [np.mean(row["spans"]) for row in run["rows"]]
            right.plot([row["step"] for row in run["rows"]], means, label=name)
        right.set_ylabel("mean span (characters)")
        right.set_yscale("symlog", linthresh=1)
        right.set_ylim(0, 1e4)
        for axes in (left, right):
            axes.set_xlabel("step")
            axes.legend(loc="upper right", ncols=2, fontsize=9)
        left.set_ylim(-1e-2, 1e-1)
        figure.savefig(PICTURE, metadata={"Date": None})


def main() -> None:
    """Do the runs that are not stored, and draw all."""
    text = standard_library()
    about = {"machine": describe_machine(hs.get_num_threads()), "text": {"name": text.name, "sha256": text.sha256}}
    result = json.loads(RESULT.read_text()) if RESULT.exists() else {**about, "runs": {}}
    for name in RUNS:
        if name not in result["runs"]:
            with tempfile.TemporaryDirectory() as folder:
                result["runs"][name] = history(text, *RUNS[name], Path(folder) / "run")
            RESULT.write_text(json.dumps(result) + "\n")
    draw(result)


if __name__ == "__main__":
    main()
