"""The plot of a pattern: the pairs that it allows, coloured by the part that allows them, and their cost."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan.ops.attention_map import attention_weights
from headspan.ops.cost import cost
from headspan.patterns.base import Pattern
from headspan.patterns.causality import resolve_causal
from headspan.patterns.per_head import per_head
from headspan.plot import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = npt.NDArray[Any]

CELLS = 64  # larger numbers of tokens are pooled into blocks
BLOCKS = 128
MOST_PAIRS = 2**27  # inspected for each part; larger layouts are sampled by rows
PALEST = 0.3  # opacity at which a block with a single pair is still visible
_CHUNK = 2**22


@dataclass(frozen=True)
class Layout:
    """The number of pairs that each part contributes to every block.

    Attributes
    ----------
    counts : ndarray of int64, shape (parts, row blocks, column blocks)
        A pair counts for the first part that allows it within the span. Global tokens ignore the span.
    sizes : ndarray of int64, shape (row blocks, column blocks)
        The number of inspected pairs of a block.
    block : (int, int)
        The numbers of queries and keys in a block.
    is_complete : bool
        Whether all rows were inspected.
    """

    counts: Array
    sizes: Array
    block: tuple[int, int]
    is_complete: bool


def pattern(
    pattern: Pattern | Sequence[Pattern],
    tokens: int,
    *,
    key_tokens: int | None = None,
    causal: bool | None = None,
    head_dim: int = 64,
    span: npt.ArrayLike | None = None,
    ramp: float = 32,
    ax: Axes | None = None,
) -> Axes | Figure:
    """Draw the pairs that a pattern allows, coloured by the part of its union that allows them.

    Attention is causal by default: pass ``causal=False`` to let queries see later keys. A pair that several parts allow
    has the colour of the first part. Beyond the span this is a Global, which no span limits. With more than 64 queries
    or keys, each cell is a block in the colour of its largest part, paler if fewer of its pairs are computed. The title
    has the share of computed pairs and the FLOPs that `headspan.cost` counts.

    Parameters
    ----------
    pattern : Pattern or sequence of Pattern
        One pattern per head, or Blocks per head, gives one panel per head. Random per head gives one panel per span.
    tokens, key_tokens : int
        The number of queries and keys. By default there are as many keys as queries. Beyond 11,000 tokens only some
        rows of each block are inspected, and the legend says how many.
    causal : bool, optional
        Whether queries do not see later keys. The default is that of `headspan.attention`.
    head_dim : int
        The head_dim for which FLOPs are counted. The legend shows it.
    span : array_like, shape () or (heads,), optional
        The span in tokens. Pairs out of its reach are not drawn.
    ramp : float
        The ramp in tokens, see `headspan.attention`.
    ax : matplotlib.axes.Axes, optional
        Only for a pattern with one panel.

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
    headspan.patterns.Pattern : The base class, whose operators combine patterns.
    block_gates : Draws the gates of blocks.

    Examples
    --------
    >>> import headspan as hs
    >>> from headspan.patterns import Global, Window
    >>> ax = hs.plot.pattern(Window(9) | Global([0]), 40)
    >>> ax.get_title()
    '355 of 820 pairs (43 %), 90.9 kFLOP'
    """
    queries = _check.integer("tokens", tokens, at_least=1)
    keys = queries if key_tokens is None else _check.integer("key_tokens", key_tokens, at_least=1)
    head_dim = _check.integer("head_dim", head_dim, at_least=1)
    panels, spans = _panels(pattern, span, queries, keys)
    if ax is not None and len(panels) > 1:
        raise ValueError(
            f"ax has room for one panel, not for {len(panels)} heads; omit it to draw them in a new figure"
        )
    causal = resolve_causal(causal, panels, queries, keys)
    sizes: dict[str, Any] = {
        "tokens": queries,
        "key_tokens": keys,
        "causal": causal,
        "head_dim": head_dim,
        "num_heads": 1,
    }
    costs = [cost(**sizes, pattern=p, span=z, ramp=ramp) for p, z in zip(panels, spans, strict=True)]
    full = cost(**sizes).pairs
    layouts = [layout_of(p, queries, keys, causal, z, ramp) for p, z in zip(panels, spans, strict=True)]
    names = list(dict.fromkeys(part.short_name() for p in panels for part in p.alternatives))
    colours = dict(zip(names, style.colours(len(names)), strict=True))
    shares = layouts[0].counts.sum(axis=(1, 2)) if len(panels) == 1 and layouts[0].is_complete else None
    handles = _patches(colours, shares, full, layouts[0], head_dim)
    title = "first part that allows it" if len(names) > 1 else None
    width = max(len(line) for text in (title or "", *(h.get_label() for h in handles)) for line in text.split("\n"))
    figure, axes = (
        style.panels(len(panels), columns=min(len(panels), 4))
        if len(panels) > 1
        else (None, [style.axes(ax, 5.3 + 0.085 * width, 4.6)])
    )
    for head, (panel, p, layout, work) in enumerate(zip(axes, panels, layouts, costs, strict=True)):
        shades = [colours[part.short_name()] for part in p.alternatives]
        _draw(panel, layout, shades, queries, keys)
        panel.set_title(_cost_text(work.pairs, full, work.forward_flops, None if figure is None else head), size=10)
    if figure is None:
        style.legend(axes[0], handles, title)
        return axes[0]
    columns = min(len(axes), 4, len(handles))
    figure.legend(handles=handles, title=title, loc="outside lower center", ncols=columns, frameon=False)
    return figure


def _panels(pattern: object, span: npt.ArrayLike | None, queries: int, keys: int) -> tuple[list[Pattern], list[Any]]:
    """Return the patterns and the spans of the panels."""
    listed = len(pattern) if isinstance(pattern, list | tuple) else None
    heads = pattern.heads if isinstance(pattern, Pattern) else listed
    spans = None if span is None else np.atleast_1d(_check.spans("span", span))
    count = heads or (1 if spans is None else spans.size)
    if not 1 <= count <= style.MOST_PANELS:
        raise ValueError(f"pattern must be for 1 to {style.MOST_PANELS} heads, not for {count}")
    if heads == 0:
        raise ValueError("pattern must be a Pattern or a list of at least one, not an empty list")
    panels = per_head(pattern, 1, count, queries, keys)
    if not panels:
        raise TypeError("pattern must be a Pattern or a list of Patterns, not None")
    panels = panels * (count // len(panels))
    if spans is None:
        return panels, [None] * count
    if spans.ndim != 1 or spans.size not in (1, count):
        raise ValueError(f"span must be a number or of shape ({count},), not {spans.shape}")
    return panels, np.broadcast_to(spans, (count,)).astype(np.float64).tolist()


def layout_of(
    pattern: Pattern, queries: int, keys: int, causal: bool, span: float | None = None, ramp: float = 32
) -> Layout:
    """Count the pairs of every block by the part that allows them.

    `headspan.attention_weights` tells which keys a row sees, since with equal scores only these have a weight above 0.
    The rows are processed in chunks, so that no array is larger than a chunk.
    """
    pooled = max(queries, keys) > CELLS
    rows, cols = (-(-n // BLOCKS) if pooled else 1 for n in (queries, keys))
    starts = np.arange(0, keys, cols)
    chosen = _rows(queries, keys, rows)
    parts = pattern.alternatives
    shape = (-(-queries // rows), starts.size)
    counts = np.zeros((len(parts), *shape), np.int64)
    looked = np.bincount(chosen // rows, minlength=shape[0])
    for chunk in _chunks(chosen, max(1, _CHUNK // keys)):
        left = _seen(pattern, queries, keys, chunk, causal, span, ramp)
        # Pairs that no part allows within the span are due to Global tokens, which ignore the span.
        for reach, (number, part) in itertools.product((span, None), enumerate(parts)):
            if not left.any():
                break
            seen = left if len(parts) == 1 else left & _seen(part, queries, keys, chunk, causal, reach, ramp)
            np.add.at(counts[number], chunk // rows, np.add.reduceat(seen, starts, axis=1, dtype=np.int64))
            left = left & ~seen
    widths = np.diff([*starts, keys])
    return Layout(counts, looked[:, None] * widths, (rows, cols), chosen.size == queries)


def _rows(queries: int, keys: int, block: int) -> Array:
    """Return the rows to inspect: all rows, or a fixed random sample of each block that limits the time."""
    count = max(1, MOST_PAIRS // keys // -(-queries // block))
    if count >= block:
        return np.arange(queries)
    rng = np.random.default_rng(0)  # evenly spaced rows would miss periodic parts
    samples = [
        np.sort(rng.choice(np.arange(start, min(start + block, queries)), min(count, queries - start), replace=False))
        for start in range(0, queries, block)
    ]
    return np.concatenate(samples)


def _chunks(rows: Array, size: int) -> Iterator[Array]:
    for start in range(0, rows.size, size):
        yield rows[start : start + size]


def _seen(
    pattern: Pattern, queries: int, keys: int, rows: Array, causal: bool, span: float | None, ramp: float
) -> npt.NDArray[np.bool_]:
    """Return which keys some rows see, shape (rows, keys)."""
    query, key = (np.zeros((n, 1), np.float32) for n in (queries, keys))
    seen: npt.NDArray[np.bool_] = (
        attention_weights(query, key, rows=rows, causal=causal, pattern=pattern, span=span, ramp=ramp) > 0
    )
    return seen.reshape(rows.size, keys)


def _draw(ax: Axes, layout: Layout, shades: list[str], queries: int, keys: int) -> None:
    """Draw one cell per block in the colour of its largest part. Pairs that are not computed are grey."""
    rows, cols = layout.block
    total = layout.counts.sum(axis=0)
    channels = style.matplotlib("colors").to_rgba_array(shades)
    image = channels[layout.counts.argmax(axis=0)]
    share = total / np.maximum(layout.sizes, 1)
    image[..., 3] = np.where(total > 0, PALEST + (1 - PALEST) * share, 0)
    ax.imshow(image, extent=style.edges(image, rows, cols), interpolation="nearest")
    style.pair_axes(ax, queries, keys)


def _cost_text(pairs: int, full: int, flops: int, head: int | None) -> str:
    share = _percent(pairs, full)
    if head is not None:
        return f"head {head}: {share}, {_scaled(flops)}"
    return f"{pairs:,} of {full:,} pairs ({share}), {_scaled(flops)}"


def _percent(part: int, total: int) -> str:
    return f"{100 * part / max(total, 1):.2g} %" if part < total else "100 %" if part else "0 %"


def _scaled(flops: float) -> str:
    for unit in ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"):
        if flops < 999.5:
            return f"{flops:.3g} {unit}"
        flops /= 1000
    return f"{flops:.3g} PFLOP"


def _patches(colours: dict[str, str], shares: Array | None, full: int, layout: Layout, head_dim: int) -> list[Any]:
    patch = style.matplotlib("patches").Patch
    counts: list[int | None] = [None] * len(colours)
    if shares is not None and shares.size == len(colours):  # parts with the same name share an entry without a number
        counts = shares.tolist()
    entries = [
        patch(facecolor=colour, label=name if count is None else f"{name}: {_percent(count, full)}")
        for (name, colour), count in zip(colours.items(), counts, strict=True)
    ]
    entries.append(patch(facecolor=style.NOTHING, label="not computed"))
    entries.append(patch(facecolor="none", label=f"FLOPs for head_dim {head_dim}"))
    rows, cols = layout.block
    if (rows, cols) != (1, 1):
        label = f"in blocks of {rows} x {cols},\npaler where fewer pairs are"
        if not layout.is_complete:
            label += f",\n{int(layout.sizes[0, 0]) // cols} rows of each looked at"
        entries.append(patch(facecolor="none", label=label))
    return entries
