"""The picture of a stream in fixed memory: which tokens stay, for how long, and with what weight."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan.plot import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = npt.NDArray[Any]

CELLS = 512  # more tokens than these share a row of the picture


def kept_tokens(
    count: npt.ArrayLike,
    positions: npt.ArrayLike,
    weights: npt.ArrayLike | None = None,
    *,
    unit: str = "tokens",
    ax: Axes | None = None,
) -> Axes:
    """Draw which tokens of a stream are kept while it goes on: a line for as long as a token stays.

    Grey are tokens that were there and are no longer. Of more than 512 tokens several share a row, which is coloured as
    long as one of them stays, by the largest of their weights.

    Parameters
    ----------
    count : array_like of int, shape (moments,)
        How many tokens there were at each moment that is drawn, ascending.
    positions : array_like of int, shape (moments, rows)
        The tokens that were kept then, each less than `count`; -1 for rows that are empty.
    weights : array_like, shape (moments, rows), optional
        What their colour says, as the weight that they received; three decades up to the largest.
    unit : str
        What the model reads, as it stands on the axes.
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ValueError
        For a wrong shape or value.
    TypeError
        For a wrong type.
    ModuleNotFoundError
        Without matplotlib.

    Examples
    --------
    Of a stream that keeps the first token, the newest, and token 2 for a while:

    >>> import headspan as hs
    >>> ax = hs.plot.kept_tokens([2, 3, 4, 5], [[0, 1, -1], [0, 1, 2], [0, 2, 3], [0, 3, 4]])
    >>> ax.get_title()
    '3 of 5 tokens kept'
    """
    counts = _check.integers("count", count)
    if counts.ndim != 1 or counts.size == 0 or counts[0] < 1 or (np.diff(counts.astype(np.int64)) <= 0).any():
        raise ValueError("count must be numbers that ascend from 1 or more, at least one of them, along one axis")
    kept = _check.integers("positions", positions)
    if kept.ndim != 2 or kept.shape[0] != counts.size:
        raise ValueError(f"positions must be of shape ({counts.size}, rows), not {kept.shape}")
    wrong = (kept < -1) | (kept >= counts[:, None])
    if wrong.any():
        raise ValueError(f"positions must lie between -1, for none, and below count, but hold {kept[wrong][0]}")
    given = np.ones(kept.shape) if weights is None else _check.real_array("weights", weights)
    if given.shape != kept.shape:
        raise ValueError(f"weights must be of the shape of positions, {kept.shape}, not {given.shape}")
    _check.non_negative("weights", given)

    total = int(counts[-1])
    each = -(-total // CELLS)  # tokens of a row
    cells = np.full((-(-total // each), counts.size), -1.0)
    moment, row = np.nonzero(kept >= 0)
    np.maximum.at(cells, (kept[moment, row] // each, moment), given[moment, row])
    ax = style.axes(ax, 7.0, 4.6)
    colours = style.matplotlib("colors")
    edges = _edges(counts), np.append(np.arange(len(cells)) * each, total) - 0.5
    gone = np.ma.masked_where(np.arange(len(cells))[:, None] * each >= counts, np.zeros(cells.shape))
    ax.pcolormesh(*edges, gone, cmap=colours.ListedColormap([style.NOTHING]), rasterized=True)
    shown = np.ma.masked_less(cells, 0)
    if weights is None:
        ax.pcolormesh(*edges, shown, cmap=colours.ListedColormap([style.COLOURS[0]]), rasterized=True)
    else:
        high = float(given[kept >= 0].max(initial=0)) or 1.0
        norm = colours.LogNorm(high / 1e3, high, clip=True)
        image = ax.pcolormesh(*edges, np.maximum(shown, high / 1e3), norm=norm, cmap=style.MAP, rasterized=True)
        bar = ax.figure.colorbar(image, ax=ax, extend="min", label="weight (grey: no longer kept)", aspect=30)
        bar.outline.set_visible(False)
    ax.grid(visible=False)
    ax.yaxis.set_major_locator(style.whole_numbers())
    ax.set_xlim(edges[0][0], edges[0][-1])
    ax.set_ylim(-0.5, total - 0.5)
    ax.set_xlabel(f"{unit} so far")
    ax.set_ylabel(f"position ({unit})")
    ax.set_title(f"{int((kept[-1] >= 0).sum()):,} of {total:,} {unit} kept", size=10)
    return ax


def _edges(counts: Array) -> Array:
    """Return where the column of each moment begins, and the last one ends: half way between two."""
    middles = (counts[1:] + counts[:-1]) / 2
    first, last = (middles[0] - counts[0], counts[-1] - middles[-1]) if middles.size else (0.5, 0.5)
    return np.concatenate([[counts[0] - first], middles, [counts[-1] + last]])
