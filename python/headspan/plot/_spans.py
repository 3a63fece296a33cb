"""Plots of spans: the soft mask, the spans of all heads, their history, and spans along a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan.plot import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_AXIS = 1.5  # the end of the axis for spans, as a multiple of the largest number


def soft_mask(span: npt.ArrayLike, *, ramp: float = 32, unit: str = "tokens", ax: Axes | None = None) -> Axes:
    """Draw the soft mask against the distance, with one curve per head.

    Parameters
    ----------
    span : array_like, shape () or (heads,)
        The spans in tokens; inf means no limit. A single span gets marks where the mask begins and stops to fall.
    ramp : float
        The ramp in tokens, see `headspan.attention`.
    unit : str
        The name of what the model reads, for the axis labels.
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ValueError
        If a span or the ramp is negative.
    ModuleNotFoundError
        If matplotlib is not installed.

    See Also
    --------
    headspan.soft_mask : The values of the mask.
    spans : Draws the span of every head.

    Examples
    --------
    >>> import headspan as hs
    >>> hs.plot.soft_mask([8, 32, 128], ramp=16).get_xlabel()
    'distance (tokens)'
    """
    z = style.numbers("span", span, 0, 1, check=_check.spans)
    r = _check.number("ramp", ramp, at_least=0)
    ax = style.axes(ax, height=3.2)
    longest = float(z[np.isfinite(z)].max(initial=0))
    end = max(1.0, (1.4 if z.size == 1 else 1.1) * (longest + r))  # a single curve needs room for its marks
    for length, colour in zip(np.minimum(z, end), style.colours(z.size), strict=True):
        # The mask is piecewise linear.
        ax.plot([0, length, length + r, end], [1, 1, 0, 0], color=colour, linewidth=2 if z.size <= 6 else 0.8)
    if z.size == 1 and np.isfinite(z[0]):
        _mark_span(ax, float(z[0]), r)
    style.key(ax, "head", z.size)
    ax.set_xlim(0, end)
    ax.set_ylim(-0.02, 1.08)
    ax.set_xlabel(f"distance ({unit})")
    ax.set_ylabel("mask m(x)")
    return ax


def _mark_span(ax: Axes, span: float, ramp: float) -> None:
    for x, y, text in ((span, 1, f"span {span:g}"), (span + ramp, 0, f"span + ramp {span + ramp:g}")):
        ax.plot(x, y, "o", color=style.COLOURS[0], clip_on=False, zorder=3)
        ax.annotate(text, (x, y), (7, 4), textcoords="offset points", va="bottom")


def spans(
    span: npt.ArrayLike,
    *,
    max_span: float | None = None,
    ramp: float | None = None,
    unit: str = "tokens",
    ax: Axes | None = None,
) -> Axes:
    """Draw the span of every head as a dot, layer by layer, and the mean of each layer as a bar.

    Parameters
    ----------
    span : array_like, shape (heads,) or (layers, heads)
        The spans in tokens. Spans of inf, which have no limit, are at the top of the axis.
    max_span : float, optional
        The largest span that could be learned, drawn as a line. Larger spans appear above the line.
    ramp : float, optional
        The ramp of all spans in tokens. With it, a line from each dot ends at the reach, where the mask is 0.
    unit : str
        The name of what the model reads, for the axis labels.
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ModuleNotFoundError
        If matplotlib is not installed.

    See Also
    --------
    span_history : Draws spans during training.
    dynamic_spans : Draws spans along a text.

    References
    ----------
    Sukhbaatar et al., "Adaptive Attention Span in Transformers", ACL 2019, figure 4.

    Examples
    --------
    >>> import headspan as hs
    >>> hs.plot.spans([[3, 9, 40], [12, 80, 500]], max_span=512, ramp=16).get_xlabel()
    'layer (dot: span of a head, line: up to its reach, bar: mean span)'
    """
    values = style.numbers("span", span, 0, 1, 2, check=_check.spans)
    max_span, beyond = _optional("max_span", max_span), _optional("ramp", ramp)
    layers, heads = values.shape
    means = values.mean(axis=1)
    values, top = _below_top(values, max_span, beyond)
    ax = style.axes(ax, width=max(6.4, 0.34 * layers))
    shift = np.linspace(-0.25, 0.25, heads) if heads > 1 else np.zeros(1)
    size = 7 if layers * heads <= 48 else 4
    for layer, (row, mean, colour) in enumerate(zip(values, means, style.colours(layers), strict=True)):
        x = layer + shift
        if beyond:
            ax.vlines(x, row, row + beyond, color=colour, linewidth=1.2, alpha=0.6, label="reach")
        ax.plot(
            x,
            row,
            "o",
            color=colour,
            markersize=size,
            markeredgecolor="white",
            markeredgewidth=0.6,
            zorder=3,
            clip_on=False,
        )
        ax.plot([layer - 0.34, layer + 0.34], [mean] * 2, color=style.ink(), linewidth=1.6, label="mean")
    _span_axis(ax, top, max_span, unit)
    ax.set_xlim(-0.5, layers - 0.5)
    step = 1 if layers <= 12 else 2 if layers <= 24 else 4
    ax.set_xticks(range(0, layers, step))
    line = "line: up to its reach, " if beyond else ""
    ax.set_xlabel(f"layer (dot: span of a head, {line}bar: mean span)")
    ax.grid(axis="x", visible=False)
    return ax


def _optional(name: str, number: float | None) -> float | None:
    return None if number is None else _check.number(name, number, at_least=0)


def _below_top(
    values: style.Array, max_span: float | None = None, ramp: float | None = None
) -> tuple[style.Array, float]:
    """Return the spans, of which those without a limit end the axis, and the largest number to show."""
    finite = values[np.isfinite(values)]
    top = max(float(finite.max(initial=0)) + (ramp or 0.0), max_span or 0.0, 4.0)
    return np.minimum(values, _AXIS * top), top


def _span_axis(ax: Axes, top: float, max_span: float | None, unit: str, ramp: float | None = None) -> None:
    """Set up the vertical axis for spans. With a ramp, its label says how far heads reach beyond their spans."""
    if max_span is not None:
        ax.axhline(max_span, color=style.GREY, linestyle="--", linewidth=1.2, label="limit")
        ax.annotate(
            "limit", (1, max_span), (-2, 2), xycoords=("axes fraction", "data"), textcoords="offset points",
            ha="right", va="bottom",
        )  # fmt: skip
    style.log_tokens(ax.yaxis, top, max_span or None, linear=4)  # small differences do not matter below 4 tokens
    ax.set_ylim(0, _AXIS * top)
    ax.set_ylabel(f"span ({unit}; reach: {ramp:g} more)" if ramp else f"span ({unit})")


def span_history(
    steps: npt.ArrayLike,
    span: npt.ArrayLike,
    *,
    max_span: float | None = None,
    ramp: float | None = None,
    unit: str = "tokens",
    ax: Axes | None = None,
) -> Axes:
    """Draw the spans during training, with one line per head, coloured by layer.

    Parameters
    ----------
    steps : array_like, shape (rows,)
        The training steps at which the spans were recorded.
    span : array_like, shape (rows, heads) or (rows, layers, heads)
        The spans in tokens. Spans of inf, which have no limit, are at the top of the axis.
    max_span : float, optional
        The largest span that could be learned, drawn as a line. Larger spans appear above the line.
    ramp : float, optional
        The ramp of all spans in tokens. With it, the axis label says how far heads reach beyond their spans.
    unit : str
        The name of what the model reads, for the axis labels.
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ModuleNotFoundError
        If matplotlib is not installed.

    See Also
    --------
    spans : Draws the span of every head.
    limit_sweep : Draws quality against the limit of the span.

    Examples
    --------
    >>> import headspan as hs
    >>> hs.plot.span_history([0, 10, 20], [[32, 32], [20, 40], [9, 80]]).get_xlabel()
    'training step'
    """
    x = style.numbers("steps", steps, 1)
    if (np.diff(x) < 0).any():
        raise ValueError(f"steps must not decrease, but decrease after {x[np.flatnonzero(np.diff(x) < 0)[0]]:g}")
    values = _check.spans("span", span)
    if values.ndim not in (2, 3) or values.shape[0] != x.size or values.size == 0:
        raise ValueError(f"span must have the shape ({x.size}, heads) or ({x.size}, layers, heads), not {values.shape}")
    max_span, beyond = _optional("max_span", max_span), _optional("ramp", ramp)
    values, top = _below_top(values.reshape(x.size, -1, values.shape[-1]), max_span)
    ax = style.axes(ax)
    _lines_by_layer(ax, x, np.moveaxis(values, 0, -1))
    _span_axis(ax, top, max_span, unit, beyond)
    ax.xaxis.set_major_locator(style.integer_ticks())
    ax.set_xlabel("training step")
    return ax


def _lines_by_layer(ax: Axes, x: Any, values: Any) -> None:
    """Draw lines of shape (layers, heads, points), coloured by layer, or by head if there is one layer."""
    layers, heads, points = values.shape
    shades = style.by_layer_or_head(layers, heads)
    marker = "o" if points == 1 else None  # a line of one point is invisible
    width = 1.6 if layers * heads <= 24 else 0.8
    for layer, head in np.ndindex(layers, heads):
        ax.plot(x, values[layer, head], color=shades[layer][head], marker=marker, linewidth=width, alpha=0.85)
    style.layer_or_head_key(ax, layers, heads)


def dynamic_spans(
    span: npt.ArrayLike,
    *,
    ramp: float | None = None,
    tokens: Sequence[str] | None = None,
    unit: str = "tokens",
    ax: Axes | None = None,
) -> Axes:
    """Draw the span at every token of a text, with one line per head.

    Parameters
    ----------
    span : array_like, shape (tokens,), (heads, tokens) or (layers, heads, tokens)
        The spans in tokens, as from `headspan.dynamic_span` for one batch item. Several layers are coloured by layer.
        Spans of inf, which have no limit, are at the top of the axis.
    ramp : float, optional
        The ramp of all spans in tokens. With it, the axis label says how far heads reach beyond their spans.
    tokens : sequence of str, optional
        The texts of the tokens, written below the lines if there are at most 64.
    unit : str
        The name of what the model reads, for the axis labels.
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ModuleNotFoundError
        If matplotlib is not installed.

    See Also
    --------
    headspan.dynamic_span : The spans that the function draws.
    spans : Draws the span of every head.

    Examples
    --------
    >>> import headspan as hs
    >>> hs.plot.dynamic_spans([[3, 9, 40], [12, 80, 500]], ramp=16, tokens=["a", "b", "c"]).get_ylabel()
    'span (tokens; reach: 16 more)'
    """
    values, top = _below_top(style.numbers("span", span, 1, 2, 3, check=_check.spans))
    beyond = _optional("ramp", ramp)
    count = values.shape[-1]
    names = _check.token_texts(tokens, count)
    written = names is not None and count <= style.TOKENS_ON_AXIS
    ax = style.axes(ax, width=9 if written and count > 24 else 6.4)
    _lines_by_layer(ax, np.arange(count), values)
    _span_axis(ax, top, None, unit, beyond)
    if written and names is not None:
        style.names_on(ax.xaxis, names, np.arange(count), size=9 if count <= 48 else 7.5, turned=True)
    else:
        ax.xaxis.set_major_locator(style.integer_ticks())
    ax.set_xlim(-0.5, count - 0.5)
    ax.set_xlabel("token")
    ax.grid(axis="x", visible=False)
    return ax
