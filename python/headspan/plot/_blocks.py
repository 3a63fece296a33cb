"""Plots of block gates and of the levels of hierarchical attention."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan.plot import style
from headspan.sparse.hierarchical import hierarchical_cost, levels_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = npt.NDArray[Any]

CELLS = 512  # the largest number of rows and columns of a picture; more tokens are sampled


def block_gates(
    block_gates: npt.ArrayLike,
    gate_block_size: int | tuple[int, int],
    *,
    causal: bool = True,
    steps: npt.ArrayLike | None = None,
    ax: Axes | None = None,
) -> Axes | Figure:
    """Draw the gates of blocks, with one panel per head and one row of panels per training step.

    Attention is causal by default: pass ``causal=False`` for gates of queries that see later keys. Closed blocks, whose
    gate is 0, are grey. The title has the number of open blocks and of all blocks with a pair.

    Parameters
    ----------
    block_gates : array_like, shape (blocks, blocks), (heads, blocks, blocks) or (steps, heads, blocks, blocks)
        Gates as `headspan.sparse.learned_blocks` returns and `headspan.attention` takes them. They are clipped to [0,
                                                                                                                    1].
    gate_block_size : int or (int, int)
        The number of tokens of a block, or of its queries and keys.
    causal : bool
        Whether queries do not see later keys. Blocks with only later keys are blank.
    steps : array_like of int, shape (steps,), optional
        The training steps of gates with four axes.
    ax : matplotlib.axes.Axes, optional
        Only for gates with one panel.

    Returns
    -------
    matplotlib.axes.Axes
        Or the Figure, if there are several panels.

    Raises
    ------
    ModuleNotFoundError
        If matplotlib is not installed.

    See Also
    --------
    headspan.sparse.learned_blocks : Options for the gates that are drawn.
    pattern : Draws the pairs that a pattern allows.

    Examples
    --------
    >>> import headspan as hs
    >>> options = hs.sparse.learned_blocks([[1, 0, 0], [0.2, 1, 0], [0, 0.7, 1]], 16, tokens=48)
    >>> hs.plot.block_gates(options["block_gates"], 16).get_title()
    '5 of 6 blocks open'
    """
    gates = np.clip(style.numbers("block_gates", block_gates, 2, 3, 4), 0, 1)
    sides = _check.pair("gate_block_size", gate_block_size)
    step_numbers = _steps(steps, np.ndim(block_gates), len(gates))
    rows, heads = gates.shape[:2]
    if rows * heads > style.MOST_PANELS:
        raise ValueError(f"block_gates must be of at most {style.MOST_PANELS} panels, not {rows} x {heads}")
    row, column = np.arange(gates.shape[2])[:, None], np.arange(gates.shape[3])
    valid = (column * sides[1] < (row + 1) * sides[0]) | (not _check.flag("causal", causal))
    if rows * heads == 1:
        ax = style.axes(ax, 5.4, 4.4)
        image = _draw_gates(ax, gates[0, 0], valid, sides)
        ax.set_title(_open(gates[0, 0], valid), size=10)
        _gate_key(ax.figure, image, [ax])
        return ax
    if ax is not None:
        raise ValueError(f"ax has room for one panel, not for {rows * heads}; omit it to draw them in a new figure")
    figure, panels = style.panels(rows * heads, columns=heads if rows > 1 else min(heads, 4))
    for number, panel in enumerate(panels):
        step, head = divmod(number, heads)
        head_gates = gates[step, head]
        image = _draw_gates(panel, head_gates, valid, sides)
        title = f"head {head}" if step_numbers is None else f"head {head}, step {step_numbers[step]:,}"
        panel.set_title(f"{title}\n{_open(head_gates, valid)}", size=9)
    _gate_key(figure, image, panels)
    return figure


def _steps(steps: npt.ArrayLike | None, axes: int, count: int) -> list[int] | None:
    if steps is None:
        if axes == 4:
            raise ValueError("steps must be given for block_gates of four axes")
        return None
    if axes != 4:
        raise ValueError(f"steps require block_gates of four axes, not of {axes}")
    numbers = _check.integers("steps", steps)
    if numbers.shape != (count,):
        raise ValueError(f"steps must be of shape ({count},), one step for each array of gates, not {numbers.shape}")
    return [int(step) for step in numbers]


def _draw_gates(ax: Axes, gates: Array, valid: Array, sides: tuple[int, int]) -> Any:
    """Draw one cell per block: its gate, grey if it is closed, or blank if it has no pair."""
    queries, keys = (n * side for n, side in zip(gates.shape, sides, strict=True))
    extent = style.edges(gates, *sides)
    closed = style.matplotlib("colors").ListedColormap([style.NOTHING])
    ax.imshow(np.ma.masked_where(~valid, np.zeros(gates.shape)), cmap=closed, extent=extent, interpolation="nearest")
    shown = np.ma.masked_where(~valid | (gates == 0), gates)
    image = ax.imshow(shown, vmin=0, vmax=1, cmap=style.MAP, extent=extent, interpolation="nearest")
    style.pair_axes(ax, queries, keys)
    ax.set_facecolor("none")
    return image


def _open(gates: Array, valid: Array) -> str:
    return f"{int((gates[valid] > 0).sum())} of {int(valid.sum())} blocks open"


def _gate_key(figure: Any, image: Any, panels: list[Axes]) -> None:
    bar = figure.colorbar(image, ax=panels, label="gate (grey: closed, 0)", aspect=30)
    bar.outline.set_visible(False)


def hierarchy(tokens: int, block_size: int = 64, *, ax: Axes | None = None) -> Axes:
    """Draw the level at which hierarchical attention sees each token: alone, or as a mean of 2, 4 or more tokens.

    For up to 512 tokens, adjacent groups alternate between light and dark. The legend has the share of each level in
    all computed pairs.

    Parameters
    ----------
    tokens : int
    block_size : int
        As for `headspan.sparse.hierarchical_attention`.
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ValueError
        If `tokens` or `block_size` is less than 1.
    ModuleNotFoundError
        If matplotlib is not installed.

    See Also
    --------
    headspan.sparse.hierarchical_attention : The attention that the figure explains.
    pattern : Draws the pairs that a pattern allows.

    Examples
    --------
    >>> import headspan as hs
    >>> hs.plot.hierarchy(100, block_size=4).get_title()
    '1,946 of 5,050 pairs (39 %)'
    """
    count = _check.integer("tokens", tokens, at_least=1)
    side = _check.integer("block_size", block_size, at_least=1)
    pairs = hierarchical_cost(tokens=count, num_heads=1, head_dim=1, block_size=side).pairs
    places = np.arange(count) if count <= CELLS else np.linspace(0, count - 1, CELLS).astype(int)
    levels, level_pairs = _levels(count, side, places, pairs)
    ax = style.axes(ax, 7.4, 4.6)
    shades = style.matplotlib("colors").to_rgba_array(style.colours(len(level_pairs)))
    later = places > places[:, None]
    image = shades[levels]
    if count <= CELLS:
        light = (places >> levels) % 2 == 1  # every other group
        image[..., :3] += np.where(light, 0.4, 0)[..., None] * (1 - image[..., :3])
    image[later, 3] = 0
    ax.imshow(image, extent=(-0.5, count - 0.5, count - 0.5, -0.5), interpolation="nearest")
    style.pair_axes(ax, count, count)
    ax.set_facecolor("none")
    full = count * (count + 1) // 2
    ax.set_title(f"{pairs:,} of {full:,} pairs ({100 * pairs / full:.2g} %)", size=10)
    patch = style.matplotlib("patches").Patch
    names = ["one by one", *(f"means of {2**level}" for level in range(1, len(level_pairs)))]
    labels = [f"{word}: {100 * n / pairs:.2g} %" for word, n in zip(names, level_pairs, strict=True)]
    style.legend(ax, [patch(facecolor=shade, label=label) for shade, label in zip(shades, labels, strict=True)])
    return ax


def _levels(tokens: int, side: int, places: Array, pairs: int) -> tuple[Array, list[int]]:
    """Return the level at which each query sees each token, for tokens at `places`, and the pairs of each level."""
    groups, pattern = levels_of(tokens, side)
    indptr, indices, _ = lists = pattern.rows[0][0]
    begins = np.cumsum([0, *groups]) // side  # the first block of each level of means, and of the tokens
    first_row = int(begins[-1]) - lists.before  # the first row of queries
    row_lengths = np.diff(indptr[first_row:])
    queries = np.minimum(side, tokens - side * np.arange(row_lengths.size))
    seen = np.repeat(queries, row_lengths) * side
    counts = [int(seen[(indices >= a) & (indices < b)].sum()) for a, b in itertools.pairwise(begins)]
    levels = np.zeros((places.size, places.size), np.int64)
    for row, query in enumerate(places):
        groups_seen = indices[slice(*indptr[first_row + query // side :][:2])]
        for level, (a, b) in enumerate(itertools.pairwise(begins), 1):
            blocks = groups_seen[(groups_seen >= a) & (groups_seen < b)] - a
            if blocks.size:
                low, high = (int(n) * side << level for n in (blocks[0], blocks[-1] + 1))
                levels[row, (places >= low) & (places < high)] = level
    return levels, [pairs - sum(counts), *(n for n in counts if n)]  # no query may reach the last level
