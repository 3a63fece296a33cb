"""Plots of weights: the attention map, and the mean weight against the distance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan.ops.spans import farthest
from headspan.patterns import Global, Pattern
from headspan.plot import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

Array = npt.NDArray[np.float64]

BLOCKS = 256


def attention_map(
    weights: npt.ArrayLike,
    *,
    span: npt.ArrayLike | None = None,
    ramp: float = 32,
    causal: bool = True,
    tokens: Sequence[str] | None = None,
    pool: int | tuple[int, int] = 1,
    offset: int | None = None,
    pattern: Pattern | None = None,
    vmin: float | None = None,
    vmax: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the attention weights of a head, with the edges of its span (solid) and its reach (dashed).

    Attention is causal by default: pass ``causal=False`` for weights of queries that see later keys. Pairs that are not
    computed are grey. The lines lie just beyond the last pair, and are left out if they would cover the map. More than
    256 queries or keys are pooled as in `headspan.attention_weights`: the mean over queries of the sum over keys.

    Parameters
    ----------
    weights : array_like, shape (rows, cols)
        The weights of one head, from `headspan.attention_weights`.
    span : array_like, shape () or (tokens,), optional
        The span of this head in tokens.
    ramp : float
        The ramp in tokens, see `headspan.attention`.
    causal : bool
        Whether queries do not see later keys. Otherwise the lines are drawn on both sides of the diagonal.
    tokens : sequence of str, optional
        The texts of the keys, written along both axes if there are at most 64.
    pool : int or (int, int)
        The `pool` that was passed to `headspan.attention_weights`.
    offset : int, optional
        The position of the first query among the keys. By default the last query has the position of the last key.
    pattern : Pattern, optional
        The pattern of this head. Dotted frames mark its Global tokens, which all queries see and which see all keys.
    vmin, vmax : float, optional
        The weights at the ends of the colours, greater than 0. The default is three decades up to the largest weight.
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
    headspan.attention_weights : The weights that the function takes.
    distance_profile : Draws the mean weight at every distance.
    headspan.explore : Interactive view of attention and spans.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> q, k = np.random.default_rng(0).standard_normal((2, 40, 8))
    >>> ax = hs.plot.attention_map(hs.attention_weights(q, k, span=9, ramp=4), span=9, ramp=4)
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('key (token looked at)', 'query (token that looks)')
    """
    values = style.numbers("weights", weights, 2)
    _check.non_negative("weights", values)
    pools = _check.pair("pool", pool)
    blocks, factors = _pooled(values)
    rows_a_block, cols_a_block = (n * m for n, m in zip(pools, factors, strict=True))
    rows, cols = (n * p for n, p in zip(values.shape, pools, strict=True))  # the last block may be short
    names = _check.token_texts(tokens, cols)
    reach = None if span is None else _spans_of(span, rows)
    ramp = _check.number("ramp", ramp, at_least=0)
    causal = _check.flag("causal", causal)
    low, high = _colour_range(blocks, vmin, vmax)
    first = cols - rows if offset is None else _check.integer("offset", offset, at_least=-rows)
    framed = _global_runs(pattern, rows, cols)
    crowded = tokens is not None and 24 < max(rows, cols) <= style.TOKENS_ON_AXIS
    ax = style.axes(ax, width=8.6 if crowded else 6.2, height=7.4 if crowded else 5.2)
    image = ax.imshow(
        np.ma.masked_equal(blocks, 0),
        norm=style.matplotlib("colors").LogNorm(low, high, clip=True),
        cmap=style.MAP,
        extent=style.edges(blocks, rows_a_block, cols_a_block),
        interpolation="nearest",
    )
    if reach is not None:
        band(image, reach, ramp, first=first, causal=causal)
    _frame_global(ax, framed, rows, cols, first, causal)
    style.pair_axes(ax, rows, cols)
    if names is not None and max(rows, cols) <= style.TOKENS_ON_AXIS and rows <= cols:
        size = 9 if cols <= 24 else 7.5
        style.names_on(ax.xaxis, names, np.arange(cols), size=size, turned=True)
        style.names_on(ax.yaxis, names[cols - rows :], np.arange(rows), size=size, turned=False)
    ax.figure.colorbar(image, ax=ax, extend="min", label=_colour_label(rows_a_block, cols_a_block), aspect=30)
    return ax


def _pooled(weights: Array) -> tuple[Array, tuple[int, int]]:
    """Pool a map that is larger than the picture."""
    rows, cols = (-(-n // BLOCKS) for n in weights.shape)
    if rows == cols == 1:
        return weights, (1, 1)
    sums = np.add.reduceat(weights, np.arange(0, weights.shape[1], cols), axis=1)
    starts = np.arange(0, weights.shape[0], rows)
    lengths = np.diff([*starts, weights.shape[0]])
    return np.add.reduceat(sums, starts, axis=0) / lengths[:, None], (rows, cols)


def _colour_range(blocks: Array, vmin: float | None, vmax: float | None) -> tuple[float, float]:
    """Return the weights at the two ends of the colours."""
    high = (float(blocks.max()) or 1.0) if vmax is None else _check.positive("vmax", vmax)
    low = _check.positive("vmin", high / 1e3 if vmin is None else vmin)
    if low >= high:
        top = "the largest weight" if vmax is None else "vmax"
        raise ValueError(f"vmin must be below {top}, {high:g}, not {low:g}")
    return low, high


def _spans_of(span: npt.ArrayLike, rows: int) -> Array:
    values = _check.spans("span", span)
    if values.shape not in ((), (1,), (rows,)):
        raise ValueError(f"span must be a number or of shape ({rows},), not {values.shape}")
    return np.broadcast_to(values, (rows,)).astype(np.float64)


def _global_runs(pattern: Pattern | None, rows: int, cols: int) -> list[tuple[int, int]]:
    """Return the first and last token of each run of adjacent Global tokens."""
    if pattern is None:
        return []
    if not isinstance(pattern, Pattern):
        raise TypeError(f"pattern must be the Pattern of this head, not {_check.describe(pattern)}")
    pattern.check_batch(1, pattern.heads or 1)
    marked = pattern.global_tokens
    Global(marked).check_tokens(rows, cols)
    runs = np.split(np.array(marked, int), np.flatnonzero(np.diff(marked) > 1) + 1)
    return [(int(run[0]), int(run[-1])) for run in runs if run.size]


def _frame_global(ax: Axes, runs: list[tuple[int, int]], rows: int, cols: int, first: int, causal: bool) -> None:
    """Frame Global tokens as keys, from the first query that sees them, and as queries, up to their last key."""

    def frame(left: float, top: float, right: float, bottom: float) -> None:
        x, y = [left, left, right, right, left], [top, bottom, bottom, top, top]
        style.outlined_line(ax, x, y, ":", "global", 1.3)

    for low, high in runs:
        query, last_query = low - first, high - first
        frame(low - 0.5, max(query, 0) - 0.5 if causal else -0.5, high + 0.5, rows - 0.5)
        if last_query >= 0 and query < rows:
            right = high + 0.5 if causal else cols - 0.5
            frame(-0.5, max(query, 0) - 0.5, right, min(last_query, rows - 1) + 0.5)


def band(image: AxesImage, spans: Array, ramp: float, *, first: int = 0, causal: bool = True) -> None:
    """Draw lines over a map where the mask begins to fall and where it reaches 0.

    The lines lie between pairs and are thinner than cells. Lines that would cover a few tiny cells are left out.
    """
    ax = image.axes
    cols = image.get_size()[1]
    left, right = image.get_extent()[:2]
    points = ax.get_window_extent().width / cols * 72 / ax.figure.dpi
    query = np.arange(spans.size)
    sides = np.stack([query - 0.5, query + 0.5], axis=1).ravel()
    edges = [(0.0, "-", "span"), (ramp, "--", "span + ramp")]
    for beyond, line, label in edges[: 2 if ramp > 0 else 1]:
        last = farthest(spans, beyond)
        if points < 3 and last.max() < 3 * (right - left) / cols:
            continue
        for side in (-1,) if causal else (-1, 1):
            edge = np.repeat(first + query + side * (last + 0.5), 2)
            style.outlined_line(ax, edge, sides, line, label, min(1.3, max(0.7, points / 4)))


def _colour_label(rows: int, cols: int) -> str:
    return "weight" if rows == cols == 1 else f"weight on {cols} keys, mean of {rows} queries"


def mean_by_distance(weights: npt.ArrayLike, *, causal: bool = True) -> npt.NDArray[Any]:
    """Return the mean weight at every distance between a query and a key.

    Attention is causal by default: pass ``causal=False`` for weights of queries that see later keys.

    Parameters
    ----------
    weights : array_like, shape (..., rows, cols)
        Weights from `headspan.attention_weights` for the last queries and all keys, without pooling.
    causal : bool
        Whether to ignore later keys. Otherwise the distance is absolute.

    Returns
    -------
    ndarray of float64, shape (..., cols)
        The mean over the pairs at each distance, or NaN if there are none.

    See Also
    --------
    distance_profile : Draws the mean weight at every distance.
    headspan.attention_weights : The weights that the function takes.

    Examples
    --------
    >>> import headspan as hs
    >>> hs.plot.mean_by_distance([[1.0, 0.0], [0.25, 0.75]])
    array([0.875, 0.25 ])
    """
    array = _check.real_array("weights", weights)
    if array.ndim < 2 or 0 in array.shape or array.shape[-2] > array.shape[-1]:
        raise ValueError(f"weights must have the shape (..., rows, cols) with rows up to cols, not {array.shape}")
    causal = _check.flag("causal", causal)
    rows, cols = array.shape[-2:]
    total = np.zeros((*array.shape[:-2], cols))
    pairs = np.zeros(cols)
    for row in range(rows):
        at = cols - rows + row
        total[..., : at + 1] += array[..., row, at::-1]
        pairs[: at + 1] += 1
        if not causal:
            total[..., 1 : cols - at] += array[..., row, at + 1 :]
            pairs[1 : cols - at] += 1
    return np.divide(total, pairs, out=np.full_like(total, np.nan), where=pairs > 0)


def distance_profile(
    weights: npt.ArrayLike,
    *,
    span: npt.ArrayLike | None = None,
    causal: bool = True,
    unit: str = "tokens",
    ax: Axes | None = None,
) -> Axes:
    """Draw the mean weight of each head at every distance, on logarithmic axes, with a mark at its span.

    Attention is causal by default: pass ``causal=False`` for weights of queries that see later keys.

    Parameters
    ----------
    weights : array_like, shape (rows, cols), (heads, rows, cols) or (layers, heads, rows, cols)
        Weights from `headspan.attention_weights` for the last queries and all keys. For a long text, the last few
        hundred queries are enough. The lines of several layers are coloured by layer.
    span : array_like, shape (), (heads,) or (layers, heads), optional
        The spans in tokens.
    causal : bool
        Whether to ignore later keys. Otherwise the distance is absolute.
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
    mean_by_distance : The mean weight at every distance, as numbers.
    attention_map : Draws the weights of a head.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> q, k = np.random.default_rng(0).standard_normal((2, 3, 500, 8))
    >>> weights = hs.attention_weights(q, k, span=[16, 64, 256], rows=slice(-100, None))
    >>> hs.plot.distance_profile(weights, span=[16, 64, 256]).get_xlabel()
    'distance (tokens)'
    """
    array = style.numbers("weights", weights, 2, 3, 4)
    profiles = mean_by_distance(array, causal=causal)
    layers, heads, distances = profiles.shape
    marks = _marks(span, layers, heads)
    ax = style.axes(ax)
    shades = style.by_layer_or_head(layers, heads)
    x = np.arange(distances)
    for layer, head in np.ndindex(layers, heads):
        line = np.where(profiles[layer, head] > 0, profiles[layer, head], np.nan)  # a logarithmic axis has no 0
        colour = shades[layer][head]
        width = 1.4 if layers * heads <= 24 else 0.7
        ax.plot(
            x, line, color=colour, linewidth=width, alpha=0.85, marker="o" if np.isfinite(line).sum() == 1 else None
        )
        if marks is not None and np.isfinite(line).any():
            known = np.isfinite(line)
            z = marks[layer, head]
            height = np.interp(z, x[known], line[known])
            ax.plot(z, height, "v", color=colour, markersize=7 if layers * heads <= 24 else 4, zorder=3)
    _profile_axes(ax, distances, profiles, unit)
    style.layer_or_head_key(ax, layers, heads)
    return ax


def _marks(span: npt.ArrayLike | None, layers: int, heads: int) -> Any:
    if span is None:
        return None
    values = _check.spans("span", span)
    try:
        return np.broadcast_to(values, (layers, heads))
    except ValueError:
        raise ValueError(f"span must have the shape ({layers}, {heads}), not {values.shape}") from None


def _profile_axes(ax: Axes, distances: int, profiles: Array, unit: str) -> None:
    positive = profiles[profiles > 0]
    top = float(positive.max()) if positive.size else 1.0
    bottom = max(float(positive.min()) if positive.size else top, top * 1e-6)
    ax.set_yscale("log")
    ax.set_ylim(bottom / 2, 2 * top)
    style.log_tokens(ax.xaxis, distances)
    ax.set_xlim(0, max(distances, 1))
    ax.set_xlabel(f"distance ({unit})")
    ax.set_ylabel("mean weight of a pair")
