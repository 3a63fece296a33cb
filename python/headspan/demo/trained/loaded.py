"""A run to look into: its weights and history, and what its heads do on a text of one's own."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from headspan import _check
from headspan.demo.config import ModelConfig, TrainConfig
from headspan.demo.model import Parameters, layers
from headspan.demo.model.forward import forward, mean_spans
from headspan.demo.model.heads import characters, side_by_side
from headspan.demo.report.numbers import history_of
from headspan.demo.runs import Run, RunError
from headspan.demo.training.train import configs, current_state

Array = NDArray[Any]


class Trace(TypedDict):
    """What the heads of all layers make of a text, as the arguments of `headspan.explore`."""

    query: Array
    key: Array
    value: Array
    span: Array
    ramp: float
    tokens: list[str]
    unit: str


@dataclass(frozen=True)
class LoadedRun:
    """A run as `headspan.load_run` returns it.

    Attributes
    ----------
    path : Path
    config : dict
        Content of ``config.json``: the command, the text, its extensions.
    model : ModelConfig
        As `headspan.lm` takes it.
    training : TrainConfig
    weights : dict of str to ndarray, float32
        As `headspan.lm` takes them; ``weights["span"]`` is (layers, heads), in characters, where heads learned theirs.
    history : dict of str to ndarray
        ``step`` (rows,), ``bits`` per character in training (rows,), ``validation`` (rows,), NaN where it was not
        looked at, and ``spans`` (rows, layers, heads).
    vocabulary : ndarray of uint8, shape (vocabulary,)
        The byte that each index stands for.
    """

    path: Path
    config: dict[str, Any]
    model: ModelConfig
    training: TrainConfig
    weights: Parameters
    history: dict[str, Array]
    vocabulary: NDArray[np.uint8]

    def encode(self, text: str | bytes) -> NDArray[np.int64]:
        """Return the indices of the bytes of a text, shape (tokens,).

        Parameters
        ----------
        text : str or bytes
            UTF-8 if it is a str. At least one character, and none that the run's text has not.

        Raises
        ------
        ValueError
            For an empty text, or a character that the model has never seen.
        TypeError
            For what is no text.
        """
        return encode("text", text, self.vocabulary)

    def trace(self, text: str | bytes) -> Trace:
        """Run the model on a text and return what its heads compute with, for `headspan.explore`.

        Parameters
        ----------
        text : str or bytes
            As for `encode`. The model was trained on windows of ``training.context`` characters.

        Returns
        -------
        dict
            ``query``, ``key`` and ``value`` (layers * heads, tokens, head_dim), float32, the heads of the first layer
            first; ``span`` (layers * heads,), the mean where characters predict them, and ``ramp``, in
            characters; ``tokens``, one a byte, a dot for each that
            is no character alone; ``unit``.

        Raises
        ------
        ValueError
            For an empty text, a character that the model has never seen, or spans that are not finite.
        TypeError
            For what is no text.
        """
        tokens = self.encode(text)
        passed = forward(layers, self.weights, self.model, tokens[None])
        query, key, value = side_by_side(passed.heads)
        return Trace(
            query=query,
            key=key,
            value=value,
            span=mean_spans(self.model.heads, passed.spans).ravel(),
            ramp=self.model.ramp,
            tokens=characters(self.vocabulary[tokens]),
            unit="characters",
        )


def encode(name: str, text: object, vocabulary: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the indices of the bytes of a text in a vocabulary; name is what an error calls it."""
    if not isinstance(text, str | bytes):
        raise TypeError(f"{name} must be str or bytes, not {_check.describe(text)}")
    data = text if isinstance(text, bytes) else text.encode(errors="surrogateescape")
    if not data:
        raise ValueError(f"{name} must hold at least one character, not none")
    known = set(vocabulary.tolist())
    for character in data.decode(errors="surrogateescape"):
        parts = character.encode(errors="surrogateescape")
        if not known.issuperset(parts):
            written = repr(character) if character.isprintable() else f"the byte {parts[0]:#04x}"
            raise ValueError(f"{name} must hold only what the run's own text has, which {written} is not in")
    return np.searchsorted(vocabulary, np.frombuffer(data, np.uint8))


def load_run(path: str | os.PathLike[str]) -> LoadedRun:
    """Load a run of ``headspan train`` or ``headspan demo``: its weights, its history, and its model to try on a text.

    Parameters
    ----------
    path : str or path
        The run folder. The text that the run was trained on is not needed.

    Returns
    -------
    LoadedRun
        With the attributes ``path``, ``config``, ``model``, ``training``, ``weights``, ``history`` and ``vocabulary``,
        and the methods ``trace(text)``, whose result is what `headspan.explore` takes, and ``encode(text)``. Of a run
        that has saved no weights yet, those that it begins with.

    Raises
    ------
    ValueError
        For a folder that is no run, or a run whose files are broken.
    TypeError
        For what is no path.
    ModuleNotFoundError
        Without autograd.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import headspan as hs
    >>> from headspan import lm
    >>> from headspan.demo.runs import Run
    >>> from headspan.demo.text import Text
    >>> from headspan.train import TrainConfig, as_config, train
    >>> text = Text.from_bytes(b"to be or not to be, " * 50, "hamlet")
    >>> config = lm.ModelConfig(len(text.vocabulary), layers=2, heads=2, width=8, hidden=8)
    >>> training = TrainConfig(steps=4, batch=1, context=16)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = train(Run.create(Path(folder) / "run", as_config(config, training, text)), text)
    ...     run = hs.load_run(Path(folder) / "run")
    >>> run.weights["span"].shape, run.history["spans"].shape
    ((2, 2), (1, 2, 2))
    >>> seen = run.trace("not to be")
    >>> seen["query"].shape, "".join(seen["tokens"])
    ((4, 9, 4), 'not to be')
    >>> hs.attention_weights(seen["query"], seen["key"], span=seen["span"], ramp=seen["ramp"]).shape
    (4, 9, 9)
    >>> hs.explore(**seen).span == seen["span"].clip(0, 9).tolist()  # a span never ends beyond the text
    True
    """
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path must be a run folder such as 'runs/demo-001', not {_check.describe(path)}")
    run = Run.open(Path(path))
    model, training = configs(run)
    state = current_state(run, model, training.seed)
    columns = history_of([row for row in run.metrics() if row["step"] <= state.step])
    history = {name: np.array(column, int if name == "step" else float) for name, column in columns.items()}
    history["spans"] = history["spans"].reshape(-1, model.layers, model.heads)
    return LoadedRun(run.path, run.config, model, training, state.parameters, history, _vocabulary(run, model))


def _vocabulary(run: Run, model: ModelConfig) -> NDArray[np.uint8]:
    try:
        given = _check.indices("vocabulary", run.config["text"].get("vocabulary"), axes=("bytes",), below=256)
        if len(given) != model.vocabulary or (np.diff(given) <= 0).any():
            raise ValueError(f"vocabulary must be {model.vocabulary} bytes in ascending order")
    except (TypeError, ValueError) as error:
        raise RunError(f"{run.path / 'config.json'} does not describe a run: {error}") from None
    return given.astype(np.uint8)
