"""The pictures of a sweep: results against the span limit, and the final spans of its runs and their history."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headspan import plot
from headspan.lab.report import pictures
from headspan.lab.report.numbers import finite_rows
from headspan.lab.runs import Run, replace_file
from headspan.lab.sweep.grid import labelled
from headspan.lab.sweep.table import Group, Result, groups_of

# Maps each panel of `plot.limit_sweep` to the name of its number in the results of a run.
_PANELS = {"bits": "test bits per character", "span": "mean span", "flops": "attention FLOPs a character"}
_OFFSET = 0.05  # distance between the bars of two lines, in powers of two of the limit
_WORDS = {"bits": "bits per character", "span": "mean span (characters)", "flops": "attention FLOPs a character"}


@pictures.style()
def write_figures(results: Sequence[Result], folder: Path) -> list[str]:
    """Write ``limits.svg``, ``spans.svg`` and ``history.svg``, and return sentences about those that are missing."""
    missing = []
    groups = groups_of(results)
    texts = list(dict.fromkeys(group.text for group in groups))
    count = 0
    for text in texts:
        lines = _lines([group for group in groups if group.text == text])
        if lines:
            count += 1
            _save(folder / (_name("limits", text) if len(texts) > 1 else "limits.svg"), _limits(lines))
    if not count:
        missing.append("no limits.svg: it requires runs with two or more values of span_limit, above 0, in [grid]")
    learned = _widest([result for result in results if result["spans"] and result["model"]["span_kind"] != "fixed"])
    if not learned:
        missing.append("no spans.svg and history.svg: no finished run has learned spans")
        return missing
    _save(folder / "spans.svg", _panels(learned, _spans))
    _save(folder / "history.svg", _panels(learned, partial(_history, folder)))
    return missing


def _name(picture: str, text: str) -> str:
    return f"{picture}-{labelled('text', text)}.svg"


def _save(path: Path, figure: Figure) -> None:
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": path.name}):
        figure.savefig(buffer, format="svg", facecolor="white", metadata={"Date": None})
    replace_file(path, buffer.getvalue())


def _lines(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Return the groups along span_limit by label, or an empty dict if every line has a single point."""
    lines: dict[str, list[Group]] = {}
    for group in groups:
        if group.grid.get("span_limit", 0) > 0 and group.values(_PANELS["bits"]):
            lines.setdefault(_label(group.kind, group.grid), []).append(group)
    if max(map(len, lines.values()), default=0) < 2:
        return {}
    return {name: sorted(line, key=lambda group: float(group.grid["span_limit"])) for name, line in lines.items()}


def _label(kind: str, grid: dict[str, Any]) -> str:
    """Return a label of the kind and of the axes other than text, seed and limit."""
    rest = [
        f"{axis.removeprefix('span_')} {value}" if not isinstance(value, str) else value
        for axis, value in grid.items()
        if axis not in ("seed", "span_limit", "text")
    ]
    return ", ".join([kind, *rest])


def _limits(lines: dict[str, list[Group]]) -> Figure:
    """Draw the means over seeds as lines, and the ranges from the lowest to the highest seed as bars."""
    sweeps = {}
    for name, line in lines.items():
        means = {column: [float(np.mean(group.values(number))) for group in line] for column, number in _PANELS.items()}
        sweeps[name] = {"limit": [group.grid["span_limit"] for group in line], **means}
    figure = plot.limit_sweep(sweeps)
    for ax, (column, number) in zip(figure.axes, _PANELS.items(), strict=True):
        for place, (curve, line) in enumerate(zip(ax.lines[: len(lines)], lines.values(), strict=True)):
            factor = 2 ** (_OFFSET * (place - (len(lines) - 1) / 2))  # keeps the bars of the lines apart
            limits = [group.grid["span_limit"] * factor for group in line]
            low, high = ([end(group.values(number)) for group in line] for end in (min, max))
            curve.set_xdata(limits)
            ax.vlines(limits, low, high, color=curve.get_color(), linewidth=1.8)
        if ax.get_yscale() == "log":
            values = [value for line in lines.values() for group in line for value in group.values(number)]
            if column == "span":  # the same scale as the axis of limits
                ax.set_yscale("log", base=2)
                ax.yaxis.set_major_formatter("{x:g}")
            ax.set_ylim(min(values) / 1.25, max(values) * 1.25)  # bars of zero height would give an empty axis
        ax.set_xlabel("span limit (characters)")
        ax.set_ylabel(_WORDS[column])
    return figure


def _widest(results: Sequence[Result]) -> dict[str, Result]:
    """Return the first run with the largest limit for each label, which names its kind and place in the grid."""
    widest: dict[str, Result] = {}
    for result in results:
        label = _label(result["kind"], result["grid"])
        if "text" in result["grid"]:
            label += f", {result['text']}"
        previous = widest.get(label)
        if previous is None or result["model"]["span_limit"] > previous["model"]["span_limit"]:
            widest[label] = result
    return widest


def _panels(widest: dict[str, Result], draw: Callable[[Result, Axes], None]) -> Figure:
    columns = 2 if len(widest) == 4 else min(len(widest), 3)
    rows = -(-len(widest) // columns)
    figure = Figure(figsize=(0.4 + 5.0 * columns, 3.8 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for ax, (label, result) in zip(axes, widest.items(), strict=False):
        draw(result, ax)
        ax.set_title(f"{label}, limit {result['model']['span_limit']:g}, seed {result['training']['seed']}")
    for ax in axes[len(widest) :]:
        ax.set_visible(False)
    return figure


def _spans(result: Result, ax: Axes) -> None:
    model = result["model"]
    plot.spans(result["spans"], max_span=model["span_limit"], ramp=model["ramp"], unit=pictures.UNIT, ax=ax)


def _history(folder: Path, result: Result, ax: Axes) -> None:
    model, rows = result["model"], finite_rows(Run.open(folder / result["run"]).metrics())
    steps, spans = np.array([row["step"] for row in rows]), np.array([row["spans"] for row in rows], float)
    if rows:
        limit, ramp = model["span_limit"], model["ramp"]
        plot.span_history(steps, spans, max_span=limit, ramp=ramp, unit=pictures.UNIT, ax=ax)
