"""Train the runs of a sweep one after the other, resuming those that were interrupted.

A process locks a run folder while it trains the run. Therefore several processes can work on a sweep at the same time,
for example on two cores, and each takes runs that no other process has locked. A lock ends with its process.
"""

from __future__ import annotations

import json
import math
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock

from headspan.lab.config import ModelConfig, TrainConfig
from headspan.lab.report.numbers import document
from headspan.lab.runs import Run, RunError, RunLockedError, State, replace_file
from headspan.lab.sweep.grid import Plan, Point
from headspan.lab.sweep.numbers import numbers_of, of_equal_cost
from headspan.lab.text import Text, read_text, standard_library
from headspan.lab.training.engines import objective
from headspan.lab.training.start import as_config, check_length, configs, current_state
from headspan.lab.training.train import train

RESULT = "result.json"


class Shows(Protocol):
    """An object that displays the steps of a run, such as a progress bar."""

    def show(self, state: State, bits: float) -> None:
        """Display the state after a step."""


Follow = Callable[[int, int, str], AbstractContextManager[Shows]]


class Sweep:
    """A plan and the folder of its runs.

    Parameters
    ----------
    plan : Plan
    folder : Path
    """

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.folder = folder
        self.text: Callable[[Point], Text] = _read_once(
            lambda path: standard_library() if path is None else read_text(path)
        )

    def check(self) -> None:
        """Raise an error before the first run starts if any run of the plan cannot be trained."""
        if (self.folder / "config.json").exists():
            raise RunError(f"{self.folder} is a run folder; choose another folder for the sweep with --out")
        engines = set()
        for point in self.plan.points:
            text = self.text(point)
            model, training = point.configs(text)
            check_length(text, training.context)
            if training.engine not in engines:  # raises if the library of the engine is not installed
                objective(training.engine, model, training.span_penalty)
                engines.add(training.engine)
            if (self.folder / point.name).exists() and (expected := self._configs(point)) is not None:
                _check_same(Run.open(self.folder / point.name), *expected, text, self.plan)

    def result(self, name: str) -> dict[str, Any] | None:
        """Return the results of the run in the folder `name`, or None if it has not ended."""
        path = self.folder / name / RESULT
        if not path.exists():
            return None
        try:
            numbers: dict[str, Any] = json.loads(path.read_bytes())
        except ValueError:
            raise RunError(f"{path} is not valid JSON; delete it to measure the run again") from None
        return numbers

    def results(self) -> list[dict[str, Any]]:
        """Return the results of all runs that have ended, in the order of the plan."""
        results = [self.result(point.name) for point in self.plan.points]
        return [result for result in results if result is not None]

    def do(self, point: Point, follow: Follow, name: str, minutes: float | None) -> str:
        """Train and measure a run, and return its outcome.

        The outcomes are those of `headspan.lab.train`, ``"there"`` if the run had already ended, ``"elsewhere"`` if
        another process trains it, and ``"waits"`` for a window of equal cost whose reference run has no result.
        """
        if self.result(point.name) is not None:
            return "there"
        expected = self._configs(point)
        if expected is None:
            return "waits"
        text = self.text(point)
        with self._claimed(point, *expected, text) as run:
            if run is None:
                return "elsewhere"
            if self.result(point.name) is not None:
                return "there"
            model, training = expected
            with follow(training.steps, current_state(run, model, training.seed).step, name) as bar:
                outcome = train(run, text, minutes=minutes, progress=bar.show)
            if outcome in ("finished", "diverged"):
                numbers = numbers_of(run, text, point, outcome)
                replace_file(run.path / RESULT, document(numbers).encode())
        return outcome

    def _configs(self, point: Point) -> tuple[ModelConfig, TrainConfig] | None:
        """Return the model and training of a run, or None if they depend on a run that has no result yet."""
        model, training = point.configs(self.text(point))
        if point.equal_cost_to is None:
            return model, training
        reference = self.result(point.equal_cost_to)
        if reference is None or reference["outcome"] != "finished":
            return None
        return of_equal_cost(model, training, reference), training

    @contextmanager
    def _claimed(self, point: Point, model: ModelConfig, training: TrainConfig, text: Text) -> Iterator[Run | None]:
        """Open or create a run folder and lock it. Yield None if another process has locked it."""
        path = self.folder / point.name
        with self.held():
            if path.exists():
                run = Run.open(path)
                _check_same(run, model, training, text, self.plan)
                run.note_text(text.about)
            else:
                command = f"headspan sweep {shlex.quote(str(self.plan.path))}"
                run = Run.create(path, {"command": command, **as_config(model, training, text)})
        with ExitStack() as stack:
            try:
                stack.enter_context(run.held())
            except RunLockedError:
                yield None
            else:
                yield run

    def held(self) -> FileLock:
        """Return the lock of the sweep's folder, which only one process can hold at a time."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return FileLock(self.folder / ".lock")


def _read_once(read: Callable[[Path | None], Text]) -> Callable[[Point], Text]:
    """Return a function that returns the text of a point and reads each file only once."""
    cached_read = cache(read)
    return lambda point: cached_read(point.text)


def _check_same(run: Run, model: ModelConfig, training: TrainConfig, text: Text, plan: Plan) -> None:
    """Raise RunError if a run folder does not match the plan, because results of two plans must not be mixed."""
    if run.config["text"].get("sha256") != text.sha256:
        changes = f"on another text than {text.name} is now"
    else:
        was, now = ({**asdict(a), **asdict(b)} for a, b in (configs(run), (model, training)))
        different = [f"{name} {was[name]}, not {now[name]}" for name in now if was[name] != now[name]]
        changes = f"with {', '.join(different)}" if different else ""
    if changes:
        raise RunError(
            f"{run.path} was run {changes}, so {plan.path} has changed since; "
            "choose another folder with --out, or remove that one"
        )


def do_all(
    sweep: Sweep, follow: Follow, *, minutes: float | None = None, after: Callable[[Point], None]
) -> tuple[str, dict[str, str]]:
    """Train the unfinished runs of a sweep and return the overall outcome and the outcome of each run.

    Parameters
    ----------
    sweep : Sweep
    follow : callable
        ``follow(steps, begun, name)`` returns a context manager for each run, whose `show` is called after each step.
    minutes : float, optional
        Time limit in minutes, after which the current run is saved. Default: no limit.
    after : callable
        Function that is called with each point whose run this call has finished.
    """
    until = math.inf if minutes is None else time.monotonic() + 60 * minutes
    outcomes: dict[str, str] = {}
    count = len(sweep.plan.points)
    for number, point in enumerate(sweep.plan.points, 1):
        left = None if minutes is None else max(0.0, until - time.monotonic()) / 60
        outcome = sweep.do(point, follow, f"{number} of {count} {point.name}", left)
        outcomes[point.name] = outcome
        if outcome in ("interrupted", "out of time"):
            return outcome, outcomes
        if outcome in ("finished", "diverged"):
            after(point)
            if time.monotonic() > until and number < count:
                return "out of time", outcomes
    return "finished", outcomes
