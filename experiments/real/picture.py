"""Draw the tokens that each key head keeps at half of the bytes: ``python experiments/real/picture.py``."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import colors
from matplotlib import pyplot as plt

ROOT = Path(__file__).parents[2]
RESULT = ROOT / "experiments" / "results" / "real" / "bible_50.json"
PICTURE = ROOT / "docs" / "pictures" / "real.svg"


def main() -> None:
    """Draw a cell for each key head, layer by layer, with the number of tokens that the head reaches."""
    fit = json.loads(RESULT.read_text())
    tokens, ramp = fit["about"]["fit"]["tokens"], fit["about"]["fit"]["ramp"]
    spans = np.array([[np.inf if span is None else span for span in layer] for layer in fit["fit"]["spans"]])
    reach = np.minimum(spans + ramp, tokens).T
    with mpl.rc_context({"svg.hashsalt": "headspan", "font.size": 9}):
        figure, axes = plt.subplots(figsize=(9.5, 2.1), layout="constrained")
        image = axes.imshow(reach, aspect="auto", cmap="viridis", norm=colors.LogNorm(reach.min(), tokens))
        for (head, layer), number in np.ndenumerate(reach):
            dark = number < 700
            text = "all" if number >= tokens else f"{number:.0f}"
            axes.text(layer, head, text, ha="center", va="center", fontsize=6.5, color="white" if dark else "black")
        axes.set(xlabel="layer", ylabel="key head", xticks=range(0, reach.shape[1], 2), yticks=range(len(reach)))
        bar = figure.colorbar(image, ax=axes, ticks=[128, 256, 512, 1024, tokens], format="%d", pad=0.01)
        bar.minorticks_off()
        bar.set_label("reach (tokens)")
        figure.savefig(PICTURE, metadata={"Date": None})


if __name__ == "__main__":
    main()
