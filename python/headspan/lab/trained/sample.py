"""Sampling of text: characters are drawn one by one from the prediction of the model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headspan import _check
from headspan.lab.config import ModelConfig
from headspan.lab.model import Parameters, logits, spans_are_finite
from headspan.lab.runs import RunError

Array = NDArray[Any]

NOT_FINITE = "the model's numbers are not finite, so it cannot generate text"


def sample(
    parameters: Parameters,
    config: ModelConfig,
    prompt: Array,
    length: int,
    *,
    context: int,
    temperature: float = 1.0,
    seed: int = 0,
) -> Iterator[int]:
    """Draw the characters that follow a prompt.

    Each character is predicted from the last `context` characters. Therefore the run time is proportional to `length`.

    Parameters
    ----------
    parameters : dict
    config : ModelConfig
    prompt : ndarray of int, shape (tokens,)
        Indices into the vocabulary, at least one.
    length : int
        Number of characters to draw.
    context : int
    temperature : float
        Divisor of the scores. With 0, the most likely character is always chosen.
    seed : int

    Returns
    -------
    iterator of int
        Indices into the vocabulary. Each is computed when the iterator is advanced.

    Examples
    --------
    >>> import numpy as np
    >>> from headspan.lab import lm
    >>> from headspan.lab.trained.sample import sample
    >>> config = lm.ModelConfig(vocabulary=5, layers=1, heads=2, width=8, hidden=8)
    >>> parameters = lm.init_parameters(config, seed=0)
    >>> len(list(sample(parameters, config, np.array([0, 3]), 10, context=4)))
    10
    """
    prompt = _check.indices("prompt", prompt, axes=("tokens",), below=config.vocabulary)
    if prompt.size == 0:
        raise ValueError("prompt must contain at least one character, got none")
    _check.integer("length", length, at_least=0)
    _check.integer("context", context, at_least=1)
    _check.number("temperature", temperature, at_least=0)
    if not spans_are_finite(parameters):  # attention does not accept such spans
        raise RunError(NOT_FINITE)
    rng = np.random.default_rng(_check.integer("seed", seed, at_least=0))
    return _drawn(parameters, config, prompt[-context:].tolist(), length, context, temperature, rng)


def _drawn(
    parameters: Parameters,
    config: ModelConfig,
    window: list[int],
    length: int,
    context: int,
    temperature: float,
    rng: np.random.Generator,
) -> Iterator[int]:
    for _ in range(length):
        with np.errstate(all="ignore"):  # weights may hold NaN, which is checked below
            scores = logits(parameters, config, np.array([window]))[0, -1].astype(np.float64)
        if not np.isfinite(scores).all():
            raise RunError(NOT_FINITE)
        character = int(scores.argmax())
        scores -= scores[character]
        # Underflow is harmless: the likeliest character has exp(0) = 1, next to which such a probability is 0.
        with np.errstate(under="ignore", over="ignore"):
            chances = np.exp(scores / temperature) if temperature else None
        if chances is not None:
            character = int(rng.choice(scores.size, p=chances / chances.sum()))
        window = [*window, character][-context:]
        yield character
