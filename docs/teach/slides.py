"""Draw the pictures of the slides: ``python docs/teach/slides.py [NAME ...]`` writes to docs/pictures/slides/.

All pictures are computed by headspan, from random numbers with a fixed seed or from the example run, which comes with
the package. docs/teach/slides.md shows them.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import headspan as hs
import matplotlib as mpl
import numpy as np
from headspan.lab import load_run
from headspan.lab.example import example_run
from headspan.lab.trained.loaded import LoadedRun
from headspan.patterns import Global, Strided, Window
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

PICTURES = Path(__file__).parents[1] / "pictures" / "slides"
STYLE = {"svg.hashsalt": "headspan", "font.size": 15, "lines.linewidth": 2.2}
SIZE = (11, 5)  # inches
BLUE, ORANGE, GREY = "#0666b2", "#e86d02", "#7d8590"

WORDS = ["the", "cat", "sat", "on", "the", "mat"]
_rng = np.random.default_rng(3)
_queries, _keys, _values = (1.5 * _rng.standard_normal((3, len(WORDS), 4))).round(1)


def query_key_value() -> Figure:
    """Draw one query, all keys and values, and the scores, weights and output that they give."""
    query = _queries[-1:]
    weights = hs.attention_weights(query, _keys)
    figure, ax = plt.subplots(figsize=SIZE, layout="constrained")
    _table(ax, 0, "query of “mat”", query)
    _table(ax, 6.4, "keys", _keys, WORDS)
    _table(ax, 11.8, "scores", query @ _keys.T / 2, colour=None)  # 2 is the square root of 4 channels
    _table(ax, 14.2, "weights", weights, form=".2f", colour=None)
    _table(ax, 18, "values", _values, WORDS)
    _table(ax, 23.4, "output", weights @ _values)
    for x, sign in ((4.7, "·"), (11.1, "="), (13.5, "→"), (16, "·"), (22.7, "=")):
        ax.text(x, 0, sign, ha="center", va="center", size=20)
    ax.set(xlim=(-0.2, 27.6), ylim=(4.2, -4.2), aspect="equal")
    ax.set_axis_off()
    return figure


def _table(
    ax: Axes,
    left: float,
    name: str,
    numbers: np.ndarray,
    words: Sequence[str] = (),
    form: str = ".1f",
    colour: str | None = "RdBu",
) -> None:
    """Draw numbers in cells, and the words of the rows before them. A row of scores or weights becomes a column."""
    table = numbers if colour else numbers.T
    rows, columns = table.shape
    if colour:
        extent = (left, left + columns, rows / 2, -rows / 2)
        ax.imshow(table, cmap=colour, vmin=-8, vmax=8, extent=extent)
    for (row, column), number in np.ndenumerate(table):
        ax.text(left + column + 0.5, row + 0.5 - rows / 2, f"{number:{form}}", ha="center", va="center", size=13)
    for row, word in enumerate(words):
        ax.text(left - 0.2, row + 0.5 - rows / 2, word, ha="right", va="center", size=13)
    ax.text(left + columns / 2, -rows / 2 - 0.6, name, ha="center", va="center")


def softmax() -> Figure:
    """Draw the scores of one query, and the weights that the softmax makes of them."""
    query = _queries[-1:]
    figure, (left, right) = plt.subplots(1, 2, figsize=SIZE, layout="constrained")
    left.bar(range(len(WORDS)), (query @ _keys.T / 2)[0], color=GREY)
    left.axhline(0, color="black", linewidth=1)
    left.set_title("scores: query · key / √d")
    weights = hs.attention_weights(query, _keys)[0]
    bars = right.bar(range(len(WORDS)), weights, color=BLUE)
    right.bar_label(bars, [f"{weight:.2f}" for weight in weights])
    right.margins(y=0.1)
    right.set_title("weights: softmax over the keys, sum 1")
    for ax in (left, right):
        ax.set_xticks(range(len(WORDS)), WORDS)
        ax.spines[["top", "right"]].set_visible(False)
    return figure


def cost_of_full_attention() -> Figure:
    """Draw the pairs of one head against the length of the text."""
    lengths = 2 ** np.arange(7, 18)
    figure, ax = plt.subplots(figsize=SIZE, layout="constrained")
    for name, span, colour in (("full attention", None, GREY), ("a span of 256, ramp 32", 256, BLUE)):
        pairs = [hs.cost(tokens=int(n), num_heads=1, head_dim=64, span=span, ramp=32).pairs for n in lengths]
        ax.loglog(lengths, pairs, "o-", base=2, color=colour)
        ax.annotate(name, (lengths[-1], pairs[-1]), (-8, 12), textcoords="offset points", ha="right", color=colour)
    ax.set_yscale("log")
    ax.set_xticks(lengths[::2], [f"{n:,}" for n in lengths[::2]])
    ax.set_xlabel("tokens")
    ax.set_ylabel("pairs of a query and a key")
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(color=GREY, alpha=0.25)
    return figure


def window() -> Figure:
    """Draw the pairs of full causal attention beside those of a window."""
    figure, panels = plt.subplots(1, 2, figsize=SIZE, layout="constrained")
    distance = np.arange(32)[:, None] - np.arange(32)
    for ax, name, size in zip(panels, ("full causal attention", "a window of 8 keys"), (32, 8), strict=True):
        seen = (distance >= 0) & (distance < size)
        ax.imshow(seen, cmap="Blues", vmin=0, vmax=1.5)
        ax.set_title(f"{name}: {seen.sum()} pairs", fontsize=15)
        ax.set_xlabel("key")
        ax.set_ylabel("query")
        assert seen.sum() == hs.cost(tokens=32, num_heads=1, head_dim=1, pattern=Window(size)).pairs
    return figure


def soft_mask() -> Figure:
    """Draw the soft mask of one span."""
    figure, ax = plt.subplots(figsize=SIZE, layout="constrained")
    hs.plot.soft_mask(20, ramp=10, ax=ax)
    return figure


def span_per_head() -> Figure:
    """Draw the attention of three heads with the same queries and keys and different spans."""
    query, key = np.random.default_rng(0).standard_normal((2, 64, 16))
    figure, panels = plt.subplots(1, 3, figsize=SIZE, layout="constrained")
    for head, (ax, span) in enumerate(zip(panels, (2, 12, 40), strict=True)):
        weights = hs.attention_weights(query, key, span=span, ramp=8)
        hs.plot.attention_map(weights, span=span, ramp=8, ax=ax)
        ax.images[0].colorbar.remove()
        ax.set_xticks(range(0, 64, 16))
        ax.set_xlabel("key")
        ax.set_ylabel("query")
        ax.set_title(f"head {head}: span {span}", fontsize=15)
    return figure


def gradient_of_a_span() -> Figure:
    """Draw which distances have a gradient, and a loss against the span with the slope that headspan returns."""
    rng, ramp, here = np.random.default_rng(0), 10, 18.0
    query, key, value = rng.standard_normal((3, 200, 8))
    target = hs.attention(query, key, value, span=30, ramp=ramp)
    figure, (left, right) = plt.subplots(1, 2, figsize=SIZE, layout="constrained")
    hs.plot.soft_mask(here, ramp=ramp, ax=left)
    left.axvspan(here, here + ramp, color=ORANGE, alpha=0.25)
    left.set_title("only pairs on the ramp contribute")

    spans = np.linspace(5, 55, 101)
    losses = [((hs.attention(query, key, value, span=z, ramp=ramp) - target) ** 2).sum() for z in spans]
    out, vjp = hs.attention_vjp(query, key, value, span=here, ramp=ramp)
    slope, loss = float(vjp(2 * (out - target)).span), ((out - target) ** 2).sum()
    right.plot(spans, losses, color=BLUE)
    right.plot(here + np.array([-7, 7]), loss + slope * np.array([-7, 7]), color=ORANGE)
    right.plot(here, loss, "o", color=ORANGE, markersize=9)
    right.set_title("loss, and its slope by attention_vjp")
    right.set_xlabel("span of the head (the target has 30)")
    right.spines[["top", "right"]].set_visible(False)
    return figure


def learning() -> Figure:
    """Draw four spans that find the answer by gradient descent, as in notebook 01."""
    rng, ramp, wanted = np.random.default_rng(0), 10, 30.0
    query, key, value = rng.standard_normal((3, 300, 8))
    target = hs.attention(query, key, value, span=wanted, ramp=ramp)
    spans = np.array([3.0, 15.0, 45.0, 90.0])
    heads = [np.repeat(array[None], len(spans), axis=0) for array in (query, key, value)]
    history = [spans]
    for _ in range(300):
        out, vjp = hs.attention_vjp(*heads, span=spans, ramp=ramp)
        spans = np.maximum(spans - 0.5 * np.tanh(vjp(2 * (out - target)).span), 0)
        history.append(spans)
    figure, ax = plt.subplots(figsize=SIZE, layout="constrained")
    hs.plot.span_history(np.arange(len(history)), np.array(history), ramp=ramp, ax=ax)
    ax.axhline(wanted, color="black", linestyle="--", linewidth=1, zorder=0)
    return figure


def _example() -> LoadedRun:
    with tempfile.TemporaryDirectory() as folder:
        example_run(Path(folder) / "example")
        return load_run(Path(folder) / "example")


def example_spans() -> Figure:
    """Draw the spans of the example run."""
    run = _example()
    figure, ax = plt.subplots(figsize=SIZE, layout="constrained")
    hs.plot.spans(run.weights["span"], max_span=run.model.span_limit, ramp=run.model.ramp, unit="characters", ax=ax)
    return figure


def cache() -> Figure:
    """Draw the bytes of keys and values that each head of the example run keeps after 512 characters."""
    run = _example()
    spans = run.weights["span"]
    sizes = {"tokens": run.training.context, "num_heads": 1, "head_dim": run.model.width // run.model.heads}
    kept = [hs.cost(**sizes, span=span, ramp=run.model.ramp, decode=True).cache_bytes / 1024 for span in spans.ravel()]
    full = hs.cost(**sizes, decode=True).cache_bytes / 1024
    figure, ax = plt.subplots(figsize=SIZE, layout="constrained")
    names = [f"{layer}, {head}" for layer, head in np.ndindex(spans.shape)]
    ax.bar(names, full, color=GREY, alpha=0.25, label="full attention")
    bars = ax.bar(names, kept, color=BLUE, label="learned spans")
    ax.bar_label(bars, [f"{size:.1f}" for size in kept])
    ax.set_title(f"{sum(kept):.0f} of {full * spans.size:.0f} KiB", fontsize=15)
    ax.set_xlabel("layer, head")
    ax.set_ylabel("keys and values in KiB")
    ax.legend(loc="center right")
    ax.spines[["top", "right"]].set_visible(False)
    return figure


def pattern() -> Figure:
    """Draw a pattern of three parts."""
    figure, ax = plt.subplots(figsize=SIZE, layout="constrained")
    hs.plot.pattern(Window(5) | Strided(8) | Global(0), tokens=48, ax=ax)
    return figure


def exercise() -> Figure:
    """Draw the empty axes of exercise 1."""
    figure, ax = plt.subplots(figsize=SIZE, layout="constrained")
    ax.set(xlim=(60, 101), ylim=(0, 1.1), xlabel="position of the key", ylabel="mask")
    ax.axvline(100, color=ORANGE)
    ax.annotate("query", (100, 1.1), (0, 4), textcoords="offset points", ha="center", color=ORANGE)
    ax.set_xticks(range(60, 101, 5))
    ax.grid(color=GREY, alpha=0.4)
    ax.spines[["top", "right"]].set_visible(False)
    return figure


DRAWN = (
    query_key_value, softmax, cost_of_full_attention, window, soft_mask, span_per_head, gradient_of_a_span, learning,
    example_spans, pattern, cache, exercise,
)  # fmt: skip


def main(names: list[str]) -> None:
    """Write the pictures with these names, or all of them."""
    PICTURES.mkdir(exist_ok=True)
    for draw in DRAWN:
        if not names or draw.__name__ in names:
            with mpl.rc_context(STYLE):
                draw().savefig(PICTURES / f"{draw.__name__}.svg", metadata={"Date": None})
                plt.close("all")


if __name__ == "__main__":
    main(sys.argv[1:])
