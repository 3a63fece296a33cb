"""A number in a long text, for which the last words of the text ask."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

CITIES = ("Arvad", "Bethel", "Corinth", "Damascus", "Ephesus", "Gaza", "Hebron", "Joppa", "Kedesh", "Tarsus")
FACT = " The secret number of the city of {city} is {number}."
QUESTION = "\n\nQuestion: What is the secret number of {city}?\nAnswer: The secret number of the city of {city} is"
DIGITS = 5


class Needles(NamedTuple):
    """Texts with a number.

    Attributes
    ----------
    ids : Tensor, shape (texts, tokens)
    answers : list of int
        The number of tokens of each answer, with which the text ends.
    depths : list of float
        The place of the fact, from 0 for the first to 1 for the last.
    """

    ids: torch.Tensor
    answers: list[int]
    depths: list[float]


def needles(windows: torch.Tensor, tokenizer: Any, *, depths: int, numbers: int) -> Needles:
    """Put a fact into windows of a text and a question at their end, at evenly spaced depths; the length stays.

    Facts stand after the end of a sentence.
    """
    rng = np.random.default_rng(0)
    tokens, texts, answers, places = windows.shape[1], [], [], []
    for place in np.tile(np.linspace(0, 1, depths), numbers):
        window, city = windows[len(texts) % len(windows)].tolist(), CITIES[len(texts) % len(CITIES)]
        number = int(rng.integers(10 ** (DIGITS - 1), 10**DIGITS))
        fact, question = (tokenizer(text.format(city=city, number=number)).input_ids for text in (FACT, QUESTION))
        answer = tokenizer(f" {number}").input_ids
        window = window[: tokens - len(fact) - len(question) - len(answer)]
        ends = np.array([i + 1 for i, token in enumerate(window) if tokenizer.decode([token]).endswith(".")])
        end = int(ends[np.abs(ends - place * len(window)).argmin()])
        texts.append(window[:end] + fact + window[end:] + question + answer)
        answers.append(len(answer))
        places.append(float(place))
    return Needles(torch.tensor(texts), answers, places)


@torch.no_grad()
def answered(model: Any, needles: Needles) -> dict[str, list[Any]]:
    """Return whether the model predicts each answer without an error, and the mean loss of its tokens in nats."""
    right, losses = [], []
    for ids, count in zip(needles.ids, needles.answers, strict=True):
        logits = model(ids[None], use_cache=False, logits_to_keep=count + 1).logits[0, :-1].float()
        right.append(bool((logits.argmax(dim=-1) == ids[-count:]).all()))
        losses.append(float(torch.nn.functional.cross_entropy(logits, ids[-count:])))
    return {"right": right, "losses": losses}
