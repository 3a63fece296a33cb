"""The pictures of the report as SVG and PNG."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib
import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from headspan import plot
from headspan.ops.spans import farthest
from headspan.plot import style as plot_style
from headspan.plot.maps import band

Array = NDArray[Any]

INK = "#1b1f24"
QUIET = plot_style.GREY
COLOURS = plot_style.COLOURS
MARKERS = "osD^vP"
WIDTH = 7.6
NARROW = 5.4  # the widest figure whose labels are legible on a phone
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
        figure.savefig(buffer, format="svg", facecolor="none", metadata={"Date": None})
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


def spans(values: Array, limit: float, ramp: float) -> Figure:
    """Draw the span and the reach of each head as dots and lines; `values` has the shape (layers, heads)."""
    with style():
        figure = Figure(figsize=(NARROW, 4.0))
        ax = plot.spans(values, max_span=limit, ramp=ramp, unit=UNIT, ax=figure.add_subplot())
        ax.set_title(f"Learned span of every head, and its reach ({ramp:g} {UNIT} more)")
    return figure


def span_history(steps: Array, history: Array, limit: float, ramp: float) -> Figure:
    """Draw the span of each head against the step; `history` has the shape (rows, layers, heads)."""
    with style():
        figure = Figure(figsize=(NARROW, 3.2))
        ax = plot.span_history(steps, history, max_span=limit, ramp=ramp, unit=UNIT, ax=figure.add_subplot())
        ax.set_xlim(0, None)
        ax.set_title("Spans during training (one line per head)")
    return figure


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
        ax.set_xlim(0, None)
        ax.set_title("How well the next character is predicted (lower is better)")
        ax.legend()
    return figure


def attention_maps(maps: Array, block: int, values: Array, ramp: float) -> Figure:
    """Draw the pooled attention map of each head in a grid with one row per layer.

    `values` holds the spans, of shape (layers, heads), or (layers, heads, characters) if characters predict them.
    """
    layers, heads = maps.shape[:2]
    with style():
        panel = (WIDTH - 2.0) / max(heads, 3)
        between = ", " if heads <= 4 else "\n"  # above narrower maps, both numbers do not fit on one line
        above_map = 0.22 if heads <= 4 else 0.36
        figure = Figure(figsize=(WIDTH, 0.9 + layers * (panel + above_map)), layout="compressed")
        axes: Any = figure.subplots(layers, heads, sharex=True, sharey=True, squeeze=False)
        size = maps.shape[-1] * block
        for layer, head in np.ndindex(layers, heads):
            ax = axes[layer, head]
            image = _map(ax, maps[layer, head], block)
            spans = np.broadcast_to(values[layer, head], size)
            band(image, spans, ramp)
            span, widest = spans.mean(), spans.max()
            ax.locator_params(nbins=4)
            above = f"head {head}\n" if layer == 0 else ""
            ax.set_title(f"{above}span {span:.0f}{between}reach {farthest(widest, ramp):.0f}", size=8.5)
            if head == 0:
                ax.set_ylabel(f"layer {layer}")
        figure.supxlabel("character looked at (key)", size=9.5)
        figure.supylabel("character that looks (query)", size=9.5)
        figure.colorbar(image, ax=axes, shrink=0.7, aspect=30, extend="min", label="weight on a block of keys")
    return figure


def _map(ax: Any, weights: Array, block: int) -> Any:
    """Draw weights over a grey background, which marks pairs that are not computed, as in `headspan.plot`."""
    plot_style.pair_axes(ax, *(length * block for length in weights.shape))
    ax.set_xlabel("")
    ax.set_ylabel("")
    return ax.imshow(
        np.ma.masked_equal(weights, 0),
        norm=LogNorm(1e-3, 1, clip=True),
        cmap=plot_style.MAP,
        extent=plot_style.edges(weights, block, block),
        interpolation="nearest",
    )


def distance_profiles(profiles: Array, values: Array, ramp: float) -> Figure:
    """Draw the mean weight against the distance on log-log axes, one panel per layer, with the spans marked."""
    layers, heads, tokens = profiles.shape
    with style():
        figure = Figure(figsize=(WIDTH, 2.9 if layers < 4 else 5.2))
        columns = min(layers, 3)
        axes = figure.subplots(-(-layers // columns), columns, sharey=True, squeeze=False).ravel()
        distance = np.arange(tokens)
        for layer, ax in enumerate(axes[:layers]):
            for head in range(heads):
                line = profiles[layer, head]
                inside = line > 0
                colour = COLOURS[head % len(COLOURS)]
                ax.plot(
                    distance[inside], line[inside], color=colour, linewidth=1.3,
                    label=f"head {head}",
                )  # fmt: skip
                span = values[layer, head]
                height = np.interp(span, distance[inside], line[inside])
                ax.plot(span, height, "v", color=colour, markersize=7, zorder=3)
            ax.set_xscale("symlog", linthresh=1, linscale=0.4)
            ax.set_yscale("log")
            ax.set_ylim(1e-5, 1.3)
            ax.set_xlim(0, tokens)
            ticks = [0, 1, 4, 16, 64, 256, 1024, 4096]
            shown = [tick for tick in ticks if tick < tokens]
            ax.set_xticks(shown, [str(tick) for tick in shown])
            ax.minorticks_off()
            ax.set_title(f"layer {layer}")
            ax.set_xlabel("distance (characters)")
        for ax in axes[layers:]:
            ax.set_visible(False)
        axes[0].set_ylabel("mean weight")
        handles, labels = axes[0].get_legend_handles_labels()
        handles.append(Line2D([], [], color=QUIET, marker="v", linestyle="", label="span"))
        figure.legend(handles=handles, labels=[*labels, "span"], loc="outside lower center", ncols=heads + 1)
    return figure


def close_map(weights: Array, characters: list[str], title: str) -> Figure:
    """Draw the attention map of one head on a few characters, which label the axes."""
    with style():
        figure = Figure(figsize=(WIDTH, WIDTH * 0.86))
        ax = figure.add_subplot()
        image = _map(ax, weights, 1)
        size = 8 if len(characters) <= 32 else 6.5
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_ticks(range(len(characters)), characters, size=size, family="monospace")
            for label in axis.get_ticklabels():
                label.set_parse_math(False)  # the character "$" must not start mathematical text
        ax.tick_params(length=0)
        ax.set_xlabel("character looked at (key)")
        ax.set_ylabel("character that looks (query)")
        ax.set_title(title)
        figure.colorbar(image, ax=ax, shrink=0.75, extend="min", label="weight")
    return figure


def bits_bars(names: list[str], bits: list[float]) -> Figure:
    """Draw the bits per character of the model and of compressors as bars."""
    with style():
        figure = Figure(figsize=(NARROW, 0.7 + 0.4 * len(names)))
        ax = figure.add_subplot()
        colours = [COLOURS[1] if k == 0 else QUIET for k in range(len(names))]
        finite = [b if np.isfinite(b) else 0.0 for b in bits]
        ax.barh(names, finite, color=colours, height=0.66)
        for k, (shown, value) in enumerate(zip(finite, bits, strict=True)):
            label = f" {value:.3f}" if np.isfinite(value) else " not a number"
            ax.text(shown, k, label, va="center")
        ax.invert_yaxis()
        ax.set_xlim(0, max(*finite, 0.1) * 1.12)
        ax.set_xlabel("bits per character of the held-out text (lower is better)")
        ax.grid(axis="y", visible=False)
        ax.tick_params(axis="y", length=0)
    return figure


def glyphs(data: NDArray[np.uint8]) -> list[str]:
    """Return one visible character per byte, with a symbol for tab, newline, space and non-printable bytes."""
    signs = {0x09: "\u2192", 0x0A: "\u21b5", 0x20: "\u2423"}
    return [signs.get(b, chr(b) if 0x20 < b < 0x7F else "\u00b7") for b in data.tolist()]
