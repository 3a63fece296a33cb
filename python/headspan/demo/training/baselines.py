"""The same model with attention that learns no span: of all characters, and of a window that costs as much.

Both are runs of their own in the folder ``baselines`` of the run they belong to. They start from the same weights, see
the same batches, and are trained for as many steps by the same plan; their spans are given, hard and left alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from shlex import quote
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headspan.demo.config import ModelConfig, TrainConfig
from headspan.demo.model import Parameters, spans
from headspan.demo.runs import Run, State
from headspan.demo.text import Text
from headspan.demo.training.train import as_config, configs, current_state, train
from headspan.ops.cost import cost

Array = NDArray[Any]

FOLDER = "baselines"


@dataclass(frozen=True)
class Baseline:
    """A model with one span for all heads.

    Attributes
    ----------
    name : str
        What it is called in the report.
    folder : str
        Its run folder, in that of the run it belongs to.
    model : ModelConfig
    """

    name: str
    folder: str
    model: ModelConfig


def pairs_in_window(spans: Array, ramp: float, context: int, earlier: int = 0) -> int:
    """Count the pairs that heads compute in one window of training.

    Parameters
    ----------
    spans : ndarray, shape (layers, heads) or (layers, heads, context)
    ramp : float
    context : int
        Characters of the window.
    earlier : int
        Characters before it that heads can see, in a stream.
    """
    sizes = {"tokens": context, "key_tokens": context + earlier, "heads": spans.shape[1], "head_dim": 1}
    return sum(cost(**sizes, span=span[None], ramp=ramp).pairs for span in spans)


def window_of_equal_cost(spans: Array, ramp: float, context: int, earlier: int = 0) -> int:
    """Return the smallest hard window, the same for all heads, that computes at least as many pairs."""
    return window_of_pairs(pairs_in_window(spans, ramp, context, earlier), spans.shape[:2], context, earlier)


def window_of_pairs(pairs: float, shape: tuple[int, int], context: int, earlier: int = 0) -> int:
    """Return the smallest hard window of (layers, heads) that computes at least so many pairs."""
    return bisect_left(
        range(context + earlier - 1),
        pairs,
        key=lambda window: pairs_in_window(np.full(shape, window), 0, context, earlier),
    )


def with_window(model: ModelConfig, window: int) -> ModelConfig:
    """Return a model like one that learns spans, whose heads all have a hard window instead."""
    return replace(model, span_init=window, span_limit=window, span_spread=1.0, ramp=0, span_kind="fixed")


def spans_in_window(parameters: Parameters, model: ModelConfig, training: TrainConfig, tokens: Array) -> Array:
    """Return the spans of a model in a window, the last of a passage of tokens: (layers, heads[, context]).

    Only those that characters predict depend on what they read.
    """
    if model.span_kind == "dynamic":
        passage = tokens[None, : training.context + training.earlier(model)]
        return spans(parameters, model, passage)[:, 0, :, -training.context :]
    shape = model.layers, model.heads
    return parameters["span"] if model.span_kind == "adaptive" else np.full(shape, model.span_init, np.float32)


def length_of_window(spans: Array, training: TrainConfig) -> int:
    """Return how many characters a window has: fewer than planned if characters of a short text predicted its spans."""
    return spans.shape[-1] if spans.ndim == 3 else training.context


def baselines_of(run: Run, state: State, text: Text) -> list[Baseline]:
    """Return what a run that has come to a state is to be compared with."""
    model, training = configs(run)
    earlier = training.earlier(model)
    found = spans_in_window(state.parameters, model, training, text.encode(text.part("validation")))
    window = window_of_equal_cost(found, model.ramp, length_of_window(found, training), earlier)
    return [
        Baseline("full attention", "full", with_window(model, model.reach if earlier else training.context)),
        Baseline(f"a window of {window:,} characters", f"window-{window}", with_window(model, window)),
    ]


def run_of(run: Run, baseline: Baseline) -> Run | None:
    """Return the run of a baseline, or None if it was never begun."""
    path = run.path / FOLDER / baseline.folder
    return Run.open(path) if path.exists() else None


def train_baseline(
    run: Run, text: Text, baseline: Baseline, *, progress: Callable[[State, float], None] | None = None
) -> str:
    """Train a baseline for as many steps as its run has, and return how that ended, as `headspan.train.train` does.

    Where the run was extended the plan of the baseline is, too, so that the rate of every step is that of the run.
    """
    training = configs(run)[1]
    goal = step_of(run)
    extensions = run.extensions()
    own = run_of(run, baseline)
    if own is None:
        first = replace(training, steps=training.steps - sum(by for _, by in extensions))
        command = f"headspan train --resume {quote(str(run.path))} --baselines"
        config = {"command": command, **as_config(baseline.model, first, text)}
        own = Run.create(run.path / FOLDER / baseline.folder, config)

    def train_until(step: int) -> str:
        return train(own, text, steps=max(0, step - step_of(own)), progress=progress)

    for at, by in extensions[len(own.extensions()) :]:
        outcome = train_until(at)
        if step_of(own) < at:
            return outcome
        own.extend(at, by)
    return train_until(goal)


def step_of(run: Run) -> int:
    """Return how many steps a run was trained for."""
    model, training = configs(run)
    return current_state(run, model, training.seed).step
