"""The plot of the tokens that a stream keeps in fixed memory, with their weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan.plot import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = npt.NDArray[Any]

CELLS = 512  # the largest number of rows of a picture; more tokens share rows


def kept_tokens(
    count: npt.ArrayLike,
    positions: npt.ArrayLike,
    weights: npt.ArrayLike | None = None,
    *,
    unit: str = "tokens",
    ax: Axes | None = None,
) -> Axes:
    """Draw which tokens a stream keeps over time, with a line for as long as a token stays.

    Tokens that the stream has dropped are grey. With more than 512 tokens, several tokens share a row. Such a row is
    coloured while one of them stays, by the largest of their weights.

    Parameters
    ----------
    count : array_like of int, shape (moments,)
        The number of tokens at each drawn moment, ascending.
    positions : array_like of int, shape (moments, rows)
        The positions of the kept tokens at each moment, less than `count`. -1 stands for an empty row.
    weights : array_like, shape (moments, rows), optional
        The values of the colours, for example received weights. The colours cover three decades up to the largest.
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
    headspan.memory.StreamingAttention : The stream whose tokens are drawn.

    Examples
    --------
    This stream keeps the first token, the newest token and, for a while, token 2:

    >>> import headspan as hs
    >>> ax = hs.plot.kept_tokens([2, 3, 4, 5], [[0, 1, -1], [0, 1, 2], [0, 2, 3], [0, 3, 4]])
    >>> ax.get_title()
    '3 of 5 tokens kept'
    """
    counts = _check.integers("count", count)
    if counts.ndim != 1 or counts.size == 0 or counts[0] < 1 or (np.diff(counts.astype(np.int64)) <= 0).any():
        raise ValueError("count must be a list of at least one number, which ascend from 1 or more")
    kept = _check.integers("positions", positions)
    if kept.ndim != 2 or kept.shape[0] != counts.size:
        raise ValueError(f"positions must be of shape ({counts.size}, rows), not {kept.shape}")
    wrong = (kept < -1) | (kept >= counts[:, None])
    if wrong.any():
        raise ValueError(f"positions must be -1 for none, or non-negative and below count, got {kept[wrong][0]}")
    values = np.ones(kept.shape) if weights is None else _check.real_array("weights", weights)
    if values.shape != kept.shape:
        raise ValueError(f"weights must be of the shape of positions, {kept.shape}, not {values.shape}")
    _check.non_negative("weights", values)

    total = int(counts[-1])
    per_row = -(-total // CELLS)  # tokens per row
    cells = np.full((-(-total // per_row), counts.size), -1.0)
    moment, row = np.nonzero(kept >= 0)
    np.maximum.at(cells, (kept[moment, row] // per_row, moment), values[moment, row])
    ax = style.axes(ax, 7.0, 4.6)
    colours = style.matplotlib("colors")
    edges = _edges(counts), np.append(np.arange(len(cells)) * per_row, total) - 0.5
    dropped = np.ma.masked_where(np.arange(len(cells))[:, None] * per_row >= counts, np.zeros(cells.shape))
    ax.pcolormesh(*edges, dropped, cmap=colours.ListedColormap([style.NOTHING]), rasterized=True)
    shown = np.ma.masked_less(cells, 0)
    if weights is None:
        ax.pcolormesh(*edges, shown, cmap=colours.ListedColormap([style.COLOURS[0]]), rasterized=True)
    else:
        high = float(values[kept >= 0].max(initial=0)) or 1.0
        norm = colours.LogNorm(high / 1e3, high, clip=True)
        image = ax.pcolormesh(*edges, np.maximum(shown, high / 1e3), norm=norm, cmap=style.MAP, rasterized=True)
        bar = ax.figure.colorbar(image, ax=ax, extend="min", label="weight (grey: no longer kept)", aspect=30)
        bar.outline.set_visible(False)
    ax.grid(visible=False)
    ax.yaxis.set_major_locator(style.integer_ticks())
    ax.set_xlim(edges[0][0], edges[0][-1])
    ax.set_ylim(-0.5, total - 0.5)
    ax.set_xlabel(f"{unit} so far")
    ax.set_ylabel(f"position ({unit})")
    ax.set_title(f"{int((kept[-1] >= 0).sum()):,} of {total:,} {unit} kept", size=10)
    return ax


def _edges(counts: Array) -> Array:
    """Return the edges of the columns of the moments, half way between adjacent moments."""
    middles = (counts[1:] + counts[:-1]) / 2
    first, last = (middles[0] - counts[0], counts[-1] - middles[-1]) if middles.size else (0.5, 0.5)
    return np.concatenate([[counts[0] - first], middles, [counts[-1] + last]])
