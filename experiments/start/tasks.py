"""Three tasks of which it is known how far a head has to see."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

TOKENS = 256
NOTHING = -100  # the target of a token after which nothing is predicted; `cross_entropy` ignores it
NOISE = 16  # the first tokens of every vocabulary, which say nothing

Sequences = NDArray[np.int64]


class Task(NamedTuple):
    """A task.

    Attributes
    ----------
    draw : callable
        From a random generator and a number of sequences to inputs and targets, (sequences, TOKENS).
    vocabulary : int
        The number of different tokens.
    reach : int
        The largest distance to a token that a prediction needs.
    """

    draw: Callable[[np.random.Generator, int], tuple[Sequences, Sequences]]
    vocabulary: int
    reach: int


def _places(rng: np.random.Generator, count: int, first: int, last: int, number: int) -> Sequences:
    """Draw `number` different places from `first` to `last` for each sequence, in random order."""
    return first + rng.permuted(np.tile(np.arange(last - first + 1), (count, 1)), axis=1)[:, :number]


KEYS, VALUES = 8, 8


def _recall(rng: np.random.Generator, count: int) -> tuple[Sequences, Sequences]:
    """Draw facts at places 0 to 63, each a key with a value, and questions for all keys at places 128 to 191."""
    inputs = rng.integers(0, NOISE, (count, TOKENS))
    targets = np.full_like(inputs, NOTHING)
    rows, keys = np.arange(count)[:, None], np.arange(KEYS)
    values = rng.integers(0, VALUES, (count, KEYS))
    inputs[rows, _places(rng, count, 0, 63, KEYS)] = NOISE + keys * VALUES + values
    questions = _places(rng, count, 128, 191, KEYS)
    inputs[rows, questions] = NOISE + KEYS * VALUES + keys
    targets[rows, questions] = values
    return inputs, targets


KINDS = 8


def _heading(rng: np.random.Generator, count: int) -> tuple[Sequences, Sequences]:
    """Draw a heading within the first 8 places of each half, and questions for the kind of the last heading."""
    inputs = rng.integers(0, NOISE, (count, TOKENS))
    targets = np.full_like(inputs, NOTHING)
    rows = np.arange(count)[:, None]
    kinds = rng.integers(0, KINDS, (count, 2))
    starts = np.array([0, TOKENS // 2])
    inputs[rows, starts + rng.integers(0, 8, (count, 2))] = NOISE + kinds
    for half, start in enumerate(starts):
        questions = _places(rng, count, start + 8, start + TOKENS // 2 - 1, 32)
        inputs[rows, questions] = NOISE + KINDS
        targets[rows, questions] = kinds[:, half, None]
    return inputs, targets


DISTANCE = 96


def _echo(rng: np.random.Generator, count: int) -> tuple[Sequences, Sequences]:
    """Draw tokens that repeat those DISTANCE places before, except for one of eight, and predict the next token."""
    tokens = rng.integers(0, NOISE, (count, TOKENS + 1))
    repeats = rng.random(tokens.shape) >= 1 / 8
    for place in range(DISTANCE, TOKENS + 1):
        tokens[:, place] = np.where(repeats[:, place], tokens[:, place - DISTANCE], tokens[:, place])
    targets = tokens[:, 1:].copy()
    targets[:, : DISTANCE - 1] = NOTHING
    return tokens[:, :-1], targets


TASKS = {
    "recall": Task(_recall, NOISE + KEYS * VALUES + KEYS, 191),
    "heading": Task(_heading, NOISE + KINDS + 1, TOKENS // 2 - 1),
    "echo": Task(_echo, NOISE, DISTANCE - 1),
}
