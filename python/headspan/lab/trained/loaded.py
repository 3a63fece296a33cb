"""Inspection of a run: its weights, its history, and the attention of its heads on any text."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from headspan import _check
from headspan._help import described
from headspan.lab.config import ModelConfig, TrainConfig
from headspan.lab.model import Parameters, layers
from headspan.lab.model.forward import forward, mean_spans
from headspan.lab.model.heads import characters, head_names, side_by_side
from headspan.lab.report.numbers import history_of
from headspan.lab.runs import Run, RunError
from headspan.lab.training.start import configs, current_state

Array = NDArray[Any]


class Trace(TypedDict):
    """Arrays of all heads on a text, in the form of keyword arguments of `headspan.explore`."""

    query: Array
    key: Array
    value: Array
    span: Array
    ramp: float
    tokens: list[str]
    names: list[str]
    unit: str


@dataclass(frozen=True)
class LoadedRun:
    """A loaded run, as returned by `headspan.lab.load_run`.

    Attributes
    ----------
    path : Path
    config : dict
        Content of ``config.json``, including the command, the text and the extensions of the run.
    model : ModelConfig
        Configuration of the model for the functions of `headspan.lab.lm`.
    training : TrainConfig
    weights : dict of str to ndarray, float32
        Parameters for the functions of `headspan.lab.lm`. If heads learn spans,
        ``weights["span"]`` has the shape (layers,
        heads) and holds spans in characters.
    history : dict of str to ndarray
        ``step``, (rows,); ``bits`` per character in training, (rows,); ``validation``, (rows,), NaN in rows without an
        evaluation; ``spans``, (rows, layers, heads).
    vocabulary : ndarray of uint8, shape (vocabulary,)
        The byte of each index.
    """

    path: Path
    config: dict[str, Any]
    model: ModelConfig
    training: TrainConfig
    weights: Parameters
    history: dict[str, Array]
    vocabulary: NDArray[np.uint8]

    def __repr__(self) -> str:
        sizes = {"layers": self.model.layers, "heads": self.model.heads, "width": self.model.width}
        return described(self, path=str(self.path), **sizes, step=int(self.history["step"].max(initial=0)))

    def encode(self, text: str | bytes) -> NDArray[np.int64]:
        """Return the indices of the bytes of a text, shape (tokens,).

        Parameters
        ----------
        text : str or bytes
            A non-empty text of characters that occur in the run's text. A str is encoded as UTF-8.

        Raises
        ------
        ValueError
            If `text` is empty or has a character that does not occur in the run's text.
        TypeError
            If `text` is neither str nor bytes.
        """
        return encode("text", text, self.vocabulary)

    def trace(self, text: str | bytes) -> Trace:
        """Run the model on a text and return the arrays of its attention, for `headspan.explore`.

        Parameters
        ----------
        text : str or bytes
            A text as for `encode`. The model was trained on windows of ``training.context`` characters.

        Returns
        -------
        dict
            ``query``, ``key`` and ``value``, (layers * heads, tokens, head_dim), float32, ordered by layer; ``span``,
            (layers * heads,), and ``ramp``, in characters; ``tokens``, one character per byte, with a dot for bytes
            that are not ASCII text; ``names``, such as "layer 2, head 3" for the head with the span
            ``weights["span"][2, 3]``; ``unit``. For predicted spans, ``span`` is their mean over the text.

        Raises
        ------
        ValueError
            If `text` is empty, if it has a character that does not occur in the run's text, or if spans are not finite.
        TypeError
            If `text` is neither str nor bytes.
        """
        tokens = self.encode(text)
        result = forward(layers, self.weights, self.model, tokens[None])
        query, key, value = side_by_side(result.heads)
        return Trace(
            query=query,
            key=key,
            value=value,
            span=mean_spans(self.model.heads, result.spans).ravel(),
            ramp=self.model.ramp,
            tokens=characters(self.vocabulary[tokens]),
            names=head_names(self.model.layers, self.model.heads),
            unit="characters",
        )


def encode(name: str, text: object, vocabulary: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the indices of the bytes of a text in a vocabulary. Error messages call the text `name`."""
    if not isinstance(text, str | bytes):
        raise TypeError(f"{name} must be str or bytes, not {_check.describe(text)}")
    data = text if isinstance(text, bytes) else text.encode(errors="surrogateescape")
    if not data:
        raise ValueError(f"{name} must contain at least one character, got none")
    alphabet = set(vocabulary.tolist())
    for character in data.decode(errors="surrogateescape"):
        parts = character.encode(errors="surrogateescape")
        if not alphabet.issuperset(parts):
            written = repr(character) if character.isprintable() else f"the byte {parts[0]:#04x}"
            raise ValueError(f"{name} must only contain characters of the text of the run, not {written}")
    return np.searchsorted(vocabulary, np.frombuffer(data, np.uint8))


def load_run(path: str | os.PathLike[str]) -> LoadedRun:
    """Load the weights, the history and the model of a run of ``headspan train`` or ``headspan demo``.

    Parameters
    ----------
    path : str or path
        The run folder. The training text is not needed.

    Returns
    -------
    LoadedRun
        An object with the attributes ``path``, ``config``, ``model``, ``training``, ``weights``, ``history`` and
        ``vocabulary``, and the methods ``encode(text)`` and ``trace(text)``, whose result is for `headspan.explore`.
        If the run has not saved any weights yet, ``weights`` holds its initial weights.

    Raises
    ------
    ValueError
        If `path` is not a run folder, or if its files are damaged.
    TypeError
        If `path` is neither str nor a path.
    ModuleNotFoundError
        If autograd is not installed.

    See Also
    --------
    train : Starts or resumes training.
    write_report : The report of a run.
    headspan.explore : Interactive view of ``trace(text)``.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import headspan as hs
    >>> from headspan.lab import lm
    >>> from headspan.lab.runs import Run
    >>> from headspan.lab.text import Text
    >>> from headspan.lab import TrainConfig, as_config, train
    >>> text = Text.from_bytes(b"to be or not to be, " * 50, "hamlet")
    >>> config = lm.ModelConfig(len(text.vocabulary), layers=2, heads=2, width=8, hidden=8)
    >>> training = TrainConfig(steps=4, batch=1, context=16)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = train(Run.create(Path(folder) / "run", as_config(config, training, text)), text)
    ...     run = hs.lab.load_run(Path(folder) / "run")
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
        vocabulary = _check.indices("vocabulary", run.config["text"].get("vocabulary"), axes=("bytes",), below=256)
        if len(vocabulary) != model.vocabulary or (np.diff(vocabulary) <= 0).any():
            raise ValueError(f"vocabulary must be {model.vocabulary} bytes in ascending order")
    except (TypeError, ValueError) as error:
        raise RunError(f"{run.path / 'config.json'} does not describe a run: {error}") from None
    return vocabulary.astype(np.uint8)
