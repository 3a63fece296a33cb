"""The run folder: the files that a training run writes.

========================  =========================================================================
``config.json``           model, training and text, enough to repeat the run, and its extensions
``metrics.jsonl``         one JSON object per line: step, bits per character, spans
``weights.npz``           the parameters and the optimizer's state, from which training can resume
``baselines/``            runs of the same model with fixed spans, if the run was compared with them
``report.html``           the report; ``spans.svg`` is its picture of the spans
``.lock``, ``.process``   the lock of the process that trains the run, and the number of this process
========================  =========================================================================

Each file is written under a temporary name in the same folder and then renamed. A run that is killed leaves either the
old file or the new one, never a part of it.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from headspan import _check
from headspan.lab.runs.optimizer import Adam

Arrays = dict[str, NDArray[Any]]
Row = dict[str, Any]

FORMAT = 2

# NumPy and zipfile raise these errors for damaged files; RuntimeError stands for an unsupported kind of archive.
_UNREADABLE = (ValueError, TypeError, KeyError, EOFError, OSError, RuntimeError, zipfile.BadZipFile, zlib.error)


class RunError(ValueError):
    """An error that the user can fix: a missing file, a folder that is not a run, a text that is too short."""


class RunLockedError(RunError):
    """Another process trains the run."""


@dataclass
class State:
    """The state of training after `step` steps.

    Attributes
    ----------
    parameters : dict of str to ndarray
    adam : Adam
    step : int
    seconds : float
        Training time so far, in seconds.
    recent : list of float
        Bits per character of the steps since the last row of the metrics.
    memory : list of ndarray
        Hidden states of the earlier segments of a stream, one array per layer, see `headspan.lab.model.memory`.
    spans : ndarray or None, shape (layers, heads)
        Mean span of each head in the last step, or None before the first step.
    """

    parameters: Arrays
    adam: Adam
    step: int = 0
    seconds: float = 0.0
    recent: list[float] = field(default_factory=list)
    memory: list[NDArray[Any]] = field(default_factory=list)
    spans: NDArray[Any] | None = None


def replace_file(path: Path, content: bytes) -> None:
    """Write `content` to `path` atomically."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


class Run:
    """A run folder.

    Parameters
    ----------
    path : Path
    config : dict
        Content of ``config.json``.
    """

    def __init__(self, path: Path, config: dict[str, Any]) -> None:
        self.path = path
        self.config = config
        self._lock = FileLock(path / ".lock", blocking=False)

    @classmethod
    def create(cls, path: Path, config: dict[str, Any]) -> Run:
        """Create a new run folder. An existing folder is never overwritten."""
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            raise RunError(f"{path} already exists; choose another folder with --out") from None
        run = cls(path, {"format": FORMAT})
        run._write(**config)
        return run

    @classmethod
    def open(cls, path: Path) -> Run:
        """Open a run folder that `create` made."""
        if not path.is_dir():
            raise RunError(f"{path} is not an existing run folder")
        try:
            config = json.loads((path / "config.json").read_bytes())
        except FileNotFoundError:
            raise RunError(f"{path} is not a run folder: it has no config.json") from None
        except ValueError:
            raise RunError(f"{path / 'config.json'} is not valid JSON") from None
        if not isinstance(config, dict) or config.get("format") != FORMAT:
            raise RunError(f"{path / 'config.json'} was not written by this version of headspan")
        for name in ("model", "training", "text"):
            if not isinstance(config.get(name), dict):
                raise RunError(f"{path / 'config.json'} does not describe a run: it has no {name}")
        return cls(path, config)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the run folder, so that no other process changes the run. A lock ends with its process.

        A process that holds the lock may lock the same `Run` again. Raises RunLockedError if another process holds it.
        """
        process = self.path / ".process"
        try:
            self._lock.acquire()
        except Timeout:
            number = f"process {process.read_text()}" if process.exists() else "another process"
            raise RunLockedError(f"{self.path} is being trained by {number}; wait until it ends") from None
        try:
            replace_file(process, str(os.getpid()).encode())
            self.config = Run.open(self.path).config  # another process may have changed it
            yield
        finally:
            self._lock.release()

    def extensions(self) -> list[tuple[int, int]]:
        """Return the extensions of the run as pairs: the step at which it was extended, and the added steps."""
        try:
            return [
                (_check.integer("at", change["at"], at_least=0), _check.integer("by", change["by"], at_least=1))
                for change in self.config.get("extended", [])
            ]
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(f"{self.path / 'config.json'} does not describe a run: extended: {error}") from None

    def extend(self, at: int, by: int) -> None:
        """Extend the run by `by` steps and record that this happened at step `at`."""
        training = self.config["training"]
        changes = [*self.extensions(), (at, by)]
        self._write(
            training={**training, "steps": training["steps"] + by},
            extended=[{"at": at, "by": by} for at, by in changes],
        )

    def note_text(self, about: dict[str, Any]) -> None:
        """Update the name and path of the run's text, whose content has not changed."""
        if about != self.config["text"]:
            self._write(text=about)

    def _write(self, **changes: Any) -> None:
        self.config = {**self.config, **changes}
        replace_file(self.path / "config.json", (json.dumps(self.config, indent=2) + "\n").encode())

    def metrics(self) -> list[Row]:
        """Return the rows of the metrics in ascending order of their steps.

        A truncated last line, which a killed run may leave, is left out. If a step was trained again, for example by
        two processes at once, its last row and the rows after it are the valid ones.
        """
        path = self.path / "metrics.jsonl"
        try:
            lines = path.read_text("utf-8").splitlines() if path.exists() else []
        except UnicodeDecodeError:
            raise RunError(f"{path} cannot be read as text") from None
        rows: list[Row] = []
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
            except ValueError:
                if number < len(lines):
                    raise RunError(f"{path}, line {number} is not valid JSON") from None
                break
            try:
                self._check_row(row)
            except (TypeError, ValueError) as error:
                raise RunError(f"{path}, line {number} is not a row of the metrics: {error}") from None
            while rows and rows[-1]["step"] >= row["step"]:
                rows.pop()
            rows.append(row)
        return rows

    def _check_row(self, row: object) -> None:
        if not isinstance(row, dict):
            raise TypeError(f"it must be an object, not {_check.describe(row)}")
        _check.integer("step", row.get("step"), at_least=0)
        for name in ("bits", *({"validation"} & row.keys())):
            if not isinstance(row.get(name), int | float):  # NaN is valid here, and the report mentions it
                raise TypeError(f"{name} must be a number, not {_check.describe(row.get(name))}")
        model, spans = self.config["model"], _check.as_array("spans", row.get("spans"))
        shape = (model["layers"], model["heads"])
        if spans.dtype.kind not in "iuf" or spans.shape != shape:
            raise ValueError(f"spans must be numbers of shape {shape}, not {spans.dtype} of shape {spans.shape}")

    def add_metrics(self, row: Row) -> None:
        """Append one row to the metrics."""
        with (self.path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")

    def keep_metrics(self, step: int) -> None:
        """Drop the rows after `step`, which are newer than the saved weights."""
        rows = [row for row in self.metrics() if row["step"] <= step]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        replace_file(self.path / "metrics.jsonl", text.encode())

    def save(self, state: State) -> None:
        """Write ``weights.npz``."""
        arrays: Arrays = {
            "step": np.array(state.step),
            "seconds": np.array(state.seconds),
            "recent": np.array(state.recent),
        }
        for group, values in _groups(state):
            arrays |= {f"{group}/{name}": array for name, array in values.items()}
        buffer = io.BytesIO()
        np.savez(buffer, **cast("Any", arrays))
        replace_file(self.path / "weights.npz", buffer.getvalue())

    def load(self) -> State | None:
        """Read ``weights.npz``, or return None if the run has not saved any weights yet."""
        path = self.path / "weights.npz"
        if not path.exists():
            return None
        try:
            with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                arrays = dict(file)
            recent = _check.real_array("recent", arrays["recent"])
            return State(
                _named(arrays, "parameter"),
                Adam(mean=_named(arrays, "mean"), square=_named(arrays, "square")),
                _check.integer("step", arrays["step"][()], at_least=0),
                _check.number("seconds", arrays["seconds"], at_least=0),
                recent.reshape(recent.size).tolist(),
                list(_named(arrays, "memory").values()),
            )
        except _UNREADABLE:
            raise RunError(f"{path} cannot be read as the weights of a run") from None


def _groups(state: State) -> Iterable[tuple[str, Arrays]]:
    yield "parameter", state.parameters
    yield "mean", state.adam.mean
    yield "square", state.adam.square
    yield "memory", {str(layer): array for layer, array in enumerate(state.memory)}


def _named(arrays: Arrays, group: str) -> Arrays:
    prefix = f"{group}/"
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def next_folder(parent: Path, name: str) -> Path:
    """Return the first path of ``parent/name-001``, ``parent/name-002``, ... that does not exist."""
    number = 1
    while (path := parent / f"{name}-{number:03d}").exists():
        number += 1
    return path
