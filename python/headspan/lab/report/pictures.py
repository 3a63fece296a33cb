"""The pictures of the report as SVG and PNG."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from headspan import plot
from headspan.lab.model.heads import head_names
from headspan.ops.spans import farthest
from headspan.plot import style as plot_style

Array = NDArray[Any]

INK = "#1b1f24"
QUIET = plot_style.GREY
COLOURS = plot_style.COLOURS
MARKERS = "osD^vP"
WIDTH = 7.6  # of a figure that a phone moves sideways
NARROW = 4.4  # of a figure that a phone shows as a whole, with legible labels
MOST_ENDS = 16  # the largest number of lines whose last values are written next to them
UNIT = "characters"

_STYLE: dict[Any, Any] = {
    "axes.edgecolor": QUIET,
    "axes.facecolor": "none",  # the background of the page is visible, except under the grey parts of maps
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "figure.constrained_layout.use": True,
    "font.size": 9.5,
    "grid.alpha": 0.25,
    "grid.color": QUIET,
    "legend.frameon": False,
    "svg.fonttype": "path",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


@contextmanager
def style() -> Iterator[None]:
    """Use the style of the report within a ``with`` block, without changing the user's settings."""
    with matplotlib.rc_context(_STYLE):
        yield


def to_svg(figure: Figure, name: str) -> str:
    """Return a figure as an ``<svg>`` element whose ids start with `name`."""
    buffer = io.StringIO()
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", dpi=220, facecolor="none", metadata={"Date": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    used = set(re.findall(r'(?:xlink:href="#|url\(#)([^")]+)', svg))
    svg = re.sub(r' id="([^"]+)"', lambda m: m[0] if m[1] in used else "", svg)
    return re.sub(r'( id="|xlink:href="#|url\(#)', rf"\g<1>{name}-", svg)


def to_png(figure: Figure) -> bytes:
    """Return a figure as the bytes of a PNG file, black on white."""
    buffer = io.BytesIO()
    with matplotlib.rc_context(_STYLE):
        figure.savefig(buffer, format="png", dpi=160, facecolor="white", metadata={"Software": None})
    return buffer.getvalue()


def for_page(svg: str) -> str:
    """Replace the colours of an SVG for text and for pairs that are not computed by those of the page."""
    return svg.replace(INK, "currentColor").replace(plot_style.NOTHING, f"var(--nothing, {plot_style.NOTHING})")


def spans(values: Array, ramp: float) -> Figure:
    """Draw the span of each head as a bar with its number and its reach; `values` has the shape (layers, heads)."""
    layers, heads = values.shape
    rows, spans = np.arange(values.size), values.ravel()
    colours = np.ravel(plot_style.by_layer_or_head(layers, heads)).tolist()
    end = max(float(spans.max()) + ramp, 1.0)
    with style():
        figure = Figure(figsize=(NARROW, 1.0 + 0.2 * values.size))
        ax = figure.add_subplot()
        ax.barh(rows, spans, color=colours, height=0.66)
        ax.barh(rows, ramp, left=spans, color=colours, height=0.66, alpha=0.35)
        for row, (span, reach) in enumerate(zip(spans, farthest(spans, ramp), strict=True)):
            ax.text(span + ramp, row, f" {span:.1f}, reach {reach:.0f}", va="center")
        ax.set_yticks(rows, head_names(layers, heads))
        ax.tick_params(axis="y", length=0)
        ax.set_ylim(values.size - 0.4, -0.6)
        ax.set_xlim(0, 1.55 * end)  # with room for the numbers
        ax.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
        ax.set_title("Span and reach of every head")
        shade = f", and its ramp of {ramp:g} in a lighter shade" if ramp else ""
        ax.set_xlabel(f"span{shade} ({UNIT})")
        ax.xaxis.label.set_horizontalalignment("right")
        ax.xaxis.label.set_x(1)
        ax.grid(axis="y", visible=False)
    return figure


def reach_of_heads(reach: Array, most: float, *, head: str = "head", unit: str = "reach (tokens)") -> Figure:
    """Draw the reach of each head as a cell with its number, layers from left to right; "all" is at least `most`.

    Parameters
    ----------
    reach : ndarray, shape (layers, heads)
    most : float
        The reach of a head without a limit.
    """
    layers, heads = reach.shape
    norm = LogNorm(max(float(reach.min()), 1.0), max(most, 2.0))
    shown = np.clip(reach, norm.vmin, most)
    with style():
        figure = Figure(figsize=(1.7 + max(0.26 * layers, 2.4), 1.0 + 0.27 * heads))
        ax = figure.add_subplot()
        image = ax.imshow(shown.T, aspect="auto", cmap="viridis", norm=norm, interpolation="nearest")
        for (layer, row), value in np.ndenumerate(shown):
            text = "all" if value >= most else f"{value:.0f}"
            colour = "white" if norm(value) < 0.6 else "black"
            ax.text(layer, row, text, ha="center", va="center", fontsize=6, color=colour)
        ax.grid(visible=False)
        ax.set_xlabel("layer")
        ax.set_ylabel(head)
        ax.set_xticks(range(0, layers, max(layers // 15, 1)))
        ax.set_yticks(range(heads))
        ticks = [2**power for power in range(4, 15) if norm.vmin <= 2**power <= most]
        bar = figure.colorbar(image, ax=ax, pad=0.02, format="%d", ticks=ticks)
        bar.set_label(unit)
        bar.minorticks_off()
    return figure


def span_history(steps: Array, history: Array, limit: float, ramp: float) -> Figure:
    """Draw the span of each head against the step; `history` has the shape (rows, layers, heads)."""
    layers, heads = history.shape[1:]
    with style():
        figure = Figure(figsize=(NARROW, 3.4))
        ax = plot.span_history(steps, history, max_span=limit, ramp=ramp, unit=UNIT, ax=figure.add_subplot())
        ax.set_xlim(0, max(steps[-1], 1))
        ax.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
        ax.set_title("Spans during training (one line per head)")
        colours = np.ravel(plot_style.by_layer_or_head(layers, heads)).tolist()
        last = history[-1].ravel()
        labelled = np.arange(last.size) if last.size <= MOST_ENDS else np.array([last.argmin(), last.argmax()])
        label_ends(ax, steps[-1], last[labelled], [colours[i] for i in labelled], ".1f")
        legend: Any = ax.get_legend()
        if legend is not None:  # below the axes, since the values are to the right of them
            names = [text.get_text() for text in legend.get_texts()]
            figure.legend(legend.legend_handles, names, loc="outside lower center", ncols=min(len(names), 4))
            legend.remove()
    return figure


def label_ends(ax: Any, x: float, ends: Array, colours: Sequence[str], form: str) -> None:
    """Write the value of each line at `x`, its last point, to the right of the axes, where no two values overlap."""
    ax.autoscale_view()  # the places below depend on the limits of the axes
    height = ax.transAxes.inverted().transform(ax.transData.transform([(x, y) for y in ends]))[:, 1]
    gap = 0.135 / (ax.figure.get_figheight() - 1.1)  # the height of a line of text, as a part of the axes
    for value, place, colour, at in zip(ends, spread(height, gap), colours, height, strict=True):
        ax.annotate(
            format(value, form), (1, at), (1.05, place), xycoords="axes fraction", textcoords="axes fraction",
            va="center", annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.8, "shrinkA": 1, "shrinkB": 0},
        )  # fmt: skip


def spread(places: Array, gap: float) -> Array:
    """Move places apart to distances of at least `gap`, in the same order and as little as possible."""
    order = np.argsort(places, kind="stable")
    blocks: list[list[float]] = []  # of neighbours in contact: their mean, without the gaps before them, and number
    for rank, place in enumerate(places[order]):
        blocks.append([float(place) - rank * gap, 1])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (mean, count), (later, others) = blocks[-2:]
            blocks[-2:] = [[(mean * count + later * others) / (count + others), count + others]]
    moved = np.empty(len(places))
    moved[order] = np.repeat([mean for mean, _ in blocks], [int(count) for _, count in blocks])
    moved[order] += gap * np.arange(len(places))
    return moved


def opened(values: Array, ramp: float, tokens: list[str]) -> Figure:
    """Draw the predicted spans, (layers, heads, characters), along a text with one panel per layer."""
    with style():
        figure = Figure(figsize=(WIDTH, 0.6 + 2.2 * len(values)), layout="constrained")
        axes = figure.subplots(len(values), 1, squeeze=False).ravel()
        for layer, ax in enumerate(axes):
            plot.dynamic_spans(values[layer], ramp=ramp, unit=UNIT, tokens=tokens, ax=ax)
            ax.set_title(f"layer {layer}")
    return figure


def learning(steps: Array, bits: Array, checked_steps: Array, checked: Array) -> Figure:
    """Draw the bits per character in training and on the validation text against the step."""
    with style():
        figure = Figure(figsize=(NARROW, 3.0))
        ax = figure.add_subplot()
        ax.plot(steps, bits, color=COLOURS[0], linewidth=1.2, label="training")
        ax.plot(checked_steps, checked, "o-", color=COLOURS[1], markersize=4, label="validation")
        ax.set_xlabel("training step")
        ax.set_ylabel("bits per character")
        ax.set_xlim(0, max(steps[-1], 1))
        ax.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
        ax.set_title("During training (lower is better)")
        ax.legend()
        ends = [(values[-1], colour) for values, colour in ((bits, COLOURS[0]), (checked, COLOURS[1])) if values.size]
        shown = [(value, colour) for value, colour in ends if np.isfinite(value)]
        if shown:
            label_ends(ax, steps[-1], np.array([value for value, _ in shown]), [colour for _, colour in shown], ".2f")
    return figure


def bits_bars(names: list[str], bits: list[float]) -> Figure:
    """Draw the bits per character of the model and of compressors as bars."""
    with style():
        figure = Figure(figsize=(NARROW, 1.0 + 0.4 * len(names)))
        ax = figure.add_subplot()
        colours = [COLOURS[1] if k == 0 else QUIET for k in range(len(names))]
        finite = [b if np.isfinite(b) else 0.0 for b in bits]
        ax.barh(names, finite, color=colours, height=0.66)
        for k, (shown, value) in enumerate(zip(finite, bits, strict=True)):
            label = f" {value:.3f}" if np.isfinite(value) else " not a number"
            ax.text(shown, k, label, va="center")
        ax.invert_yaxis()
        ax.set_xlim(0, max(*finite, 0.1) * 1.2)
        ax.set_title("Held-out text (lower is better)")
        ax.set_xlabel("bits per character")
        ax.grid(axis="y", visible=False)
        ax.tick_params(axis="y", length=0)
    return figure


def glyphs(data: NDArray[np.uint8]) -> list[str]:
    """Return one visible character per byte, with a symbol for tab, newline, space and non-printable bytes."""
    signs = {0x09: "\u2192", 0x0A: "\u21b5", 0x20: "\u2423"}
    return [signs.get(b, chr(b) if 0x20 < b < 0x7F else "\u00b7") for b in data.tolist()]
