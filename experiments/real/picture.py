"""Draw the tokens that each key head keeps at half of the bytes: ``python experiments/real/picture.py``."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib as mpl
import numpy as np
from headspan.lab.report.pictures import reach_of_heads
from headspan.ops.spans import farthest

ROOT = Path(__file__).parents[2]
RESULT = ROOT / "experiments" / "results" / "real" / "bible_50.json"
PICTURE = ROOT / "docs" / "pictures" / "real.svg"


def main() -> None:
    """Draw a cell for each key head, layer by layer, with the number of tokens that the head reaches."""
    fit = json.loads(RESULT.read_text())
    tokens, ramp = fit["about"]["fit"]["tokens"], fit["about"]["fit"]["ramp"]
    spans = np.array([[np.inf if span is None else span for span in layer] for layer in fit["fit"]["spans"]])
    with mpl.rc_context({"svg.hashsalt": "headspan"}):
        figure = reach_of_heads(farthest(spans, ramp), tokens, head="key head")
        figure.savefig(PICTURE, facecolor="white", metadata={"Date": None})


if __name__ == "__main__":
    main()
