"""Draw what seeing less costs: ``python experiments/small/picture.py`` writes to docs/pictures/.

Thin lines are the seeds in ``experiments/results/``, thick ones their means.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib as mpl
import numpy as np
from excess import LEARNED, complete, copying_in, excesses
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from model import SHORT_WINDOWS

EXPERIMENTS = Path(__file__).parents[1]
PICTURES = EXPERIMENTS.parent / "docs" / "pictures"
STEPS, OLDER_STEPS = 16_000, 4000  # of the models that are drawn
# What it is called, the choice in the results, and how many queries and keys are a block.
LINES = (
    ("random blocks of 4 keys, 16 queries together", "random", (16, 4), "tab:gray"),
    ("window", "window", (16, 4), "black"),
    ("selected, 4 keys, 16 queries together", "first query", (16, 4), "tab:orange"),
    ("selected, 4 keys, each query by itself", "first query", (1, 4), "tab:blue"),
    ("selected, 2 keys, each query by itself", "first query", (1, 2), "tab:purple"),
    ("4 keys of most weight (computes all pairs)", "received weight", (1, 4), "tab:green"),
)


def selected() -> None:
    """Draw the bits that are lost against the pairs, for what is chosen."""
    lost: dict[tuple[str, int, int], dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    seeds = _read(f"selection_steps{OLDER_STEPS}_seed*.json")
    for seed in seeds:
        for row in seed["rows"]:
            lost[row["choice"], row["query_block"], row["key_block"]][row["pairs"]].append(row["excess"])
    with mpl.rc_context({"svg.hashsalt": "headspan", "font.size": 10}):
        figure, axes = plt.subplots(figsize=(7, 4.8), layout="constrained")
        for name, choice, sides, color in LINES:
            points = sorted(
                (pairs, losses) for pairs, losses in lost[choice, *sides].items() if len(losses) == len(seeds)
            )
            pairs = [x for x, _ in points]
            axes.plot(pairs, [np.mean(losses) for _, losses in points], "o-", color=color, label=name, markersize=4)
            for number in range(len(seeds)):
                axes.plot(pairs, [losses[number] for _, losses in points], color=color, linewidth=0.7, alpha=0.5)
        axes.axhline(0, color="black", linewidth=0.8, linestyle=":")
        axes.set_xlabel("pairs a query, of 512 on average")
        axes.set_ylabel("bits a character above full attention")
        axes.set_ylim(bottom=-0.005)
        figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
        axes.set_title(f"Attention exchanged in trained models ({len(seeds)} seeds)", fontsize=10)
        figure.savefig(PICTURES / "selection.svg", metadata={"Date": None})


def fitted() -> None:
    """Draw the bits that are lost against the pairs, for spans that were fitted, and one span for all heads."""
    with mpl.rc_context({"svg.hashsalt": "headspan", "font.size": 10}):
        figure, axes = plt.subplots(figsize=(6, 3.9), layout="constrained")
        seeds = _read(f"fitting_steps{OLDER_STEPS}_seed*.json")
        for at, seed in enumerate(seeds):
            row = seed["rows"][0]
            lines = (
                ("one span for all heads", "uniform_curve", "uniform_held_out_excess", "black"),
                ("fitted by descent, tolerance 1 %", "curve", "held_out_excess", "tab:blue"),
            )
            for label, curve, held_out, color in lines:
                pairs, loss = 100 * np.array(row[curve]).T
                axes.plot(pairs, loss, color=color, linewidth=1.2, label=None if at else label)
                ring = {"markerfacecolor": "none", "markersize": 8, "label": None if at else "  held out"}
                axes.plot(100 * row["share_of_pairs"], 100 * row[held_out], "o", color=color, **ring)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
        axes.set_ylim(-1, 16)
        axes.set_xlabel("pairs (% of full attention)")
        axes.set_ylabel("loss above full attention (%)")
        axes.set_title(f"Spans fitted to trained models ({len(seeds)} seeds)", fontsize=10)
        figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
        figure.savefig(PICTURES / "fitting.svg", metadata={"Date": None})


def unequal() -> None:
    """Draw the bits that are lost where weights are trained on within spans, and the learned spans of each layer."""
    seeds = complete(_read(f"unequal/steps{STEPS}_seed*.json"))
    with mpl.rc_context({"svg.hashsalt": "headspan", "font.size": 10}):
        figure, (lost, spans) = plt.subplots(1, 2, figsize=(9, 3.9), layout="constrained")
        lines = dict(sorted(excesses(seeds).items(), key=lambda line: mean(line[1])))
        for row, (arm, losses) in enumerate(lines.items()):
            color = "tab:blue" if arm == LEARNED else "black"
            lost.plot(losses, [row] * len(seeds), "o", color=color, alpha=0.5, markersize=5)
            lost.plot(mean(losses), row, "|", color=color, markersize=16, markeredgewidth=2)
        lost.set_yticks(range(len(lines)), lines)
        lost.invert_yaxis()
        lost.set_xlabel("bits a character above full attention")
        copying = copying_in(seeds, _read(f"model_steps{STEPS}_seed*.json"))
        _layers(spans, [seed["arms"][LEARNED]["spans"] for seed in seeds], copying)
        spans.set_title("learned spans (filled: heads that copy)", fontsize=10)
        figure.suptitle(f"Trained on within as many pairs ({len(seeds)} seeds)", fontsize=10)
        figure.savefig(PICTURES / "unequal.svg", metadata={"Date": None})


def copied() -> None:
    """Draw how the heads that copy appear while the models train, and what the models gain by them."""
    with mpl.rc_context({"svg.hashsalt": "headspan", "font.size": 10}):
        figure, (weight, bits) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
        for number, seed in enumerate(_read(f"model_steps{STEPS}_seed*.json")):
            history = seed["history"]
            steps = [entry["step"] for entry in history]
            heads = np.array([np.ravel(entry["weights"]) for entry in history]).T
            for place, head in enumerate(heads[np.argsort(-heads[:, -1])]):
                about = (
                    {"linewidth": 1.6, "label": f"seed {number}"} if place == 0 else {"linewidth": 0.5, "alpha": 0.5}
                )
                weight.plot(steps, head, color=f"C{number}", **about)
            for kind, style in (("repeated", "-"), ("others", ":")):
                of_kind = [(entry["step"], entry[kind]) for entry in history if entry["step"] > SHORT_WINDOWS * STEPS]
                bits.plot(*zip(*of_kind, strict=True), style, color=f"C{number}", linewidth=1.4)
        weight.axvline(SHORT_WINDOWS * STEPS, color="black", linewidth=0.8, linestyle=":")
        weight.set_xticks(range(0, STEPS + 1, STEPS // 4))
        weight.set_xlabel("steps (dotted line: windows get their whole length)")
        weight.set_ylabel("weight on what followed before")
        weight.set_title("all heads (thick: the one that copies most in the end)", fontsize=10)
        weight.legend(frameon=False, fontsize=9)
        bits.set_ylabel("bits a character")
        bits.set_xlabel("steps")
        bits.set_title("characters after a repetition (lines), all others (dots)", fontsize=10)
        figure.savefig(PICTURES / "copying.svg", metadata={"Date": None})


def _read(pattern: str) -> list[Any]:
    """Return the results of all seeds."""
    return [json.loads(file.read_text()) for file in sorted((EXPERIMENTS / "results").glob(pattern))]


def _layers(axes: Axes, seeds: list[list[list[float]]], copying: list[list[tuple[int, int]]]) -> None:
    """Draw the spans of the heads of each layer, side by side for all seeds."""
    for number, layers in enumerate(seeds):
        for (layer, head), span in np.ndenumerate(layers):
            height = layer + 0.54 / len(seeds) * (number - (len(seeds) - 1) / 2)
            style = {} if (layer, head) in copying[number] else {"markerfacecolor": "none"}
            axes.plot(span, height, "o", color=f"C{number}", markersize=5, **style)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    axes.set_yticks(range(len(seeds[0])))
    axes.invert_yaxis()
    axes.set_xlabel("span of a head (characters)")
    axes.set_ylabel("layer (a colour is a seed)")


def main() -> None:
    """Draw all pictures."""
    selected()
    fitted()
    unequal()
    copied()


if __name__ == "__main__":
    main()
