"""The figures that pages have from the comparison of learned spans with other spans of equal cost."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import mean, median, stdev
from typing import Any

from benchmarks.pages.registry import figures
from experiments.small.excess import FULL, LEARNED, excesses, of_arms

README, SPANS, SLIDES = "README.md", "docs/teach/spans.md", "docs/teach/slides.md"
EXPERIMENTS = "experiments/README.md"
_FILES = "experiments/results/unequal/*.json"
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


@figures(EXPERIMENTS, _FILES)
def _deals(seeds: Any) -> Iterator[tuple[Any, ...]]:
    arms = seeds[1]["arms"]
    deals = [arm["bits"] - arms[FULL]["bits"] for name, arm in arms.items() if name.startswith(_DEALT)]
    yield "in seed 1, the three deals lose #, # and # bits", *deals


def _mean_and_error(values: list[float]) -> tuple[float, float]:
    return mean(values), stdev(values) / len(values) ** 0.5


@figures(README, _FILES)
@figures(SLIDES, _FILES)
def _summary(seeds: Any) -> Iterator[tuple[Any, ...]]:
    losses, best = _named(seeds), _best(seeds)
    yield "with # % of the pairs", _shares(seeds, "pairs")[_NAMES[LEARNED]]
    yield "learned spans lose # bits", mean(losses[_NAMES[LEARNED]])
    yield f"{best} # bits", mean(losses[best])
    yield "one window for all heads # bits", mean(losses[_NOT_LEARNED["window"]])
    yield "the learned spans, dealt to other heads, # bits", mean(losses[_NAMES[_DEALT]])


@figures(SPANS, "experiments/results/model_steps8000_seed*.json")
def _short_trainings(seeds: Any) -> Iterator[tuple[Any, ...]]:
    first, second = (seed["history"][-1] for seed in seeds)
    yield "seed 0 has # heads that copy and needs # bits", _copying(first), seeds[0]["bits_per_character"]
    yield "seed 1 has # and needs #.", _copying(second), seeds[1]["bits_per_character"]
    more = (second[kind] - first[kind] for kind in ("repeated", "others"))
    yield "seed 1 needs # bits more for the characters that have occurred before, and # bits more for all others", *more


@figures(SPANS, "experiments/results/model_steps16000_seed*.json")
def _long_trainings(seeds: Any) -> Iterator[tuple[Any, ...]]:
    ends, bits = [seed["history"][-1] for seed in seeds], [seed["bits_per_character"] for seed in seeds]
    (count,) = set(map(_copying, ends[:3]))
    yield "seeds 0, 1 and 2 have # and need #, # and # bits", count, *bits[:3]
    yield "Seed 3 has # and needs #.", _copying(ends[3]), bits[3]
    repeated, others = ([end[kind] for end in ends] for kind in ("repeated", "others"))
    numbers = repeated[3], min(repeated[:3]), max(repeated[:3])
    yield "# bits for the characters that have occurred before, and the other seeds need # to #", *numbers
    yield "# bits for all others, and the other seeds # to #", others[3], min(others[:3]), max(others[:3])


def _copying(entry: Any) -> int:
    """Return how many heads have a tenth of their weight on what followed before."""
    return sum(weight > 0.1 for layer in entry["weights"] for weight in layer)


@figures(SPANS, _FILES)
def _longest(seeds: Any) -> Iterator[tuple[Any, ...]]:
    spans = [sorted(span for layer in seed["arms"][LEARNED]["spans"] for span in layer) for seed in seeds[:2]]
    yield "# and # characters in seed 0, and # and # in seed 1", *spans[0][-2:], *spans[1][-2:]
    yield "The median of all spans is # and #", *map(median, spans)
