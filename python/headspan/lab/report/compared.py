"""The report's section that compares the saved pairs with the cost in bits per character."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from headspan.lab.report.page import number_table, with_code
from headspan.lab.report.remarks import command_to_continue
from headspan.lab.report.subject import Subject
from headspan.lab.runs import Run
from headspan.lab.training.baselines import (
    FOLDER,
    baselines_of,
    has_baselines,
    pairs_of,
)
from headspan.lab.training.start import configs, current_state
from headspan.lab.training.train import text_bits


@dataclass(frozen=True)
class Compared:
    """A model in the comparison.

    Attributes
    ----------
    name : str
    bits : float
        Bits per character on the held-out text.
    pairs : int
        Number of pairs of characters that all heads compute in one window of training.
    seconds : float
        Training time in seconds.
    """

    name: str
    bits: float
    pairs: int
    seconds: float


@dataclass(frozen=True)
class Comparison:
    """The models that have been trained for as many steps, and the baselines that have not.

    Attributes
    ----------
    models : list of Compared
        The model of the run first.
    left_out : list of str
        A sentence for each baseline with another number of steps.
    """

    models: list[Compared]
    left_out: list[str]


def compare(subject: Subject) -> Comparison | None:
    """Compare the model of a run with its baselines, or return None if it has no baselines."""
    run, training, state = subject.run, subject.training, subject.state
    if not has_baselines(run) or subject.pairs is None:
        return None
    test = subject.text.encode(subject.text.part("test"))
    models = [Compared("learned spans", subject.test_bits, subject.pairs.computed, state.seconds)]
    left_out = []
    names = {baseline.folder: baseline.name for baseline in baselines_of(run, state, subject.text)}
    for folder in sorted((run.path / FOLDER).iterdir()):
        baseline = Run.open(folder)
        model = configs(baseline)[0]
        reached = current_state(baseline, model, training.seed)
        if reached.step != state.step:
            name = "Full attention" if folder.name == "full" else f"A window of {model.span_init:,.0f} characters"
            left_out.append(
                f"{name} has been trained for {reached.step:,} steps, not for {state.step:,}, and cannot be compared."
            )
        elif folder.name in names:
            with np.errstate(all="ignore"):  # weights may hold NaN, which the report mentions
                bits = text_bits(reached.parameters, model, training, test).mean(dtype=np.float64)
            pairs = pairs_of(reached.parameters, model, training, subject.text).computed
            models.append(Compared(names[folder.name], float(bits), pairs, reached.seconds))
    return Comparison(models, left_out)


def in_words(models: list[Compared]) -> list[str]:
    """Return a sentence for each baseline that states the saving of the learned spans and their cost in bits."""
    learned, *others = models
    sentences = []
    for other in others:
        share = learned.pairs / other.pairs
        work = "as many pairs as" if share > 0.99 else f"{share:.1%} of the pairs of"
        sentences.append(f"The learned spans compute {work} {other.name} and need {_bits(learned, other)}.")
    return sentences


def _bits(learned: Compared, other: Compared) -> str:
    difference = learned.bits - other.bits
    if not math.isfinite(difference):
        return "a number of bits that is not finite and cannot be compared"
    if round(abs(difference), 3) == 0:
        return "the same number of bits per character"
    return f"{abs(difference):.3f} bits per character {'more' if difference > 0 else 'less'}"


def compared(subject: Subject, comparison: Comparison | None) -> list[str]:
    """Return the section, or an empty list for a run without baselines."""
    if comparison is None or subject.pairs is None:
        return []
    models = comparison.models
    rows = [
        [
            model.name,
            f"{model.bits:.3f}" if math.isfinite(model.bits) else "not a number",
            f"{model.pairs:,}",
            f"{model.pairs / subject.pairs.full:.1%}",
        ]
        for model in models
    ]
    head = ["", "bits per character", "pairs", "of all pairs"]
    sentences = [*in_words(models), *comparison.left_out]
    if len(models) < 3:
        sentences.append(f"To compare with full attention and a window: `{command_to_continue(subject.run)}`")
    return [
        "<h2>What do the savings cost?</h2>",
        *(f"<p>{with_code(sentence)}</p>" for sentence in sentences),
        number_table(head, rows),
        "<p>All rows are the same model, trained once each from the same weights on the same batches for the same "
        "number of steps. Small differences may change sign with another seed. The window is hard, the same for all "
        "heads, and the smallest that computes at least as many pairs as the learned spans. Pairs are counted over all "
        f"heads in a window of {subject.pairs.tokens:,} characters, bits are those of the held-out text.</p>",
    ]


def compared_numbers(comparison: Comparison | None) -> dict[str, dict[str, Any]]:
    """Return the numbers of the section's table."""
    return {
        model.name: {
            "bits per character": model.bits,
            "pairs in a window": model.pairs,
            "training seconds": round(model.seconds, 3),
        }
        for model in ([] if comparison is None else comparison.models)
    }
