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

from headspan.demo.config import ModelConfig
from headspan.demo.runs import Run, State
from headspan.demo.text import Text
from headspan.demo.train import as_config, configs, current_state, train
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


def pairs_in_window(spans: Array, ramp: float, context: int) -> int:
    """Count the pairs that heads of these spans, (layers, heads), compute in one window of training."""
    layers, heads = spans.shape
    return sum(cost(tokens=context, heads=heads, head_dim=1, span=spans[i], ramp=ramp).pairs for i in range(layers))


def window_of_equal_cost(spans: Array, ramp: float, context: int) -> int:
    """Return the smallest hard window, the same for all heads, that computes at least as many pairs."""
    pairs = pairs_in_window(spans, ramp, context)
    return bisect_left(
        range(context - 1), pairs, key=lambda window: pairs_in_window(np.full(spans.shape, window), 0, context)
    )


def baselines_of(run: Run, state: State) -> list[Baseline]:
    """Return what a run that has come to a state is to be compared with."""
    model, training = configs(run)
    window = window_of_equal_cost(state.parameters["span"], model.ramp, training.context)

    def hard(span: int) -> ModelConfig:
        return replace(model, span_init=span, span_limit=span, ramp=0)

    return [
        Baseline("full attention", "full", hard(training.context)),
        Baseline(f"a window of {window:,} characters", f"window-{window}", hard(window)),
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
        first = replace(
            training, steps=training.steps - sum(by for _, by in extensions), span_rate=0.0, span_penalty=0.0
        )
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
