"""Pairs of a query and a key on which a score_mod is evaluated."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch

from headspan.patterns.mask import Mask
from headspan.patterns.tiles import Grid

ScoreMod = Callable[..., torch.Tensor]

_SAMPLE = 4096  # pairs of a large call
_ALL = 2**18  # the sample of a call with at most this number of pairs has all of them


class Pairs(NamedTuple):
    """Pairs by the indices of batch item, head, query and key; each is a tensor of int64, of shape (pairs,)."""

    item: torch.Tensor
    head: torch.Tensor
    query: torch.Tensor
    key: torch.Tensor


class Block(NamedTuple):
    """Some queries and keys of one batch item and head.

    Attributes
    ----------
    item, head : int
    query, key : Tensor of int64, of shape (queries,) and (keys,)
    exist : Tensor of bool, of shape (queries, keys)
        Which pairs exist.
    """

    item: int
    head: int
    query: torch.Tensor
    key: torch.Tensor
    exist: torch.Tensor

    def pairs(self, which: torch.Tensor) -> Pairs:
        """Return pairs, chosen by a tensor of bool of the shape of `exist`."""
        query, key = which.nonzero(as_tuple=True)
        query, key = self.query[query], self.key[key]
        return Pairs(torch.full_like(query, self.item), torch.full_like(query, self.head), query, key)

    def evaluate(self, score_mod: ScoreMod, scores: torch.Tensor) -> torch.Tensor:
        """Return a score_mod of all pairs, for one score or a score for each, of shape (queries, keys)."""
        axis = 0 if scores.ndim else None
        of_query = torch.vmap(score_mod, in_dims=(axis, None, None, None, 0))
        of_pairs = torch.vmap(of_query, in_dims=(axis, None, None, 0, None))
        item, head = torch.tensor(self.item), torch.tensor(self.head)
        return of_pairs(scores, item, head, self.query, self.key).to(torch.float64)


class Sizes(NamedTuple):
    """The sizes of a call; 1 for batch items or heads that a function does not tell apart."""

    batch: int
    heads: int
    queries: int
    keys: int

    @property
    def shift(self) -> int:
        """What is added to a query's index, so that the last query is at the last key."""
        return self.keys - self.queries

    @property
    def most(self) -> int:
        """A number that no distance exceeds."""
        return max(self.queries, self.keys)

    def sample(self, pattern: Mask | None) -> Pairs:
        """Return all pairs of a small call, and otherwise some random ones, of those that exist."""
        count = self.batch * self.heads * self.queries * self.keys
        flat = np.arange(count) if count <= _ALL else np.random.default_rng(0).integers(0, count, _SAMPLE)
        pairs = Pairs(*(torch.from_numpy(index.astype(np.int64)) for index in np.unravel_index(flat, self)))
        if pattern is None:
            return pairs
        exist = torch.from_numpy(sees(pattern, pairs))
        return Pairs(*(index[exist] for index in pairs))

    def blocks(self, pattern: Mask | None) -> Iterator[Block]:
        """Yield all pairs that exist, those of 64 queries at a time."""
        grid = Grid(self.queries, self.keys)
        for item, head, row in itertools.product(range(self.batch), range(self.heads), grid.rows):
            first, last = grid.queries_of(row)
            key, exist = np.arange(self.keys), np.ones((last - first, self.keys), np.bool_)
            if pattern is not None:
                columns, allowed = pattern.tiles[item % len(pattern.tiles)][head % len(pattern.tiles[0])].rows_of(row)
                key = grid.keys_of(columns)
                inside = key < self.keys
                exist = allowed[grid.lanes_of(row)].reshape(last - first, -1)[:, inside]
                key = key[inside]
            if len(key):
                yield Block(item, head, torch.arange(first, last), torch.from_numpy(key), torch.from_numpy(exist))

    def places(self, pairs: Pairs) -> torch.Tensor:
        """Return the places of pairs in a flat table by head and offset key - query."""
        return pairs.head * (2 * self.most + 1) + pairs.key - pairs.query - self.shift + self.most

    def slots(self, block: Block) -> torch.Tensor:
        """Return the places of the pairs of a block, of shape (queries, keys)."""
        start = block.head * (2 * self.most + 1) - self.shift + self.most
        return start + block.key - block.query[:, None]

    def representatives(self, pairs: Pairs) -> Pairs:
        """Return for each pair that of its head and offset in the first batch item that stands for all of them."""
        apart = pairs.key - pairs.query
        first = (-apart).clamp(min=0)  # the first query with a key so far away
        last = torch.minimum(torch.full_like(apart, self.queries - 1), self.keys - 1 - apart)
        query = (first + last) // 2
        return Pairs(torch.zeros_like(pairs.item), pairs.head, query, query + apart)


def one_for_each_offset(sizes: Sizes) -> tuple[Pairs, torch.Tensor]:
    """Return one pair for each head and offset, and its place in a table."""
    apart = torch.arange(1 - sizes.queries, sizes.keys)
    head = torch.arange(sizes.heads).repeat_interleave(len(apart))
    apart = apart.repeat(sizes.heads)
    pairs = sizes.representatives(Pairs(torch.zeros_like(head), head, (-apart).clamp(min=0), apart.clamp(min=0)))
    return pairs, sizes.places(pairs)


def sees(pattern: Mask, pairs: Pairs) -> np.ndarray:
    """Return whether pairs exist in a pattern."""
    item, head, query, key = (index.numpy() for index in pairs)
    exists = np.zeros(len(item), np.bool_)
    items, heads = len(pattern.tiles), len(pattern.tiles[0])
    part = item % items * heads + head % heads
    for number in np.unique(part):
        which = part == number
        tiles = pattern.tiles[number // heads][number % heads]
        exists[which] = tiles.contain(query[which] + pattern.shape[1] - pattern.shape[0], key[which])
    return exists


def evaluate(score_mod: ScoreMod, score: float | torch.Tensor, pairs: Pairs) -> torch.Tensor:
    """Return a score_mod of pairs, which all have one score, or each their own."""
    scores = torch.as_tensor(score, dtype=torch.float64).expand(pairs.item.shape)
    return torch.vmap(score_mod)(scores, *pairs).to(torch.float64)
