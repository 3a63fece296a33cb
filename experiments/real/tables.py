"""Print the tables of the comparison in Markdown: ``python experiments/real/tables.py``.

The pages contain these tables, and a test holds them to the files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parents[1] / "results" / "real"
ARMS = {
    "fitted spans": ("fitted",),
    "one span a layer": ("one span a layer",),
    "one span": ("one span",),
    "the fitted spans, dealt at random": ("dealt 0", "dealt 1", "dealt 2"),
    "some heads full, by ablation": ("full or window by ablation",),
    "some heads full, by attention mass": ("full or window by mass",),
    "received weight": ("received weight",),
    "received weight, rows as fitted": ("received weight, rows as fitted",),
    "received weight inside larger spans": ("received weight inside",),
}


def entries(name: str) -> dict[str, Any]:
    """Return the results of a file, none if there is no such file."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def increase(text: str, share: int, arms: tuple[str, ...], tokens: int) -> tuple[float, float] | None:
    """Return the increase of the loss over full attention in percent, and its standard error over windows.

    Several arms, such as three deals, count as one: their mean in each window.
    """
    full, measured = entries(text).get(f"full attention {tokens}"), entries(f"{text}_{share}")
    names = [f"{arm} {tokens}" for arm in arms]
    if full is None or any(name not in measured for name in names):
        return None
    differences = np.mean([measured[name] for name in names], axis=0) - full
    error = differences.std(ddof=1) / np.sqrt(len(differences))
    return 100 * differences.mean() / np.mean(full), 100 * error / np.mean(full)


def losses(text: str, tokens: int) -> str:
    """Return the table of the increase of the loss, a column for each budget."""
    shares = [share for share in range(100) if increase(text, share, ARMS["fitted spans"], tokens)]
    rows = []
    for name, arms in ARMS.items():
        cells = [increase(text, share, arms, tokens) for share in shares]
        rows.append([name, *("" if cell is None else f"{_signed(cell[0])} ({_plain(cell[1])})" for cell in cells)])
    return _table(["kept", *(f"{share} %" for share in shares)], [row for row in rows if any(row[1:])])


def needles(tokens: int) -> str:
    """Return the table of the numbers that the model finds in a text, a column for each budget."""
    full = entries("bible").get(f"needles, full attention {tokens}")
    if full is None:
        return ""
    shares = [share for share in range(100) if f"needles, fitted {tokens}" in entries(f"bible_{share}")]
    rows = [["full attention", *[_right([full])] * len(shares)]]
    for name, arms in ARMS.items():
        results = [entries(f"bible_{share}") for share in shares]
        cells = [[result[key] for arm in arms if (key := f"needles, {arm} {tokens}") in result] for result in results]
        rows.append([name, *(_right(cell) if cell else "" for cell in cells)])
    return _table(["kept", *(f"{share} %" for share in shares)], [row for row in rows if any(row[1:])])


def _right(answers: list[dict[str, Any]]) -> str:
    right = [one for answer in answers for one in answer["right"]]
    return f"{sum(right)} of {len(right)}"


def _signed(number: float) -> str:
    return f"{number:+.2f}".replace("0.", ".", 1) if abs(number) < 1 else f"{number:+.1f}"


def _plain(number: float) -> str:
    return f"{number:.2f}".removeprefix("0")


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    for text in ("bible", "python"):
        for tokens in (2048, 8192):
            print(f"{text}, {tokens} tokens\n\n{losses(text, tokens)}\n")
    for tokens in (2048, 8192):
        print(f"needles, {tokens} tokens\n\n{needles(tokens)}\n")
