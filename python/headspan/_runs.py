"""The run folder: what a training run keeps on disk.

========================  =========================================================================
``config.json``           model, training and text, enough to repeat the run
``metrics.jsonl``         one JSON object a line: step, bits per character, spans
``weights.npz``           parameters and the optimizer's state, so that training can go on
``report.html``           the report; ``spans.svg`` is its picture of the spans
========================  =========================================================================

Files are written beside their place and moved there whole, so that a run that is killed leaves
either the old file or the new one.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from headspan._optimizer import Adam

Arrays = dict[str, NDArray[Any]]
Row = dict[str, Any]

FORMAT = 1


class RunError(ValueError):
    """Something a user can put right: a missing file, a folder that is no run, a text too short."""


@dataclass
class State:
    """Where training stands after `step` steps.

    Attributes
    ----------
    parameters : dict of str to ndarray
    adam : Adam
    step : int
    seconds : float
        Time spent training so far.
    recent : list of float
        Bits per character of the steps since the last row of the metrics.
    """

    parameters: Arrays
    adam: Adam
    step: int = 0
    seconds: float = 0.0
    recent: list[float] = field(default_factory=list)


def replace_file(path: Path, content: bytes) -> None:
    """Write content to path in one move."""
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

    @classmethod
    def create(cls, path: Path, config: dict[str, Any]) -> Run:
        """Make a new run folder; an existing one is never written over."""
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            raise RunError(f"{path} already exists; choose another folder with --out") from None
        config = {"format": FORMAT, **config}
        replace_file(path / "config.json", (json.dumps(config, indent=2) + "\n").encode())
        return cls(path, config)

    @classmethod
    def open(cls, path: Path) -> Run:
        """Open a run folder made by `create`."""
        if not path.is_dir():
            raise RunError(f"there is no run folder {path}")
        try:
            config = json.loads((path / "config.json").read_bytes())
        except FileNotFoundError:
            raise RunError(f"{path} is not a run folder: it has no config.json") from None
        except ValueError:
            raise RunError(f"{path / 'config.json'} is not valid JSON") from None
        if not isinstance(config, dict) or config.get("format") != FORMAT:
            raise RunError(f"{path / 'config.json'} was not written by this version of headspan")
        return cls(path, config)

    def metrics(self) -> list[Row]:
        """Return the rows of the metrics; a last line cut short by a kill is left out."""
        path = self.path / "metrics.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        rows = []
        for number, line in enumerate(lines, 1):
            try:
                rows.append(json.loads(line))
            except ValueError:
                if number < len(lines):
                    raise RunError(f"{path}, line {number} is not valid JSON") from None
        return rows

    def add_metrics(self, row: Row) -> None:
        """Append one row."""
        with (self.path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")

    def keep_metrics(self, step: int) -> None:
        """Drop the rows after step, which the saved weights do not know of."""
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
        """Read ``weights.npz``; None if the run has not saved any yet."""
        path = self.path / "weights.npz"
        if not path.exists():
            return None
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = dict(file)
            adam = Adam(mean=_named(arrays, "mean"), square=_named(arrays, "square"))
            return State(
                _named(arrays, "parameter"),
                adam,
                int(arrays["step"]),
                float(arrays["seconds"]),
                arrays["recent"].tolist(),
            )
        except (ValueError, KeyError, OSError, zipfile.BadZipFile):
            raise RunError(f"{path} cannot be read as the weights of a run") from None


def _groups(state: State) -> Iterable[tuple[str, Arrays]]:
    yield "parameter", state.parameters
    yield "mean", state.adam.mean
    yield "square", state.adam.square


def _named(arrays: Arrays, group: str) -> Arrays:
    prefix = f"{group}/"
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def next_folder(parent: Path, name: str) -> Path:
    """Return the first of ``parent/name-001``, ``parent/name-002``, ... that does not exist."""
    number = 1
    while (path := parent / f"{name}-{number:03d}").exists():
        number += 1
    return path
