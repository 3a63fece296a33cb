"""The pictures of attention weights in the report."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from headspan.lab.report.pictures import COLOURS, QUIET, WIDTH, style
from headspan.ops.spans import farthest
from headspan.plot import style as plot_style

Array = NDArray[Any]

MOST_COLUMNS = 4
MOST_LINEAR = 64  # distances beyond which short reaches would be too narrow to see on a linear axis

_SHADES: dict[str, Any] = {"norm": LogNorm(1e-3, 1, clip=True), "cmap": plot_style.MAP}


def close_map(weights: Array, characters: list[str], title: str) -> Figure:
    """Draw the attention map of one head on a few characters, which label the axes."""
    with style():
        figure = Figure(figsize=(WIDTH, WIDTH * 0.86))
        ax = figure.add_subplot()
        plot_style.pair_axes(ax, *weights.shape)
        extent = plot_style.edges(weights, 1, 1)
        image = ax.imshow(np.ma.masked_equal(weights, 0), extent=extent, interpolation="nearest", **_SHADES)
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_ticks(range(len(characters)), characters, size=9.5, family="monospace")
            for label in axis.get_ticklabels():
                label.set_parse_math(False)  # the character "$" must not start mathematical text
        ax.tick_params(length=0)
        ax.set_xlabel("character looked at (key)")
        ax.set_ylabel("character that looks (query)")
        ax.set_title(title)
        figure.colorbar(image, ax=ax, shrink=0.75, extend="min", label="weight", format=_written)
    return figure


def maps_by_distance(weights: Array, values: Array, ramp: float) -> Figure:
    """Draw the weights of each head at each distance in a grid, layer by layer.

    Parameters
    ----------
    weights : ndarray, shape (layers, heads, rows, distances)
        Weights of the last characters of a passage, where distance 0 is the character itself.
    values : ndarray, shape (layers, heads) or (layers, heads, rows)
        The spans, of a head or of each character.
    ramp : float
    """
    layers, heads, rows, distances = weights.shape
    spans = np.broadcast_to(values if values.ndim == 3 else values[..., None], (layers, heads, rows))
    columns, lines = min(heads, MOST_COLUMNS), -(-heads // MOST_COLUMNS)
    with style():
        height = 0.6 + layers * lines * 1.7
        figure = Figure(figsize=(WIDTH, height))
        grid: Any = figure.subplots(layers * lines, columns, sharex=True, sharey=True, squeeze=False)
        for ax in grid.reshape(layers, -1)[:, heads:].flat:
            ax.set_visible(False)
        for layer, head in np.ndindex(layers, heads):
            ax = grid.reshape(layers, -1)[layer, head]
            ax.set_facecolor(plot_style.NOTHING)
            ax.grid(visible=False)
            shown = np.ma.masked_equal(weights[layer, head], 0)
            image = ax.pcolormesh(
                np.arange(distances + 1) - 0.5, np.arange(rows + 1) - 0.5, shown, rasterized=True, **_SHADES
            )
            ends = [(0.0, "-", "span"), (ramp, "--", "span + ramp")]
            for beyond, line, label in ends[: 2 if ramp > 0 else 1]:
                edge = np.repeat(farthest(spans[layer, head], beyond) + 0.5, 2)
                sides = np.stack([np.arange(rows) - 0.5, np.arange(rows) + 0.5], axis=1).ravel()
                plot_style.outlined_line(ax, edge, sides, line, label, 1.1)
            span, widest = spans[layer, head].mean(), spans[layer, head].max()
            name = f"layer {layer}, head {head}"
            ax.set_title(f"{name}\nspan {span:.0f}, reach {farthest(widest, ramp):.0f}", size=9)
        if distances > MOST_LINEAR:
            plot_style.log_tokens(ax.xaxis, distances)
        else:
            ax.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
        ax.set_xlim(-0.5, 1.05 * distances)
        ax.set_ylim(rows - 0.5, -0.5)
        ax.set_yticks([])
        figure.supxlabel("distance to the character looked at (characters)", size=9.5)
        shrink = min(0.7, 4 / height)
        figure.colorbar(image, ax=grid, shrink=shrink, aspect=30, extend="min", label="weight", format=_written)
    return figure


def _written(weight: float, _: Any = None) -> str:
    """Return a weight as a decimal number, because the exponent of a power of 10 is too small to read on a phone."""
    return f"{weight:.9f}".rstrip("0").rstrip(".")


def distance_profiles(profiles: Array, values: Array, ramp: float) -> Figure:
    """Draw the mean weight against the distance on log-log axes, one panel per layer, with the spans marked."""
    layers, heads, tokens = profiles.shape
    end = min(tokens, int(farthest(float(values.max()), ramp)) + 1)
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
                ax.plot(distance[inside], line[inside], color=colour, linewidth=1.3, label=f"head {head}")
                span = values[layer, head]
                height = np.interp(span, distance[inside], line[inside])
                ax.plot(span, height, "v", color=colour, markersize=7, zorder=3)
            ax.set_yscale("log")
            ax.set_ylim(1e-5, 1.3)
            plot_style.log_tokens(ax.xaxis, end)
            ax.set_xlim(0, 1.1 * end)
            ax.yaxis.set_major_formatter(_written)
            ax.minorticks_off()
            ax.set_title(f"layer {layer}")
            ax.set_xlabel("distance (characters)")
        for ax in axes[layers:]:
            ax.set_visible(False)
        axes[0].set_ylabel("mean weight")
        handles, labels = axes[0].get_legend_handles_labels()
        handles.append(Line2D([], [], color=QUIET, marker="v", linestyle="", label="span"))
        figure.legend(handles=handles, labels=[*labels, "span"], loc="outside lower center", ncols=min(heads + 1, 6))
    return figure
