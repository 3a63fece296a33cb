"""Training of the small character transformer in reproducible steps.

The seed and the number of a step determine its batch, and the number determines the learning rate. Therefore a resumed
run gives the same numbers as an uninterrupted one.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headspan.lab.config import ModelConfig, TrainConfig
from headspan.lab.model import Parameters, stream_bits, surprisal, window_bits
from headspan.lab.model.forward import SpansNotFiniteError
from headspan.lab.model.memory import Memory
from headspan.lab.runs import Run, State
from headspan.lab.runs.optimizer import schedule
from headspan.lab.text import Text
from headspan.lab.training.engines import objective
from headspan.lab.training.start import configs, state_to_go_on_from

__all__ = ["TrainConfig", "train"]

Array = NDArray[Any]

SAMPLE_WINDOWS = 24


def draw_batch(tokens: Array, config: TrainConfig, step: int) -> Array:
    """Return the windows of a step, shape (batch, context + 1)."""
    within = np.arange(config.context + 1)
    if config.batches == "stream":  # rows start at evenly spaced positions and wrap around at the end of the text
        first = np.random.default_rng([config.seed, 1]).integers(0, len(tokens))
        starts = first + np.arange(config.batch) * len(tokens) // config.batch + step * config.context
        segments: Array = tokens[(starts[:, None] + within) % len(tokens)]
        return segments
    rng = np.random.default_rng([config.seed, 1, step])
    starts = rng.integers(0, len(tokens) - config.context, config.batch)
    windows: Array = tokens[starts[:, None] + within]
    return windows


def sample_bits(state: State, model: ModelConfig, tokens: Array, config: TrainConfig) -> float:
    """Return the bits per character on windows at evenly spaced positions, each preceded by its context in a stream.

    The evaluated characters are the same for all models, whatever their reach.
    """
    context = min(config.context, len(tokens) - 1)
    starts = np.linspace((len(tokens) - context - 1) / SAMPLE_WINDOWS, len(tokens) - context - 1, SAMPLE_WINDOWS)
    before = min(config.earlier(model), int(starts[0]))
    windows = tokens[starts.astype(int)[:, None] + np.arange(-before, context + 1)]
    bits = window_bits(state.parameters, model, windows, batch=max(1, 8 * context // (context + before)))
    return float(bits[:, -context:].mean(dtype=np.float64))


def text_bits(parameters: Parameters, model: ModelConfig, config: TrainConfig, tokens: Array) -> Array:
    """Return the bits of each character of a text except the first, read as in training, shape (tokens - 1,).

    All bits are NaN if the model predicts a span that is not finite.
    """
    try:
        if config.batches == "stream":
            return stream_bits(parameters, model, tokens)
        return surprisal(parameters, model, tokens, config.context)
    except SpansNotFiniteError:
        return np.full(len(tokens) - 1, np.nan, np.float32)


class _Trainer:
    """Updates of one training state."""

    def __init__(self, model: ModelConfig, config: TrainConfig, state: State) -> None:
        self.model, self.config, self.state = model, config, state
        self.decays = {
            name: 0.0
            if array.ndim == 1 or name.startswith(("span", "embedding")) or name.endswith("taps")
            else config.weight_decay
            for name, array in state.parameters.items()
        }
        self._memory = Memory(model, state.memory) if config.batches == "stream" else None
        self._objective = objective(config.engine, model, config.span_penalty)

    def step(self, batch: Array) -> float:
        """Update the state and return the loss in bits per character, or NaN without an update after an overflow."""
        state, config = self.state, self.config
        try:
            nats, gradients, spans = self._objective(state.parameters, batch, self._memory)
        except SpansNotFiniteError:
            return math.nan
        bits = nats / math.log(2)
        if not math.isfinite(bits) or not all(np.isfinite(np.vdot(g, g)) for g in gradients.values()):
            return math.nan
        share = schedule(state.step, config.steps, config.warmup)
        rates = dict.fromkeys(state.parameters, config.learning_rate * share)
        if self.model.span_kind == "adaptive":
            rates["span"] = config.span_rate * share
            spans = state.parameters["span"]
        if state.step < config.span_delay:
            rates |= {name: 0.0 for name in rates if name.startswith("span")}
        state.adam.update(state.parameters, gradients, step=state.step, rates=rates, decays=self.decays)
        if self.model.span_kind == "adaptive":
            np.clip(spans, 0, self.model.span_limit, out=spans)
        state.spans = spans
        state.step += 1
        return bits

    def save(self, run: Run) -> None:
        """Write the state, including the memory of a stream, to the run folder."""
        if self._memory is not None:
            self.state.memory = self._memory.layers()
        run.save(self.state)


def train(
    run: Run,
    text: Text,
    *,
    minutes: float | None = None,
    steps: int | None = None,
    progress: Callable[[State, float], None] | None = None,
) -> str:
    """Start or resume training, until all steps of the run are done.

    The state is saved at each evaluation on the validation text and at the end. Training ends early on Ctrl-C (after
    the current step), after `minutes` or `steps`, or when the loss is no longer finite. The folder of the run is locked
    during training: a second process that trains the same run gets an error.

    Parameters
    ----------
    run : Run
    text : Text
        The text of the run.
    minutes : float, optional
        Time limit of this call in minutes. Default: no limit.
    steps : int, optional
        Maximum number of steps of this call. Default: all remaining steps.
    progress : callable, optional
        Function that is called as ``progress(state, bits)`` after each step.

    Returns
    -------
    str
        ``"finished"``, ``"interrupted"``, ``"out of time"``, ``"paused"`` or ``"diverged"``.

    See Also
    --------
    as_config : The content of ``config.json`` of a run.
    load_run : The weights, the history and the model of a run.
    write_report : The report of a run.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from headspan.lab import lm
    >>> from headspan.lab.runs import Run
    >>> from headspan.lab.text import Text
    >>> from headspan.lab import TrainConfig, as_config, train
    >>> text = Text.from_bytes(b"to be or not to be, " * 50, "hamlet")
    >>> model = lm.ModelConfig(len(text.vocabulary), layers=1, heads=2, width=8, hidden=8)
    >>> training = TrainConfig(steps=4, batch=1, context=16)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = Run.create(Path(folder) / "run", as_config(model, training, text))
    ...     train(run, text)
    'finished'
    """
    with run.held():
        return _train(run, text, minutes, steps, progress)


def _train(
    run: Run,
    text: Text,
    minutes: float | None,
    steps: int | None,
    progress: Callable[[State, float], None] | None,
) -> str:
    model, config = configs(run)
    state = state_to_go_on_from(run, text)
    run.keep_metrics(state.step)
    trainer = _Trainer(model, config, state)
    parts = {name: text.encode(text.part(name)) for name in ("train", "validation")}
    started = time.perf_counter() - state.seconds
    budget = math.inf if minutes is None else state.seconds + 60 * minutes
    last = config.steps if steps is None else min(config.steps, state.step + steps)
    outcome = "finished" if last == config.steps else "paused"
    _keep_freed_memory()
    # Every step is checked for overflow, so the warnings of NumPy are not needed.
    with _interrupts() as interrupted, np.errstate(all="ignore"):
        while state.step < last:
            bits = trainer.step(draw_batch(parts["train"], config, state.step))
            state.seconds = time.perf_counter() - started
            if not math.isfinite(bits):
                outcome = "diverged"
                break
            state.recent.append(bits)
            if state.step % config.log_every == 0 or state.step == config.steps:
                _log(run, trainer, parts["validation"])
            if progress is not None:
                progress(state, bits)
            if state.step < last and (interrupted() or state.seconds > budget):
                outcome = "interrupted" if interrupted() else "out of time"
                break
        trainer.save(run)
    return outcome


def _log(run: Run, trainer: _Trainer, validation: Array) -> None:
    state, config = trainer.state, trainer.config
    assert state.spans is not None
    row = {
        "step": state.step,
        "bits": float(np.mean(state.recent)),
        "spans": state.spans.tolist(),
        "seconds": round(state.seconds, 3),
    }
    state.recent.clear()
    evaluate = state.step % config.evaluate_every == 0 or state.step == config.steps
    if evaluate:
        row["validation"] = sample_bits(state, trainer.model, validation, config)
    run.add_metrics(row)
    if evaluate:
        trainer.save(run)


def _keep_freed_memory() -> None:
    # glibc returns large arrays to the system, and new pages at every step take time. Freeing one large array raises
    # the threshold for this. The array is never touched and takes no time.
    np.empty(2**25 - 2**16, np.uint8)


@contextmanager
def _interrupts() -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C into a flag, so that no update is interrupted. The second Ctrl-C raises."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    interrupted = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: interrupted
    finally:
        signal.signal(signal.SIGINT, before)
