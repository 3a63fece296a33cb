"""What a trained model loses if it sees a few blocks of keys, chosen by content, distance, chance or an oracle.

``python experiments/small/selection.py --seed 0`` replaces the attention of all layers of the model of a seed, and
writes the bits per character to ``experiments/results/``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial

import headspan as hs
import numpy as np
from headspan.patterns import Blocks, Pattern, Window
from model import CONTEXT, HEADS, Array, Study, arguments, write
from numpy.typing import NDArray

Scores = Callable[["Cut", Array, Array], Array]


@dataclass(frozen=True)
class Cut:
    """The sizes of blocks of queries and keys, and the blocks that are always visible.

    A query sees the tokens of its own block up to itself, the `previous` blocks of queries before it, the first block
    of keys, and `keep` chosen blocks of keys between these.
    """

    query_block: int
    key_block: int
    keep: int
    previous: int = 1

    @property
    def always(self) -> NDArray[np.bool_]:
        """The blocks that are always visible, of shape (blocks of queries, blocks of keys)."""
        begins, keys = self._begins
        seen = (keys >= begins - self.previous * self.query_block) & (keys < begins + self.query_block)
        return seen | (keys < self.key_block)

    @property
    def open(self) -> NDArray[np.bool_]:
        """The blocks that can be chosen, of shape (blocks of queries, blocks of keys)."""
        begins, keys = self._begins
        return ~self.always & (keys < begins)

    @property
    def _begins(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return np.arange(0, CONTEXT, self.query_block)[:, None], np.arange(0, CONTEXT, self.key_block)

    def pattern(self, scores: Array) -> Blocks:
        """Return the pattern of the blocks with the highest scores (batch, heads, query blocks, key blocks)."""
        scores = np.where(self.open, scores, -np.inf)
        best = np.argpartition(-scores, self.keep, axis=-1)[..., : self.keep] if self.keep else np.zeros(0)
        chosen = np.zeros(scores.shape, bool)
        if self.keep:
            np.put_along_axis(chosen, best, True, axis=-1)
        return Blocks(chosen & self.open | self.always, block_size=(self.query_block, self.key_block), per_head=True)


def at_random(cut: Cut, query: Array, _key: Array) -> Array:
    """Draw the blocks, the same in every layer."""
    rng = np.random.default_rng(0)
    return rng.random((*query.shape[:2], *cut.open.shape), dtype=np.float32)


def latest(cut: Cut, query: Array, _key: Array) -> Array:
    """Prefer the newest blocks."""
    return np.broadcast_to(np.arange(cut.open.shape[1], dtype=np.float32), (*query.shape[:2], *cut.open.shape))


def received(cut: Cut, query: Array, key: Array) -> Array:
    """Return the sums of the weights that blocks of keys receive from blocks of queries, an oracle of all pairs."""
    return hs.attention_weights(query, key, pool=(cut.query_block, cut.key_block))


def from_block(before: int) -> Scores:
    """Return scores of mean keys for the mean query of an earlier block; 0 is the own block, which is not causal."""

    def scores(cut: Cut, query: Array, key: Array) -> Array:
        means = query.reshape(*query.shape[:2], -1, cut.query_block, query.shape[-1]).mean(axis=3)
        return _products(np.roll(means, before, axis=2), key, cut)

    return scores


def from_first(cut: Cut, query: Array, key: Array) -> Array:
    """Return scores of mean keys for the first query of each block."""
    return _products(query[:, :, :: cut.query_block], key, cut)


def _products(queries: Array, key: Array, cut: Cut) -> Array:
    means = key.reshape(*key.shape[:2], -1, cut.key_block, key.shape[-1]).mean(axis=3)
    return queries @ means.swapaxes(-1, -2)


CRITERIA: dict[str, Scores] = {
    "random": at_random,
    "latest": latest,
    "own block": from_block(0),
    "previous block": from_block(1),
    "first query": from_first,
    "received weight": received,
}


def patterned(
    pattern_of: Callable[[Array, Array], Pattern], pairs: list[float]
) -> Callable[[Array, Array, Array], Array]:
    """Return attention with a pattern made from the queries and keys, which appends its pairs per query to `pairs`."""

    def attend(query: Array, key: Array, value: Array) -> Array:
        pattern = pattern_of(query, key)
        cost = hs.cost(tokens=CONTEXT, num_heads=HEADS, head_dim=query.shape[-1], batch=len(query), pattern=pattern)
        pairs.append(cost.pairs / (len(query) * HEADS * CONTEXT))
        return hs.attention(query, key, value, pattern=pattern)

    return attend


def window_of(pairs: float) -> Window:
    """Return the local window with this number of pairs per query, in the mean over the context."""
    sizes = np.arange(1, CONTEXT + 1)
    return Window(int(np.abs(sizes - sizes * (sizes - 1) / (2 * CONTEXT) - pairs).argmin()) + 1)


def main() -> None:
    """Measure all choices with the model of one seed."""
    args = arguments(__doc__.splitlines()[0], windows=16)
    study = Study(args, "test")
    rows = []

    def measure(name: str, pattern_of: Callable[[Array, Array], Pattern], **about: object) -> float:
        pairs: list[float] = []
        excess = study.excess(patterned(pattern_of, pairs))
        rows.append({"choice": name, **about, "pairs": round(float(np.mean(pairs)), 1), **excess})
        print(rows[-1], flush=True)
        return float(np.mean(pairs))

    def compare(cut: Cut, criteria: Iterable[str]) -> None:
        """Measure criteria with one cut, and the window with as many pairs."""
        about = asdict(cut)
        for name in criteria:
            pairs = measure(name, lambda q, k, score=CRITERIA[name]: cut.pattern(score(cut, q, k)), **about)
        measure("window", lambda q, k: window_of(pairs), **about)

    for keep in (4, 11, 24):
        compare(Cut(16, 4, keep), CRITERIA)
        compare(Cut(1, 4, keep, previous=23), ("first query", "received weight"))
        compare(Cut(1, 2, 2 * keep, previous=23), ("first query",))
    for cut in (Cut(2, 4, 11, previous=11), Cut(4, 4, 11, previous=5), Cut(8, 4, 11, previous=2)):
        compare(cut, ("first query",))
    cut = Cut(1, 4, 11, previous=23)
    sizes = {"keep": cut.keep, "block_size": (cut.query_block, cut.key_block), "window": cut.previous}
    for shortlist in (None, 32):
        choose = partial(hs.sparse.selected_blocks, **sizes, shortlist=shortlist)
        measure("hs.sparse.selected_blocks", choose, **asdict(cut), shortlist=shortlist)
    write(f"selection_{args.name}", {**study.about, "rows": rows})


if __name__ == "__main__":
    main()
