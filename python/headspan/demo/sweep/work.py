"""The runs of a sweep, one after the other, each from where it stood.

A run folder is claimed while it is trained, so that a sweep may be called twice at a time, on two cores: each call
takes what the other one does not have. A claim ends with the process, however that ends.
"""

from __future__ import annotations

import json
import math
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock, Timeout

from headspan.demo.config import ModelConfig, TrainConfig
from headspan.demo.report.numbers import document
from headspan.demo.runs import Run, RunError, State, replace_file
from headspan.demo.sweep.grid import Plan, Point
from headspan.demo.sweep.numbers import numbers_of, of_equal_cost
from headspan.demo.text import Text, read_text, standard_library
from headspan.demo.training.engines import objective
from headspan.demo.training.train import as_config, check_length, configs, current_state, train

RESULT = "result.json"
CLAIM = ".lock"


class Shows(Protocol):
    """What follows the steps of a run."""

    def show(self, state: State, bits: float) -> None:
        """Take notice of a step."""


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
        """Raise for whatever is in the way of any run, before one is begun."""
        if (self.folder / "config.json").exists():
            raise RunError(f"{self.folder} is a run folder; choose another folder for the sweep with --out")
        seen = set()
        for point in self.plan.points:
            text = self.text(point)
            model, training = point.configs(text)
            check_length(text, training.context)
            if training.engine not in seen:  # one that is not there is missed now
                objective(training.engine, model, training.span_penalty)
                seen.add(training.engine)
            if (self.folder / point.name).exists() and (wanted := self._configs(point)) is not None:
                _check_same(Run.open(self.folder / point.name), *wanted, text, self.plan)

    def result(self, name: str) -> dict[str, Any] | None:
        """Return the numbers of a run that is over, by the name of its folder."""
        path = self.folder / name / RESULT
        if not path.exists():
            return None
        try:
            found: dict[str, Any] = json.loads(path.read_bytes())
        except ValueError:
            raise RunError(f"{path} is not valid JSON; without it the run is measured again") from None
        return found

    def results(self) -> list[dict[str, Any]]:
        """Return the numbers of all runs that are over, in the order of the plan."""
        found = [self.result(point.name) for point in self.plan.points]
        return [result for result in found if result is not None]

    def do(self, point: Point, follow: Follow, name: str, minutes: float | None) -> str:
        """Train and measure a run, and return how that ended.

        As `headspan.train.train` does, and ``"there"`` for one that was over, ``"elsewhere"`` for one that another call
        is at, ``"waits"`` for a window of equal cost to a run that has no result.
        """
        if self.result(point.name) is not None:
            return "there"
        wanted = self._configs(point)
        if wanted is None:
            return "waits"
        text = self.text(point)
        with self._claimed(point, *wanted, text) as run:
            if run is None:
                return "elsewhere"
            if self.result(point.name) is not None:
                return "there"
            model, training = wanted
            with follow(training.steps, current_state(run, model, training.seed).step, name) as bar:
                outcome = train(run, text, minutes=minutes, progress=bar.show)
            if outcome in ("finished", "diverged"):
                numbers = numbers_of(run, text, point, outcome)
                replace_file(run.path / RESULT, document(numbers).encode())
        return outcome

    def _configs(self, point: Point) -> tuple[ModelConfig, TrainConfig] | None:
        """Return the model and training of a run; None if they follow from a run that has no result yet."""
        model, training = point.configs(self.text(point))
        if point.equal_cost_to is None:
            return model, training
        reference = self.result(point.equal_cost_to)
        if reference is None or reference["outcome"] != "finished":
            return None
        return of_equal_cost(model, training, reference), training

    @contextmanager
    def _claimed(self, point: Point, model: ModelConfig, training: TrainConfig, text: Text) -> Iterator[Run | None]:
        """Open or make a run folder, and hold it; None if another call holds it."""
        path = self.folder / point.name
        with self.held():
            if path.exists():
                run = Run.open(path)
                _check_same(run, model, training, text, self.plan)
                run.note_text(text.about)
            else:
                command = f"headspan sweep {shlex.quote(str(self.plan.path))}"
                run = Run.create(path, {"command": command, **as_config(model, training, text)})
        try:
            with FileLock(path / CLAIM, blocking=False):
                yield run
        except Timeout:
            yield None

    def held(self) -> FileLock:
        """Hold the folder of the sweep, as one call may at a time."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return FileLock(self.folder / CLAIM)


def _read_once(read: Callable[[Path | None], Text]) -> Callable[[Point], Text]:
    """Return what gives the text of a point, and reads each file once."""
    once = cache(read)
    return lambda point: once(point.text)


def _check_same(run: Run, model: ModelConfig, training: TrainConfig, text: Text, plan: Plan) -> None:
    """Raise unless a run folder is of what the plan says: numbers of two plans are never mixed."""
    if run.config["text"].get("sha256") != text.sha256:
        changes = f"on another text than {text.name} is now"
    else:
        was, now = ({**asdict(a), **asdict(b)} for a, b in (configs(run), (model, training)))
        different = [f"{name} {was[name]}, not {now[name]}" for name in now if was[name] != now[name]]
        changes = f"with {', '.join(different)}" if different else ""
    if changes:
        raise RunError(
            f"{run.path} was run {changes}, so that {plan.path} is no longer what it was; "
            "choose another folder with --out, or remove that one"
        )


def do_all(
    sweep: Sweep, follow: Follow, *, minutes: float | None = None, after: Callable[[Point], None]
) -> tuple[str, dict[str, str]]:
    """Do the runs of a sweep that are not over, and return how that ended, and how each of them did.

    Parameters
    ----------
    sweep : Sweep
    follow : callable
        ``follow(steps, begun, name)`` is entered for each run, and its `show` is called after each step.
    minutes : float, optional
        Time after which the run under way is saved and left.
    after : callable
        Called with each run that this call brought to its end.
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
