"""The result files of a sweep: all numbers as JSON, and a Markdown table with the spread over seeds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import headspan as hs
from headspan.lab.report.numbers import document
from headspan.lab.runs import replace_file
from headspan.lab.sweep.grid import Plan
from headspan.lab.text import Text

Result = dict[str, Any]

_BITS, _PAIRS = "test bits per character", "pairs a character"

# Columns of the table: name of the number in the results, heading, and formatter.
_COLUMNS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    (_BITS, "bits per character", "{:.4f}".format),
    ("mean span", "mean span", "{:.1f}".format),
    (_PAIRS, "pairs a character", "{:,.0f}".format),
    ("attention FLOPs a character", "attention FLOPs a character", "{:,.0f}".format),
    ("seconds a step", "seconds a step", "{:.3f}".format),
)


class Group:
    """Runs that differ only in their seeds.

    Attributes
    ----------
    kind, text : str
    grid : dict
        Values of the axes of the grid except the seed.
    results : list of dict
        Results of the runs in the order of the sweep.
    """

    def __init__(self, kind: str, text: str, grid: dict[str, Any]) -> None:
        self.kind, self.text, self.grid = kind, text, grid
        self.results: list[Result] = []

    def values(self, number: str) -> list[float]:
        """Return the values of a number over the runs that have it."""
        return [result[number] for result in self.results if result[number] is not None]


def groups_of(results: Sequence[Result]) -> list[Group]:
    """Group the runs that differ only in their seeds, in the order of the sweep."""
    groups: dict[str, Group] = {}
    for result in results:
        grid = {axis: value for axis, value in result["grid"].items() if axis != "seed"}
        key = json.dumps([result["kind"], result["sha256"], grid])
        groups.setdefault(key, Group(result["kind"], result["text"], grid)).results.append(result)
    return list(groups.values())


def write_numbers(plan: Plan, results: Sequence[Result], texts: Iterable[Text], folder: Path) -> None:
    """Write ``results.json``, with one line per run, ``texts.json``, the files of each text, and ``table.md``."""
    files = {text.sha256: text.files for text in texts}
    replace_file(folder / "texts.json", f"{json.dumps(files, indent=1)}\n".encode())
    lines = ",\n".join("  " + json.dumps(json.loads(document(result))) for result in results)
    head = f'"sweep": {json.dumps(plan.name)}, "runs planned": {len(plan.points)}, "runs": ['
    replace_file(folder / "results.json", f"{{{head}\n{lines}\n]}}\n".encode())
    replace_file(folder / "table.md", table(plan, results).encode())


def table(plan: Plan, results: Sequence[Result]) -> str:
    """Return a Markdown page with the results of the runs and a comparison of learned and fixed spans."""
    groups = groups_of(results)
    axes = list(dict.fromkeys(axis for group in groups for axis in group.grid))
    head = ["kind", *axes, "runs", *(heading for _, heading, _ in _COLUMNS)]
    rows = [
        [
            group.kind,
            *(_value(group.grid.get(axis, "")) for axis in axes),
            _count(group),
            *(_spread(group.values(number), written) for number, _, written in _COLUMNS),
        ]
        for group in groups
    ]
    planned, texts = len(plan.points), dict.fromkeys(result["text"] for result in results)
    parts = [
        f"# {plan.name}",
        f"{len(results)} of {planned} runs, on {', '.join(texts) or 'nothing yet'}; headspan {hs.__version__}. Each "
        "number is the mean over seeds, with the lowest and the highest if there are several. Bits are those of the "
        "held-out text; pairs and FLOPs are those of attention in the forward pass, over all heads and layers. "
        "`results.json` lists every run.",
        _markdown(head, rows, len(axes) + 1),
    ]
    comparisons = _comparisons(results)
    if comparisons:
        parts += [
            "## Learned spans compared with fixed ones",
            "Runs with the same seed are compared: the number of pairs of the learned spans as a share of that of the "
            "baseline, and the bits per character of the baseline minus those of the learned spans. Above 0 the "
            "learned spans predict better. A window of equal cost is hard, the same for all heads, and the smallest "
            "that computes at least as many pairs.",
            _markdown(
                ["learned", *axes, "baseline", "its span", "runs", "share of its pairs", "bits gained"],
                [_compared(pairs, axes) for pairs in comparisons],
                len(axes) + 2,
            ),
        ]
    return "\n\n".join(parts) + "\n"


def _comparisons(results: Sequence[Result]) -> list[list[tuple[Result, Result]]]:
    """Return pairs of a run with learned spans and a run with fixed spans of the same text, seed and place in the grid.

    Pairs that differ only in their seeds are in one list. A window of equal cost is only paired with its own run.
    """
    measured = [result for result in results if result[_BITS] is not None]
    fixed = [result for result in measured if result["model"]["span_kind"] == "fixed"]
    rows: dict[str, list[tuple[Result, Result]]] = {}
    for group in groups_of([result for result in measured if result["model"]["span_kind"] != "fixed"]):
        for learned, other in product(group.results, fixed):
            same_place = other["grid"].items() <= learned["grid"].items() and other["sha256"] == learned["sha256"]
            if same_place and other["equal cost to"] in (None, learned["run"]):
                key = json.dumps([group.kind, learned["sha256"], group.grid, other["kind"]])
                rows.setdefault(key, []).append((learned, other))
    return list(rows.values())


def _compared(pairs: Sequence[tuple[Result, Result]], axes: Sequence[str]) -> list[str]:
    """Return a row of the table of comparisons."""
    learned, other = pairs[0]
    return [
        learned["kind"],
        *(_value(learned["grid"].get(axis, "")) for axis in axes),
        other["kind"],
        _spread([other["mean span"] for _, other in pairs], "{:,.0f}".format),
        str(len(pairs)),
        _spread([learned[_PAIRS] / other[_PAIRS] for learned, other in pairs], "{:.1%}".format),
        _spread([other[_BITS] - learned[_BITS] for learned, other in pairs], "{:+.4f}".format),
    ]


def _spread(values: Sequence[float], written: Callable[[float], str]) -> str:
    if not values:
        return ""
    mean, low, high = (written(x) for x in (sum(values) / len(values), min(values), max(values)))
    return mean if low == high else f"{mean} ({low} to {high})"


def _count(group: Group) -> str:
    diverged = sum(result["outcome"] == "diverged" for result in group.results)
    return str(len(group.results)) + (f" ({diverged} diverged)" if diverged else "")


def _value(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:.12g}"


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]], words: int) -> str:
    """Return a Markdown table whose first `words` columns are left-aligned and the others right-aligned."""
    lines = [head, ["---" if column < words else "---:" for column in range(len(head))], *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
