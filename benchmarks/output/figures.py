"""The figures of the README, drawn from the rows of a report in the style of headspan's own reports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headspan.lab.report.pictures import COLOURS, INK, MARKERS, QUIET, WIDTH, style, to_svg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from benchmarks.cases import BOTH, FORWARD, Case
from benchmarks.measure.results import Row
from benchmarks.output import rivals

# Each contender has the same colour and marker in all figures.
_ORDER = ("headspan", "torch-sdpa", "torch-sdpa-mask", "best rival", "torch-flex", "torch-eager", "jax")
_LOOKS = {
    name: {"color": colour, "marker": marker}
    for name, colour, marker in zip(_ORDER, (*COLOURS, INK), (*MARKERS, "X"), strict=True)
}
# The hybrid layer and its branches.
_LAYERS = {"headspan": "hybrid layer", "full-layer": "full attention layer", "local-branch": "local branch alone"}
_LAYER_LOOKS: dict[str, dict[str, Any]] = {
    name: {"color": colour, "marker": marker} for name, colour, marker in zip(_LAYERS, COLOURS, MARKERS, strict=False)
}


def draw(cases: Sequence[Case], rows: Sequence[Row], directory: Path) -> list[Path]:
    """Write the figures for which the rows have numbers, and return their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, figure in (
        ("time_by_span", _by_span(cases, rows)),
        ("time_by_length", _by_length(cases, rows)),
        ("share_of_peak", _shares(cases, rows)),
        ("hybrid", hybrid(cases, rows)),
    ):
        if figure is not None:
            path = directory / f"{name}.svg"
            path.write_text(_on_white(to_svg(figure, name)))
            paths.append(path)
    return paths


def _on_white(svg: str) -> str:
    """Add a white background to an SVG, since its dark text would be illegible on a dark page."""
    start = svg.index(">") + 1
    return f'{svg[:start]}\n <rect width="100%" height="100%" fill="white"/>{svg[start:]}\n'


def _points(cases: Sequence[Case], rows: Sequence[Row], passes: str) -> dict[str, list[tuple[Case, Row]]]:
    """Return the measured rows of some cases by contender, in the order of the cases."""
    by_name: dict[str, list[tuple[Case, Row]]] = {name: [] for name in _ORDER}
    for case in cases:
        for row in rows:
            if row.case == case.name and row.passes == passes and not row.absent and row.contender in by_name:
                by_name[row.contender].append((case, row))
        has_mask = case.span is not None or case.pattern is not None
        if has_mask and (fastest := rivals.best(rows, case.name, passes)) is not None:
            by_name["best rival"].append((case, fastest))
    return {name: points for name, points in by_name.items() if points}


def _passes(cases: Sequence[Case], rows: Sequence[Row]) -> list[str]:
    return [passes for passes in (FORWARD, BOTH) if _points(cases, rows, passes)]


def _legend(figure: Figure, names: Sequence[str], line: Any = "-") -> None:
    handles = [Line2D([], [], linestyle=line, label=name, **_LOOKS[name]) for name in _ORDER if name in names]
    figure.legend(handles=handles, loc="outside lower center", ncols=4)


def _panels(passes: Sequence[str], height: float, **options: Any) -> tuple[Figure, Any]:
    figure = Figure(figsize=(WIDTH, height))
    axes = figure.subplots(1, len(passes), squeeze=False, **options)[0]
    for ax, name in zip(axes, passes, strict=True):
        ax.set_title(name.replace("+", " and "))
    return figure, axes


def _milliseconds(row: Row) -> float:
    assert row.median is not None
    return row.median * 1e3


def _by_span(cases: Sequence[Case], rows: Sequence[Row]) -> Figure | None:
    """Draw one line per contender: time against span, or a horizontal line for a contender without spans."""
    span_cases = [case for case in cases if case.group == "span" and not case.spans_vary]
    return _lines(span_cases, rows, lambda case: case.keys if case.span is None else case.span, "span")


def _by_length(cases: Sequence[Case], rows: Sequence[Row]) -> Figure | None:
    """Draw one line per contender: time against length."""
    return _lines([case for case in cases if case.group == "length"], rows, lambda case: case.keys, "tokens")


def _lines(cases: Sequence[Case], rows: Sequence[Row], place: Any, label: str) -> Figure | None:
    passes = _passes(cases, rows)
    if not passes:
        return None
    places = sorted({place(case) for case in cases})
    names: set[str] = set()
    with style():
        figure, axes = _panels(passes, 3.9, sharey=True)
        for ax, name in zip(axes, passes, strict=True):
            for contender, points in _points(cases, rows, name).items():
                names.add(contender)
                looks: Any = _LOOKS[contender]
                x = [place(case) for case, _ in points]
                y = [_milliseconds(row) for _, row in points]
                order = sorted(range(len(x)), key=x.__getitem__)
                width = 2.2 if contender == "headspan" else 1.3
                ax.plot([x[i] for i in order], [y[i] for i in order], linewidth=width, markersize=5.5, **looks)
                if label == "span" and all(case.span is None for case, _ in points):
                    ax.axhline(y[0], color=looks["color"], linestyle="--", linewidth=1)
            ax.set_xscale("log", base=2)
            ax.set_yscale("log")
            ticks = [_count(n) for n in places]
            if label == "span" and any(case.span is None for case in cases):
                ticks[-1] = "full"
            ax.set_xticks(places, ticks)
            ax.minorticks_off()
            ax.set_xlabel("tokens" if label == "tokens" else "span (tokens)")
        axes[0].set_ylabel("time of a call (ms)")
        first = cases[0]
        title = f"{first.heads} heads, head_dim {first.head_dim}"
        tail = f"{first.keys} tokens" if label == "span" else f"span {first.span:g}"
        figure.suptitle(f"Time against {'span' if label == 'span' else 'length'} ({title}, {tail})", size=10)
        _legend(figure, sorted(names))
    return figure


def _count(n: float) -> str:
    for size, unit in ((2**20, "M"), (2**10, "k")):
        if n >= size and n % size == 0:
            return f"{n // size:g}{unit}"
    return f"{n:g}"


def _shares(cases: Sequence[Case], rows: Sequence[Row]) -> Figure | None:
    """Draw the shares of the multiply-add peak with one row per case and one dot per contender."""
    shared = [row for row in rows if row.share is not None]
    passes = _passes(cases, shared)
    shown = [case for case in cases if any(row.case == case.name for row in shared)]
    if not passes:
        return None
    names: set[str] = set()
    height = {case.name: -i for i, case in enumerate(shown)}
    with style():
        figure, axes = _panels(passes, 1.3 + 0.2 * len(shown), sharey=True, sharex=True)
        for ax, name in zip(axes, passes, strict=True):
            for contender, points in reversed(_points(shown, shared, name).items()):
                names.add(contender)
                ax.plot(
                    [100 * row.share for _, row in points if row.share is not None],
                    [height[case.name] for case, _ in points],
                    linestyle="",
                    markersize=7 if contender == "headspan" else 5,
                    markeredgecolor="white",
                    markeredgewidth=0.6,
                    clip_on=False,
                    zorder=4 if contender == "headspan" else 3,
                    **_LOOKS[contender],
                )
            ax.set_xlim(0, 100)
            ax.set_xlabel("% of the multiply-add peak")
            ax.axvline(100, color=QUIET, linestyle="--", linewidth=1)
        axes[0].set_yticks([height[case.name] for case in shown], [case.name for case in shown])
        axes[0].set_ylim(-len(shown) + 0.4, 0.6)
        _legend(figure, sorted(names), "")
    return figure


def hybrid(cases: Sequence[Case], rows: Sequence[Row]) -> Figure | None:
    """Draw the time and memory of the hybrid layer and of its branches against the length."""
    layer_cases = [case for case in cases if case.kind == "layer"]
    by_key = {(row.case, row.passes, row.contender): row for row in rows if not row.absent}
    all_passes = [p for p in (FORWARD, BOTH) if any((case.name, p, "headspan") in by_key for case in layer_cases)]
    if not all_passes:
        return None
    measured: list[tuple[str, Any]] = [("time of a call (ms)", _milliseconds)]
    if any(by_key[key].memory is not None for key in by_key):
        measured.append(("memory beyond the inputs (MB)", lambda row: row.memory and row.memory / 1e6))
    with style():
        figure = Figure(figsize=(WIDTH, 0.8 + 2.7 * len(measured)))
        grid = figure.subplots(len(measured), len(all_passes), squeeze=False, sharex=True, sharey="row")
        for axes, (label, of) in zip(grid, measured, strict=True):
            axes[0].set_ylabel(label)
            for ax, passes in zip(axes, all_passes, strict=True):
                for name, shown in _LAYERS.items():
                    points = [(case.keys, by_key.get((case.name, passes, name))) for case in layer_cases]
                    values = [(tokens, of(row)) for tokens, row in points if row is not None]
                    x = [tokens for tokens, value in values if value]
                    y = [value for _, value in values if value]
                    ax.plot(x, y, label=shown, markersize=5.5, **_LAYER_LOOKS[name])
                ax.set_xscale("log", base=2)
                ax.set_yscale("log")
                ax.set_xticks([case.keys for case in layer_cases], [_count(case.keys) for case in layer_cases])
                ax.minorticks_off()
        for ax, passes in zip(grid[0], all_passes, strict=True):
            ax.set_title(passes.replace("+", " and "))
        for ax in grid[-1]:
            ax.set_xlabel("tokens")
        first = layer_cases[0]
        figure.suptitle(
            f"{first.heads * first.head_dim} channels, {first.heads} heads, max_span {first.max_span:g}", size=10
        )
        figure.legend(*grid[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure
