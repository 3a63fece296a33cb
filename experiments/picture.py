"""Draw what selection costs against how much it sees: ``python experiments/picture.py`` writes docs/selection.svg.

Thick lines are means over the seeds in ``experiments/results/``, thin lines are the seeds.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt

HERE = Path(__file__).parent
STEPS = 4000
# What it is called, the choice in the results, and how many queries and keys are a block.
LINES = (
    ("random blocks of 4 keys, 16 queries together", "random", (16, 4), "tab:gray"),
    ("window", "window", (16, 4), "black"),
    ("selected, 4 keys, 16 queries together", "first query", (16, 4), "tab:orange"),
    ("selected, 4 keys, each query by itself", "first query", (1, 4), "tab:blue"),
    ("selected, 2 keys, each query by itself", "first query", (1, 2), "tab:purple"),
    ("4 keys of most weight (computes all pairs)", "received weight", (1, 4), "tab:green"),
)


def main() -> None:
    """Draw the picture."""
    found: dict[tuple[str, int, int], dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    files = sorted((HERE / "results").glob(f"selection_steps{STEPS}_seed*.json"))
    for file in files:
        for row in json.loads(file.read_text())["rows"]:
            found[row["choice"], row["query_block"], row["key_block"]][row["pairs"]].append(row["excess"])
    with mpl.rc_context({"svg.hashsalt": "headspan", "font.size": 10}):
        figure, axes = plt.subplots(figsize=(7, 4.8), layout="constrained")
        for name, choice, sides, color in LINES:
            points = sorted((pairs, its) for pairs, its in found[choice, *sides].items() if len(its) == len(files))
            pairs = [x for x, _ in points]
            axes.plot(pairs, [np.mean(its) for _, its in points], "o-", color=color, label=name, markersize=4)
            for number in range(len(files)):
                axes.plot(pairs, [its[number] for _, its in points], color=color, linewidth=0.7, alpha=0.5)
        axes.axhline(0, color="black", linewidth=0.8, linestyle=":")
        axes.set_xlabel("pairs a query, of 512 on average")
        axes.set_ylabel("bits a character above full attention")
        axes.set_ylim(bottom=-0.005)
        figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
        axes.set_title(f"Attention exchanged in trained models ({len(files)} seeds)", fontsize=10)
        figure.savefig(HERE.parent / "docs" / "selection.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
