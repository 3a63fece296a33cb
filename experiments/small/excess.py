"""What the arms of ``unequal.py`` lose, and which heads copy: read from results for the pictures and for the tables.

A seed that is still running is left out.
"""

from __future__ import annotations

import re
from collections import defaultdict
from statistics import mean
from typing import Any

FULL, LEARNED = "full attention", "learned"
COPIES = 0.1  # the least weight of a head that copies on what followed before


def excesses(seeds: list[Any]) -> dict[str, list[float]]:
    """Return the bits above full attention of each seed, by arm; several deals of the same spans are one arm."""
    arms = of_arms(seeds, "bits")
    baseline = arms.pop(FULL)
    return {arm: [bits - full for bits, full in zip(values, baseline, strict=True)] for arm, values in arms.items()}


def of_arms(seeds: list[Any], what: str) -> dict[str, list[float]]:
    """Return a result of each complete seed, by arm: the mean over deals."""
    arms: dict[str, list[float]] = defaultdict(list)
    for seed in complete(seeds):
        values: dict[str, list[float]] = defaultdict(list)
        for name, arm in seed["arms"].items():
            values[re.sub(r" \d$", "", name)].append(arm[what])
        for name, some in values.items():
            arms[name].append(mean(some))
    return arms


def complete(seeds: list[Any]) -> list[Any]:
    """Return the seeds that have all arms, whose work is measured in the end."""
    return [seed for seed in seeds if all("seconds" in arm for arm in seed["arms"].values())]


def copying_in(seeds: list[Any], models: list[Any]) -> list[list[tuple[int, int]]]:
    """Return for each seed the heads that copy in its model at the end of the training."""
    ends = {model["seed"]: model["history"][-1] for model in models}
    return [copying_heads(ends[seed["seed"]]) for seed in seeds]


def copying_heads(entry: Any) -> list[tuple[int, int]]:
    """Return the layers and numbers of the heads that copy in an entry of the history of a training."""
    return [(layer, head) for layer, row in enumerate(entry["weights"]) for head, w in enumerate(row) if w >= COPIES]
