"""Shared parts of all plots: colours, axes in tokens, and the import of matplotlib at the first plot."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from headspan import _check, _extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = npt.NDArray[Any]

# These colours suit colour-blind readers and light and dark pages. More lines than colours use viridis.
COLOURS = ("#0666b2", "#e86d02", "#1ea960", "#cc0026", "#a84672", "#8f66ff")
MAP = "viridis"
GREY = "#7d8590"
MOST_PANELS = 64  # per figure
NOTHING = "#d9dce1"  # marks missing pairs; lighter than relevant weights, and not in MAP
TOKENS_ON_AXIS = 64

_SIGNS = {" ": "\u2423", "\n": "\u21b5", "\t": "\u2192", "": "\u2205"}
_LONGEST = 12


def matplotlib(module: str = "") -> Any:
    """Import matplotlib or one of its modules, or raise an error that says how to install it."""
    try:
        return importlib.import_module(f"matplotlib.{module}".rstrip("."))
    except ModuleNotFoundError as error:
        raise _extra.missing("headspan.plot", "matplotlib", "plot", error.name) from error


def axes(ax: Axes | None, width: float = 6.4, height: float = 4.0) -> Axes:
    """Return `ax`, or the axes of a new figure, without the top and right spines."""
    if ax is None:
        _, ax = matplotlib("pyplot").subplots(figsize=(width, height), layout="constrained")
    elif not isinstance(ax, matplotlib("axes").Axes):
        raise TypeError(f"ax must be an Axes of matplotlib, not {_check.describe(ax)}")
    assert ax is not None
    plain(ax)
    return ax


def panels(count: int, *, columns: int) -> tuple[Figure, list[Axes]]:
    """Return a new figure and its `count` axes, row by row."""
    rows = -(-count // columns)
    figure, grid = matplotlib("pyplot").subplots(
        rows, columns, figsize=(0.8 + 2.9 * columns, 0.9 + 3.0 * rows), layout="constrained", squeeze=False
    )
    for ax in grid.flat[count:]:
        ax.set_visible(False)
    for ax in grid.flat[:count]:
        plain(ax)
    return figure, list(grid.flat[:count])


def plain(ax: Axes) -> None:
    """Apply the grid and the spines that all plots share."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(visible=True, color=GREY, alpha=0.25)
    ax.set_axisbelow(True)


def ink() -> str:
    """Return the text colour of the current matplotlib style."""
    return str(matplotlib().rcParams["text.color"])


def colours(count: int) -> list[str]:
    """Return one colour for each of `count` lines."""
    if count <= len(COLOURS):
        return list(COLOURS[:count])
    shades = matplotlib().colormaps[MAP](np.linspace(0, 0.92, count))  # the last yellows are invisible on white
    return [matplotlib("colors").to_hex(shade) for shade in shades]


def key(ax: Axes, what: str, count: int) -> None:
    """Add a legend for a few colours or a colour bar for many. One colour needs neither."""
    if count == 1:
        return
    if count <= len(COLOURS):
        line = matplotlib("lines").Line2D
        handles = [line([], [], color=c, label=f"{what} {i}") for i, c in enumerate(colours(count))]
        legend(ax, handles)
        return
    colour_map = matplotlib("colors").ListedColormap(colours(count))
    norm = matplotlib("colors").Normalize(-0.5, count - 0.5)
    bar = ax.figure.colorbar(matplotlib("cm").ScalarMappable(norm, colour_map), ax=ax, label=what, aspect=30)
    bar.locator = integer_ticks()
    bar.update_ticks()
    bar.outline.set_visible(False)


def legend(ax: Axes, handles: Sequence[Any], title: str | None = None) -> None:
    """Add a legend to the right of the axes, where it covers no line."""
    ax.legend(
        handles=handles, title=title, alignment="left",
        loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0, frameon=False,
    )  # fmt: skip


def log_tokens(axis: Any, top: float, limit: float | None = None, *, linear: float = 1) -> None:
    """Make an axis of tokens logarithmic above `linear` and linear below, with a tick at the limit."""
    near = (0.0, 0.0) if limit is None else (0.75 * limit, limit / 0.75)  # other ticks here would overlap the limit
    powers = [4.0**k for k in range(12) if linear <= 4.0**k < top and not near[0] <= 4.0**k < near[1]]
    set_scale = axis.axes.set_xscale if axis.axis_name == "x" else axis.axes.set_yscale
    set_scale("symlog", linthresh=linear, linscale=0.4 if linear == 1 else 0.7)
    axis.set_ticks(sorted({0.0, *powers, *([] if limit is None else [limit])}))
    axis.set_major_formatter(matplotlib("ticker").FuncFormatter(lambda x, _: f"{x:,.6g}"))
    axis.set_minor_locator(matplotlib("ticker").NullLocator())


def integer_ticks() -> Any:
    """Return a locator for integer ticks, for tokens and steps."""
    return matplotlib("ticker").MaxNLocator(nbins=8, integer=True, min_n_ticks=1)


def pair_axes(ax: Axes, queries: int, keys: int) -> None:
    """Set the ranges and labels of a map of pairs, with the first query at the top."""
    ax.grid(visible=False)
    ax.set_facecolor(NOTHING)
    ax.set_aspect("auto" if max(queries, keys) > 4 * min(queries, keys) else "equal")
    ax.set_xlim(-0.5, keys - 0.5)
    ax.set_ylim(queries - 0.5, -0.5)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(integer_ticks())
    ax.set_xlabel("key (token looked at)")
    ax.set_ylabel("query (token that looks)")


def edges(blocks: Array, rows: int, cols: int) -> tuple[float, float, float, float]:
    """Return the extent for imshow of an image of blocks of `rows` queries and `cols` keys."""
    return (-0.5, blocks.shape[1] * cols - 0.5, blocks.shape[0] * rows - 0.5, -0.5)


def by_layer_or_head(layers: int, heads: int) -> list[list[str]]:
    """Return the colour of every line, by layer, or by head if there is one layer."""
    shades = colours(heads if layers == 1 else layers)
    return [shades if layers == 1 else [shades[layer]] * heads for layer in range(layers)]


def layer_or_head_key(ax: Axes, layers: int, heads: int) -> None:
    """Add a legend or a colour bar for the colours of `by_layer_or_head`."""
    key(ax, "head" if layers == 1 else "layer", heads if layers == 1 else layers)


def outlined_line(ax: Axes, x: Any, y: Any, style: str, label: str, width: float) -> None:
    """Draw a line that is visible on light and dark colours."""
    dark = matplotlib("patheffects").withStroke(linewidth=2 * width, foreground="black", alpha=0.55)
    ax.plot(x, y, style, color="white", linewidth=width, path_effects=[dark], label=label)


def names_on(axis: Any, tokens: Sequence[str], positions: Array, *, size: float, turned: bool) -> None:
    """Write tokens along an axis. A "$" does not start mathematics, and white space is visible."""
    shown = [_SIGNS.get(token, token).translate({10: "\u21b5", 9: "\u2192"}) for token in tokens]
    shown = [token if len(token) <= _LONGEST else token[: _LONGEST - 1] + "\u2026" for token in shown]
    turn = turned and max(map(len, shown), default=0) > 2
    axis.set_ticks(positions, shown, size=size)
    axis.set_tick_params(length=0)
    for label in axis.get_ticklabels():
        label.set_parse_math(False)
        label.set_family("monospace")
        label.set_rotation(90 if turn else 0)


def numbers(name: str, x: object, *dimensions: int, check: Callable[[str, object], Array] = _check.real_array) -> Array:
    """Return a non-empty array whose ndim is one of `dimensions`, with leading axes added up to the largest."""
    array = check(name, x)
    if array.size == 0:
        raise ValueError(f"{name} must hold at least one number, not shape {array.shape}")
    if array.ndim not in dimensions:
        allowed = " or ".join(map(str, sorted(dimensions)))
        raise ValueError(f"{name} must have {allowed} axes, not shape {array.shape}")
    return array.reshape((1,) * (max(dimensions) - array.ndim) + array.shape)
