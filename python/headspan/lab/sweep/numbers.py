"""The results of one run of a sweep: its bits per character, its spans, and the cost of its attention."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

import headspan as hs
from headspan.lab.config import ModelConfig, TrainConfig
from headspan.lab.machine import describe_machine
from headspan.lab.report.numbers import mean_or_none
from headspan.lab.runs import Run, State
from headspan.lab.sweep.grid import Point
from headspan.lab.text import Text
from headspan.lab.training.baselines import (
    length_of_window,
    pairs_in_window,
    spans_in_window,
    window_of_pairs,
    with_window,
)
from headspan.lab.training.start import configs, current_state
from headspan.lab.training.train import text_bits

# Number of windows of the validation text over which predicted spans are averaged.
WINDOWS = 8

_REACH = (
    "mean span", "spans", "window", "pairs in a window", "pairs a character", "attention FLOPs a character",
)  # fmt: skip


def numbers_of(run: Run, text: Text, point: Point, outcome: str) -> dict[str, Any]:
    """Measure a run that has ended.

    Parameters
    ----------
    run : Run
    text : Text
    point : Point
    outcome : str
        Outcome of its training. The bits and spans of a diverged run are not measured.
    """
    model, training = configs(run)
    state = current_state(run, model, training.seed)
    evaluations = [row["validation"] for row in run.metrics() if "validation" in row]
    bits, reach = None, dict.fromkeys(_REACH)
    if outcome == "finished" and all(np.isfinite(array).all() for array in state.parameters.values()):
        test = text.encode(text.part("test"))
        with np.errstate(all="ignore"):  # an overflow gives a result that is not finite, which becomes None
            bits = mean_or_none(text_bits(state.parameters, model, training, test))
        reach = _reach(state, model, training, text)
    return {
        "run": point.name,
        "kind": point.kind,
        "grid": point.grid,
        "equal cost to": point.equal_cost_to,
        "outcome": outcome if bits is not None else "diverged",
        "test bits per character": bits,
        "validation bits per character": evaluations[-1] if evaluations else None,
        **reach,
        "parameters": sum(array.size for array in state.parameters.values()),
        "step": state.step,
        "seconds": round(state.seconds, 3),
        "seconds a step": round(state.seconds / state.step, 6) if state.step else None,
        "text": text.name,
        "sha256": text.sha256,
        "test characters": len(text.part("test")),
        "model": asdict(model),
        "training": asdict(training),
        "headspan": hs.__version__,
        "machine": describe_machine(hs.get_num_threads()),
    }


def _reach(state: State, model: ModelConfig, training: TrainConfig, text: Text) -> dict[str, Any]:
    """Return the spans of a model and the work of its attention in a window of training."""
    tokens = text.encode(text.part("validation"))
    earlier = training.earlier(model)
    length = min(len(tokens), training.context + earlier)
    count = WINDOWS if model.span_kind == "dynamic" else 1
    starts = np.linspace(0, len(tokens) - length, count).astype(int)
    windows = [
        spans_in_window(state.parameters, model, training, tokens[start : start + length]) for start in starts.tolist()
    ]
    context = length_of_window(windows[0], training)
    pairs = np.mean([pairs_in_window(spans, model.ramp, context, earlier) for spans in windows])
    pair_flops = hs.cost(tokens=1, num_heads=1, head_dim=model.head_dim).forward_flops
    head_spans = [spans.mean(axis=-1) if spans.ndim == 3 else spans for spans in windows]
    spans = np.stack(head_spans).mean(axis=0, dtype=np.float64)
    values = (
        float(spans.mean()),
        spans.round(3).tolist(),
        context,
        float(pairs),
        float(pairs / context),
        float(pair_flops * pairs / context),
    )
    return dict(zip(_REACH, values, strict=True))


def of_equal_cost(model: ModelConfig, training: TrainConfig, numbers: dict[str, Any]) -> ModelConfig:
    """Return a model with the smallest hard window that computes at least as many pairs as a run with `numbers`."""
    shape, context = (model.layers, model.heads), numbers["window"]
    return with_window(model, window_of_pairs(numbers["pairs in a window"], shape, context, training.earlier(model)))
