"""Baselines of a run: the same model with full attention, and with a fixed window that computes as many pairs.

Each baseline is a run in the folder ``baselines`` of the run that it belongs to. Baselines start from the same weights
and use the same batches, number of steps and schedule. Their spans are fixed and have no ramp.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from shlex import quote
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headspan.lab.config import ModelConfig, TrainConfig
from headspan.lab.model import Parameters, spans
from headspan.lab.runs import Run, State
from headspan.lab.text import Text
from headspan.lab.training.start import as_config, configs, current_state
from headspan.lab.training.train import train
from headspan.ops.cost import cost

Array = NDArray[Any]

FOLDER = "baselines"


@dataclass(frozen=True)
class Baseline:
    """A model with one span for all heads.

    Attributes
    ----------
    name : str
        Name of the baseline in the report.
    folder : str
        Name of its run folder in the folder ``baselines`` of the run.
    model : ModelConfig
    """

    name: str
    folder: str
    model: ModelConfig


class Pairs(NamedTuple):
    """Numbers of pairs of a query and a key that all heads of a model compute in one window of training.

    Attributes
    ----------
    computed, full : int
        With the spans of the model, and with full attention.
    tokens, earlier : int
        Number of characters in the window, and of those before it that heads can see in a stream.
    """

    computed: int
    full: int
    tokens: int
    earlier: int


def pairs_in_window(spans: Array, ramp: float, context: int, earlier: int = 0) -> int:
    """Count the pairs that heads compute in one window of training.

    Parameters
    ----------
    spans : ndarray, shape (layers, heads) or (layers, heads, context)
    ramp : float
    context : int
        Number of characters in the window.
    earlier : int
        Number of characters before the window that heads can see in a stream.
    """
    sizes = {"tokens": context, "key_tokens": context + earlier, "num_heads": spans.shape[1], "head_dim": 1}
    return sum(cost(**sizes, span=span[None], ramp=ramp).pairs for span in spans)


def window_of_equal_cost(spans: Array, ramp: float, context: int, earlier: int = 0) -> int:
    """Return the smallest hard window, the same for all heads, that computes at least as many pairs as `spans`."""
    return window_of_pairs(pairs_in_window(spans, ramp, context, earlier), spans.shape[:2], context, earlier)


def window_of_pairs(pairs: float, shape: tuple[int, int], context: int, earlier: int = 0) -> int:
    """Return the smallest hard window that computes at least `pairs` pairs for heads of `shape`, (layers, heads)."""
    return bisect_left(
        range(context + earlier - 1),
        pairs,
        key=lambda window: pairs_in_window(np.full(shape, window), 0, context, earlier),
    )


def with_window(model: ModelConfig, window: int) -> ModelConfig:
    """Return a copy of a model whose heads all have a fixed hard window instead of learned spans."""
    return replace(model, span_init=window, span_limit=window, span_spread=1.0, ramp=0, span_kind="fixed")


def spans_in_window(parameters: Parameters, model: ModelConfig, training: TrainConfig, tokens: Array) -> Array:
    """Return the spans of a model, (layers, heads[, context]), in the last window of a passage of tokens.

    Only predicted spans depend on the tokens.
    """
    if model.span_kind == "dynamic":
        passage = tokens[None, : training.context + training.earlier(model)]
        return spans(parameters, model, passage)[:, 0, :, -training.context :]
    shape = model.layers, model.heads
    return parameters["span"] if model.span_kind == "adaptive" else np.full(shape, model.span_init, np.float32)


def length_of_window(spans: Array, training: TrainConfig) -> int:
    """Return the number of characters in a window, which is below the context for spans predicted on a short text."""
    return spans.shape[-1] if spans.ndim == 3 else training.context


def pairs_of(parameters: Parameters, model: ModelConfig, training: TrainConfig, text: Text) -> Pairs:
    """Count the pairs of a model in the last window of the validation text."""
    learned = spans_in_window(parameters, model, training, text.encode(text.part("validation")))
    tokens, earlier = length_of_window(learned, training), training.earlier(model)
    full = pairs_in_window(np.full(learned.shape[:2], tokens + earlier), 0, tokens, earlier)
    return Pairs(pairs_in_window(learned, model.ramp, tokens, earlier), full, tokens, earlier)


def baselines_of(run: Run, state: State, text: Text) -> list[Baseline]:
    """Return the baselines of a run for its current state."""
    model, training = configs(run)
    earlier = training.earlier(model)
    learned = spans_in_window(state.parameters, model, training, text.encode(text.part("validation")))
    window = window_of_equal_cost(learned, model.ramp, length_of_window(learned, training), earlier)
    return [
        Baseline("full attention", "full", with_window(model, model.reach if earlier else training.context)),
        Baseline(f"a window of {window:,} characters", f"window-{window}", with_window(model, window)),
    ]


def has_baselines(run: Run) -> bool:
    """Return whether the run has baselines, which are continued when the run is."""
    return (run.path / FOLDER).is_dir()


def make_folder_of_baselines(run: Run) -> None:
    """Create the folder of the baselines of a run, before any of them is trained."""
    (run.path / FOLDER).mkdir(exist_ok=True)


def run_of(run: Run, baseline: Baseline) -> Run | None:
    """Return the run of a baseline, or None if it was never started."""
    path = run.path / FOLDER / baseline.folder
    return Run.open(path) if path.exists() else None


def train_baseline(
    run: Run, text: Text, baseline: Baseline, *, progress: Callable[[State, float], None] | None = None
) -> str:
    """Train a baseline for as many steps as its run, and return the outcome as `headspan.lab.train` does.

    The baseline is extended at the same steps as the run. Therefore both have the same learning rate at each step.
    """
    training = configs(run)[1]
    goal = step_of(run)
    extensions = run.extensions()
    baseline_run = run_of(run, baseline)
    if baseline_run is None:
        first = replace(training, steps=training.steps - sum(by for _, by in extensions))
        command = f"headspan train --resume {quote(str(run.path))} --baselines"
        config = {"command": command, **as_config(baseline.model, first, text)}
        baseline_run = Run.create(run.path / FOLDER / baseline.folder, config)

    def train_until(step: int) -> str:
        return train(baseline_run, text, steps=max(0, step - step_of(baseline_run)), progress=progress)

    for at, by in extensions[len(baseline_run.extensions()) :]:
        outcome = train_until(at)
        if step_of(baseline_run) < at:
            return outcome
        baseline_run.extend(at, by)
    return train_until(goal)


def step_of(run: Run) -> int:
    """Return the number of steps that a run has been trained for."""
    model, training = configs(run)
    return current_state(run, model, training.seed).step
