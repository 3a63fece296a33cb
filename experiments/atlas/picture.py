"""Draw the atlas and write its table: ``python experiments/atlas/picture.py``.

The pictures go to ``docs/pictures/atlas_*.svg``, and the table replaces that of ``docs/explain/atlas.md``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from headspan.lab.report.pictures import reach_of_heads
from headspan.ops.spans import farthest
from matplotlib.figure import Figure

ROOT = Path(__file__).parents[2]
RESULTS, PICTURES = ROOT / "experiments" / "results" / "atlas", ROOT / "docs" / "pictures"
PAGE = ROOT / "docs" / "explain" / "atlas.md"
UNITS = {"reactions": "tokens", "sentences": "tokens", "speech": "frames of 20 ms", "antibodies": "residues"}
ARMS = ("fitted", "one span", "one span a layer", "dealt")


def results() -> dict[str, dict[str, Any]]:
    """Return the stored results by model."""
    return {name: json.loads((RESULTS / f"{name}.json").read_text()) for name in UNITS}


def draw(result: dict[str, Any], unit: str) -> Figure:
    """Draw the reach of each head to each side."""
    spans = np.array([[np.inf if span is None else span for span in row] for row in result["spans"]])
    reach = farthest(spans, result["fit"]["ramp"])
    return reach_of_heads(reach, result["fit"]["tokens"] - 1, unit=f"reach to each side\n({unit})")


def table() -> str:
    """Return the comparison as a table in Markdown: each row is a model, with held-out increases of its loss."""
    names = ("fitted", "one span", "one a layer", "dealt at random", "one span within 1 %")
    lines = [
        "| | pairs | " + " | ".join(names) + " | second measure, full and fitted |",
        "| --- " * (len(names) + 3) + "|",
    ]
    for name, result in results().items():
        fit, held_out = result["fit"], result["held_out"]
        full = held_out["full attention"]
        cells = [f"{100 * fit['share_of_pairs']:.0f} %"]
        for arm in ARMS:
            rows = [row for key, row in held_out.items() if key == arm or (arm == "dealt" and key.startswith(arm))]
            changes = [_increase(row, full) for row in rows]
            cells.append(" ".join(_rounded(change) for change, _ in changes) + " %")
            if arm != "dealt":
                cells[-1] += f" (± {_rounded(changes[0][1]).lstrip('+')})"
        cells.append(f"{100 * fit['share_of_pairs_of_one_span_within_the_tolerance']:.0f} % of the pairs")
        cells.append(f"{100 * full['score']:.1f} and {100 * held_out['fitted']['score']:.1f} %")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _rounded(percent: float) -> str:
    return f"{percent:+.1f}" if abs(percent) < 100 else f"{percent:+,.0f}"


def _increase(row: dict[str, Any], full: dict[str, Any]) -> tuple[float, float]:
    """Return the increase of the loss in percent, and the standard error of the difference over batches."""
    changes = np.array(row["losses"]) - full["losses"]
    scale = 100 / full["loss"]
    return scale * float(changes.mean()), scale * float(changes.std(ddof=1)) / len(changes) ** 0.5


def main() -> None:
    """Draw all pictures, and write the table."""
    with mpl.rc_context({"svg.hashsalt": "headspan"}):
        for name, result in results().items():
            draw(result, UNITS[name]).savefig(
                PICTURES / f"atlas_{name}.svg", facecolor="white", metadata={"Date": None}
            )
    before, after = PAGE.read_text(encoding="utf-8").split("\n| | pairs |", 1)
    after = after[after.index("\n\n") :]
    PAGE.write_text(f"{before}\n{table()}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
