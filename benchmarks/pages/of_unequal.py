"""The figures that pages have from the comparison of learned spans with other spans of equal cost."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import mean, stdev
from typing import Any

import numpy as np

from benchmarks.pages.numbers import load
from benchmarks.pages.registry import ROOT, figures
from experiments.small.excess import FULL, LEARNED, complete, copying_heads, copying_in, excesses, of_arms

README, SPANS, SLIDES = "README.md", "docs/teach/spans.md", "docs/teach/slides.md"
EXPERIMENTS = "experiments/README.md"
_FILES, _MODELS = "experiments/results/unequal/*.json", "experiments/results/model_steps16000_seed*.json"
_DEALT, _LAYERS = "learned spans, dealt", "one span a layer, from learned"
# The arms that do not use learned spans. The plan compares learned spans with the one of these that loses least.
_NOT_LEARNED = {
    "window at once": "a window from the first of the 600 steps on",
    "window": "a window that comes down",
    "spread": "spans in the ratios 1 : 4 : 16 : 64 in each layer",
    "one long head a layer": "one long head a layer",
    "long heads by ablation": "long heads, chosen by ablation",
    "attention by distance": "spans from attention by distance",
}
_NAMES = {
    LEARNED: "learned spans",
    _DEALT: "the learned spans, dealt to other heads",
    _LAYERS: "one span a layer, from the learned spans",
} | _NOT_LEARNED


def _named(seeds: Any) -> dict[str, list[float]]:
    """Return the bits above full attention of each seed, by the name of the arm on pages."""
    losses = excesses(seeds)
    return {name: losses[arm] for arm, name in _NAMES.items()}


def _best(seeds: Any) -> str:
    losses = _named(seeds)
    return min(_NOT_LEARNED.values(), key=lambda name: mean(losses[name]))


@figures(EXPERIMENTS, _FILES)
def _each_seed(seeds: Any) -> Iterator[tuple[Any, ...]]:
    for name, losses in _named(seeds).items():
        yield f"| {name} |{' #' * len(losses)} | # (#) |", *losses, *_mean_and_error(losses)
    full = of_arms(seeds, "bits")[FULL]
    yield f"full attention reaches{' #' * len(full)} bits", *full


@figures(SPANS, _FILES)
def _means(seeds: Any) -> Iterator[tuple[Any, ...]]:
    shares = [_shares(seeds, what) for what in ("pairs", "flops", "seconds")]
    for name, losses in _named(seeds).items():
        yield f"| {name} | # (#) | # % | # % | # % |", *_mean_and_error(losses), *(share[name] for share in shares)
    yield "leaves # % of the pairs", shares[0][_NAMES[LEARNED]]


def _shares(seeds: Any, what: str) -> dict[str, float]:
    """Return a measure of each arm in percent of full attention, the mean over seeds."""
    arms = of_arms(seeds, what)
    return {name: 100 * mean(arms[arm]) / mean(arms[FULL]) for arm, name in _NAMES.items()}


@figures(EXPERIMENTS, _FILES)
def _endpoint(seeds: Any) -> Iterator[tuple[Any, ...]]:
    losses = _named(seeds)
    for name in (_best(seeds), _NAMES[_DEALT], _NAMES[_LAYERS]):
        ratios = [math.log(one / other) for one, other in zip(losses[_NAMES[LEARNED]], losses[name], strict=True)]
        yield f"| learned spans against {name} |{' #' * len(ratios)} | # (#) |", *ratios, *_mean_and_error(ratios)


@figures(SPANS, _FILES)
def _copying_heads(seeds: Any) -> Iterator[tuple[Any, ...]]:
    copying: list[float] = []  # the learned spans of heads that copy, and of all others
    others: list[float] = []
    long: list[float] = []  # what models lose in which a head that copies has the longest span, and all others
    short: list[float] = []
    done = complete(seeds)
    for seed, heads in zip(done, copying_in(done, load(ROOT, _MODELS)), strict=True):
        for place, span in np.ndenumerate(seed["arms"][LEARNED]["spans"]):
            (copying if place in heads else others).append(span)
        for spans, loss in _deals(seed):
            reaches = max(spans[place] for place in heads) == spans.max()
            (long if reaches else short).append(loss)
    yield "have the longest learned spans: # to # characters", min(copying), max(copying)
    yield "No other head has more than # characters", max(others)
    yield "the longest span, and the model loses # to # bits", min(long), max(long)
    yield "in all other deals it loses # to # bits", min(short), max(short)


def _deals(seed: Any) -> Iterator[tuple[Any, float]]:
    """Yield the spans of each deal, and the bits that it loses."""
    for name, arm in seed["arms"].items():
        if name.startswith(_DEALT):
            yield np.array(arm["spans"]), arm["bits"] - seed["arms"][FULL]["bits"]


@figures(SPANS, _FILES)
def _reference(seeds: Any) -> Iterator[tuple[Any, ...]]:
    yield (
        "full attention is at most # bits worse than before",
        max(seed["arms"][FULL]["bits"] - seed["full"] for seed in complete(seeds)),
    )


def _mean_and_error(values: list[float]) -> tuple[float, float]:
    return mean(values), stdev(values) / len(values) ** 0.5


@figures(README, _FILES)
@figures(SLIDES, _FILES)
def _summary(seeds: Any) -> Iterator[tuple[Any, ...]]:
    losses, best = _named(seeds), _best(seeds)
    yield "with # % of the pairs", _shares(seeds, "pairs")[_NAMES[LEARNED]]
    yield "lose # bits with learned spans", mean(losses[_NAMES[LEARNED]])
    yield f"# bits with {best}", mean(losses[best])
    yield "# bits with one window for all heads", mean(losses[_NOT_LEARNED["window"]])
    deals = [loss for seed in complete(seeds) for _, loss in _deals(seed)]
    yield "# to # bits with the learned spans dealt to other heads", min(deals), max(deals)


@figures(SPANS, "experiments/results/model_steps8000_seed*.json")
def _short_trainings(seeds: Any) -> Iterator[tuple[Any, ...]]:
    numbers = [(len(copying_heads(seed["history"][-1])), seed["bits_per_character"]) for seed in seeds]
    yield "seed 0 had # heads that copy and needed # bits, and seed 1 had # and needed #.", *numbers[0], *numbers[1]


@figures(EXPERIMENTS, _MODELS)
def _gate(seeds: Any) -> Iterator[tuple[Any, ...]]:
    bits = [seed["bits_per_character"] for seed in seeds]
    yield f"the models need{' #' * len(bits)} bits", *bits
    yield "and differ by # bits", max(bits) - min(bits)


@figures(SPANS, _MODELS)
def _long_trainings(seeds: Any) -> Iterator[tuple[Any, ...]]:
    yield "appears early**, within # steps", max(_first_step(seed, 1) for seed in seeds)
    yield "Seed 2 has two after # steps and seed 0 after #", _first_step(seeds[2], 2), _first_step(seeds[0], 2)
    one, two = ([seed for seed in seeds if len(copying_heads(seed["history"][-1])) == count] for count in (1, 2))
    for text, what in (
        ("models with one such head need # to # bits on the validation part, and those with two # to #", None),
        ("After a repetition, models with one such head need # to # bits, and those with two # to #", "repeated"),
        ("elsewhere the numbers are # to # and # to #", "others"),
    ):
        yield text, *(number for group in (one, two) for number in _extremes(group, what))


def _extremes(seeds: list[Any], what: str | None) -> tuple[float, float]:
    """Return the lowest and the highest bits of models, on all characters or on some at the end of the training."""
    bits = [seed["history"][-1][what] if what else seed["bits_per_character"] for seed in seeds]
    return min(bits), max(bits)


def _first_step(seed: Any, count: int) -> int:
    """Return the first step at which the model has this many heads that copy."""
    return min(int(entry["step"]) for entry in seed["history"] if len(copying_heads(entry)) >= count)
