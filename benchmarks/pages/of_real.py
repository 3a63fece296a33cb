"""The figures that pages have from files of the experiments on a model that others trained."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import mean, stdev
from typing import Any

from benchmarks.pages.registry import figures

_REAL = "experiments/results/real"
_ARMS = {
    "fitted spans": ("fitted",),
    "one span a layer": ("one span a layer",),
    "one span": ("one span",),
    "the fitted spans, dealt to other heads": ("dealt 0", "dealt 1", "dealt 2"),
    "some heads full, by ablation": ("full or window by ablation",),
    "some heads full, by attention mass": ("full or window by mass",),
    "received weight": ("received weight",),
    "received weight, as many tokens as the fitted spans": ("received weight, rows as fitted",),
    "received weight, inside larger fitted spans": ("received weight inside",),
}


@figures("README.md", f"{_REAL}/bible_50.json")
def _real_model(result: Any) -> Iterator[tuple[Any, ...]]:
    for name in (*list(_ARMS)[:4], "received weight", "received weight, as many tokens as the fitted spans"):
        yield f"| {name} | # % (#) |", *_increase(result, name)


@figures("docs/explain/real.md", f"{_REAL}/*_[25][05].json")
def _real_models(results: Any) -> Iterator[tuple[Any, ...]]:
    bible_25, bible_50, python_25, python_50 = results
    for name in _ARMS:
        yield from _row(name, "# % (#)", [_increase(one, name) for one in (bible_50, bible_25, python_50, python_25)])


@figures("docs/explain/real.md", f"{_REAL}/bible_*.json")
def _needles(results: Any) -> Iterator[tuple[Any, ...]]:
    quarter, half = results
    for name in _ARMS:
        yield from _row(name, "# of 10", [_answers(half, name, 2048), _answers(quarter, name, 2048)])
        if long := _increase(half, name, 8192):
            yield f"| {name} | # % (#) | # of 10 |", *long, *_answers(half, name, 8192)


def _row(name: str, form: str, cells: list[tuple[float, ...]]) -> Iterator[tuple[Any, ...]]:
    """Yield the text of a row of a table and its values, if something was measured; other cells are empty."""
    if any(cells):
        text = "".join(f" {form} |" if cell else " |" for cell in cells)
        yield f"| {name} |{text}", *(value for cell in cells for value in cell)


@figures("docs/explain/real.md", f"{_REAL}/generation.json")
def _generated(result: Any) -> Iterator[tuple[Any, ...]]:
    for tokens in (2048, 8192):
        full, fitted = result[f"50% of the bytes, {tokens} tokens"].values()
        numbers = [way["cache_bytes"] / 2**20 for way in (full, fitted)]
        numbers += [way["milliseconds"] for way in (full, fitted)]
        yield f"| {tokens:,} tokens | # MiB | # MiB | # ms | # ms |", *numbers


@figures("docs/howto/look.md", f"{_REAL}/moves.json")
def _moves(result: Any) -> Iterator[tuple[Any, ...]]:
    seconds = [result[f"last layers: {layers}"] for layers in (1, 10, 30)]
    yield "took # s after a move in its last layer, # s for its last ten layers and # s for all layers", *seconds


def _increase(result: Any, name: str, tokens: int = 2048) -> tuple[float, ...]:
    """Return the increase of the loss over full attention in percent, and its standard error over windows.

    Several arms, such as three deals, count as one: their mean in each window. Without results there are no numbers.
    """
    arms = [f"{arm} {tokens}" for arm in _ARMS[name]]
    if not all(arm in result for arm in arms):
        return ()
    losses, full = [result[arm] for arm in arms], result[f"full attention {tokens}"]
    differences = [mean(window) - before for *window, before in zip(*losses, full, strict=True)]
    scale = 100 / mean(full)
    return scale * mean(differences), scale * stdev(differences) / len(differences) ** 0.5


def _answers(result: Any, name: str, tokens: int) -> tuple[float, ...]:
    """Return how many numbers the model predicts without an error, the mean over deals, if there are results."""
    counts = [sum(result[key]["right"]) for arm in _ARMS[name] if (key := f"needles, {arm} {tokens}") in result]
    return (mean(counts),) if len(counts) == len(_ARMS[name]) else ()
