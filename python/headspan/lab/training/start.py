"""What training starts from: the configuration of a run, its text, and its saved or initial state."""

from __future__ import annotations

import math
import shlex
from dataclasses import asdict
from typing import Any

import numpy as np

from headspan.lab.config import ModelConfig, TrainConfig
from headspan.lab.model import init_parameters, parameter_shapes, spans_are_finite
from headspan.lab.runs import Run, RunError, State
from headspan.lab.runs.optimizer import Adam
from headspan.lab.text import Text


def check_length(text: Text, context: int) -> None:
    """Raise RunError if a part of the text is too short for `context`."""
    shortest = math.ceil((context + 2) / 0.9) + 40
    if len(text.data) < shortest:
        raise RunError(
            f"{text.name} has {len(text.data)} bytes; a context of {context} needs at least "
            f"{shortest} (a smaller --context needs fewer)"
        )


def configs(run: Run) -> tuple[ModelConfig, TrainConfig]:
    """Return the configurations of model and training from a run folder."""
    try:
        return ModelConfig(**run.config["model"]), TrainConfig(**run.config["training"])
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{run.path / 'config.json'} does not describe a run: {error}") from None


def as_config(model: ModelConfig, training: TrainConfig, text: Text) -> dict[str, Any]:
    """Return the content of ``config.json`` for a model, its training and a text.

    See Also
    --------
    train : Starts or resumes training.
    TrainConfig : Configuration of training.
    headspan.lab.lm.ModelConfig : Configuration of the model.

    Examples
    --------
    >>> from headspan.lab import lm
    >>> from headspan.lab.text import Text
    >>> from headspan.lab import TrainConfig, as_config
    >>> text = Text.from_bytes(b"to be or not to be", "hamlet")
    >>> config = as_config(lm.ModelConfig(len(text.vocabulary)), TrainConfig(steps=4), text)
    >>> config["text"]["name"], config["training"]["steps"]
    ('hamlet', 4)
    """
    return {"model": asdict(model), "training": asdict(training), "text": text.about}


def check_same_text(run: Run, text: Text) -> None:
    """Raise RunError, with the right command, if `text` is not the text that the run was trained on."""
    about, path = run.config["text"], shlex.quote(str(run.path))
    if about.get("sha256") != text.sha256:
        anew = "headspan demo" if text.path is None else f"headspan train {shlex.quote(text.path)}"
        if about.get("path") == text.path:
            raise RunError(f"{text.name} has changed since {run.path} was trained on it; to train on it again: {anew}")
        raise RunError(
            f"{text.name} is not the text that {run.path} was trained on, {about.get('name')}; to continue the run: "
            f"headspan train --resume {path}; to train on {text.name}: {anew}"
        )
    size = configs(run)[0].vocabulary
    if size != len(text.vocabulary):
        raise RunError(
            f"{run.path / 'config.json'} does not fit its text: vocabulary must be {len(text.vocabulary)}, not {size}"
        )


def initial_state(model: ModelConfig, seed: int) -> State:
    """Return the state before the first step."""
    return State(init_parameters(model, seed), Adam())


def current_state(run: Run, model: ModelConfig, seed: int) -> State:
    """Return the saved state of a run, or the initial state if none is saved."""
    state = run.load()
    if state is None:
        return initial_state(model, seed)
    shapes = {name: f"float32 of shape {shape}" for name, shape in parameter_shapes(model)}
    moments = shapes if state.step else {}  # Adam has no moments before the first step
    for arrays, expected in ((state.parameters, shapes), (state.adam.mean, moments), (state.adam.square, moments)):
        saved = {name: f"{array.dtype} of shape {array.shape}" for name, array in arrays.items()}
        for name in {**expected, **saved}:
            want, got = expected.get(name, "absent"), saved.get(name, "absent")
            if want != got:
                raise RunError(f"{run.path / 'weights.npz'} does not fit config.json: {name} must be {want}, not {got}")
    if model.span_kind == "adaptive" and state.parameters["span"].min() < 0:
        raise RunError(f"{run.path / 'weights.npz'} holds a span below 0")
    sizes = {(array.dtype, array.ndim, array.shape[-1]) for array in state.memory}
    if sizes and (len(state.memory) != model.layers or sizes != {(np.dtype(np.float32), 3, model.width)}):
        raise RunError(f"{run.path / 'weights.npz'} does not fit config.json: it holds a memory of another model")
    return state


def state_to_go_on_from(run: Run, text: Text) -> State:
    """Check that training can resume from the files of a run and its text, and return the state of the run."""
    model, config = configs(run)
    check_same_text(run, text)
    check_length(text, config.context)
    state = current_state(run, model, config.seed)
    if not spans_are_finite(state.parameters):
        raise RunError(
            f"{run.path / 'weights.npz'} holds spans that are not finite; training cannot continue from them"
        )
    run.metrics()
    return state
