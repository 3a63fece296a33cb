"""Fit spans to a trained model, and keep the result in a folder."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import headspan.lab.pretrained.extra

# isort: split
import numpy as np
import torch

import headspan.torch
from headspan.fitting import DescentState, SpanFit
from headspan.lab.pretrained.loading import Pretrained, load_pretrained
from headspan.lab.runs import RunError, replace_file
from headspan.torch.fitting.data import evenly, windows_of

HELD_OUT = 8  # the largest number of held-out windows, the last quarter of the text

_SETTINGS, _STATE, _SPANS, _RESULT = "settings.json", "state.npz", "spans.json", "fit.json"
_ARRAYS = ("spans", "mean", "square", "total")


class Settings(NamedTuple):
    """What a fit depends on.

    Attributes
    ----------
    model : str
        See `load`.
    texts : list of dict
        The path and the SHA-256 of each text.
    tokens, steps, first_tokens, ramp, budget, budget_of, tolerance
        See `headspan.torch.fit_spans`.
    """

    model: str
    texts: list[dict[str, str]]
    tokens: int
    steps: int
    first_tokens: int
    ramp: float
    budget: float | None
    budget_of: str
    tolerance: float | None

    @classmethod
    def read(cls, folder: Path) -> Settings:
        """Read the settings of a folder that `write` has made."""
        try:
            return cls(**json.loads((folder / _SETTINGS).read_text(encoding="utf-8")))
        except FileNotFoundError:
            raise RunError(f"{folder} must be a folder of headspan fit, but has no {_SETTINGS}") from None

    def write(self, folder: Path) -> None:
        """Write the settings to a folder."""
        replace_file(folder / _SETTINGS, json.dumps(self._asdict(), indent=1).encode())


def described(paths: list[Path]) -> list[dict[str, str]]:
    """Return the path and the SHA-256 of each text."""
    return [{"path": str(path.resolve()), "sha256": hashlib.sha256(_read(path)).hexdigest()} for path in paths]


class Fitted(NamedTuple):
    """A fit, its model with the spans, and the held-out windows, (windows, tokens)."""

    pretrained: Pretrained
    fit: SpanFit
    held_out: torch.Tensor


def fit_in(folder: Path, settings: Settings) -> Fitted:
    """Fit spans from the start or from the state in the folder; write the spans, the configuration and the state."""
    texts = []
    for entry in settings.texts:
        content = _read(Path(entry["path"]))
        if hashlib.sha256(content).hexdigest() != entry["sha256"]:
            raise RunError(f"{entry['path']} must be the text with which the fit began, but has changed")
        texts.append(content.decode("utf-8", errors="replace"))
    pretrained = load_pretrained(settings.model)
    try:
        windows = windows_of("the text", texts, pretrained.tokenizer, settings.tokens)
    except ValueError as error:
        raise RunError(str(error)) from None
    if len(windows) < 2:
        raise RunError(f"the text must have at least 2 windows of {settings.tokens} tokens, one of them held out")
    kept = len(windows) - max(len(windows) // 4, 1)
    held_out = evenly(windows[kept:], HELD_OUT)
    options = {name: getattr(settings, name) for name in Settings._fields if name not in ("model", "texts", "tokens")}
    state = _read_state(folder / _STATE)
    try:
        fit = headspan.torch.fit_spans(pretrained.model, windows[:kept], held_out=held_out, state=state, **options)
    except ValueError as error:  # about an option or the model
        raise RunError(str(error)) from error
    settings.write(folder)
    spans = fit.model_spans
    spans._replace(about={"model": pretrained.name, **(spans.about or {})}).save(folder / _SPANS)
    pretrained.model.config.save_pretrained(folder)
    replace_file(folder / _RESULT, json.dumps(_summary(fit), indent=1).encode())
    assert fit.state is not None
    _write_state(folder / _STATE, fit.state)
    return Fitted(pretrained, fit, held_out)


def _summary(fit: SpanFit) -> dict[str, Any]:
    numbers = {name: value for name, value in fit._asdict().items() if name not in ("spans", "state")}
    for name in ("curve", "uniform_curve"):
        numbers[name] = [point._asdict() for point in numbers[name]]
    numbers["uniform"] = fit.uniform._asdict()
    return numbers


def _write_state(path: Path, state: DescentState) -> None:
    arrays: dict[str, Any] = {name: getattr(state, name) for name in _ARRAYS}
    arrays["passed"] = np.array(state.passed).reshape(-1, *state.spans.shape)
    np.savez(path, numbers=np.array([state.step, state.steps, state.increase]), **arrays)


def _read_state(path: Path) -> DescentState | None:
    if not path.exists():
        return None
    with np.load(path) as stored:
        step, steps, increase = stored["numbers"].tolist()
        arrays = {name: stored[name] for name in _ARRAYS}
        return DescentState(int(step), int(steps), **arrays, increase=increase, passed=tuple(stored["passed"]))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise RunError(f"{path} does not exist") from None
