"""A fixed number of rows for each key head: the newest tokens, and the older tokens that received the most weight."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headspan._check import Array
from headspan.cache.arguments import of_state
from headspan.ops.arguments.options import ARRAY_OPTIONS, BY_DISTANCE
from headspan.ops.execution.functional import Saved, backward, forward
from headspan.ops.execution.request import Request

_ROWS = ("key", "value", "received", "positions", "tokens")
PIECE = 256  # tokens that attend together; the arrays have room for one piece beyond the slots


class Rule(NamedTuple):
    """The rule that decides which rows stay.

    Attributes
    ----------
    slots, window : int
        The number of rows in all, and of rows for the newest tokens.
    decay : float
    merge : bool
    """

    slots: int
    window: int
    decay: float
    merge: bool


class Slots:
    """The rows of every pair of batch item and key head. Each pair has its own tokens, ordered by position.

    Attributes
    ----------
    rows : int
        The number of rows of each pair, at most `slots`. The arrays have `PIECE` more rows as scratch space.
    count : int
        The number of tokens so far.
    key, value : ndarray, shape (pairs, slots + PIECE, dim)
    received : ndarray of float64, shape (pairs, slots + PIECE)
        The decayed weight that each row received from queries.
    positions : ndarray of int64, shape (pairs, slots + PIECE)
    tokens : ndarray of float64, shape (pairs, slots + PIECE)
        The number of tokens merged into each row.
    """

    def __init__(self, axes: tuple[int, int], dims: tuple[int, int], rule: Rule, dtype: np.dtype[Any]) -> None:
        self._axes, self._rule = axes, rule  # batch items and key heads
        pairs, room = axes[0] * axes[1], rule.slots + PIECE
        self.rows = self.count = 0
        # Untouched memory costs nothing.
        self.key, self.value = (np.zeros((pairs, room, dim), dtype) for dim in dims)
        self.received = np.zeros((pairs, room))
        self.positions = np.zeros((pairs, room), np.int64)
        self.tokens = np.ones((pairs, room))

    @property
    def nbytes(self) -> int:
        """Memory of all arrays, in bytes."""
        return sum(array.nbytes for array in self._arrays())

    def state(self) -> dict[str, Any]:
        """Return copies of all rows, and the number of tokens so far."""
        arrays = {name: array[:, : self.rows].copy() for name, array in zip(_ROWS, self._arrays(), strict=True)}
        return {"count": self.count, **arrays}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore a state that `state` returned."""
        state = of_state("StreamingAttention", state, ("count", *_ROWS))
        self.count, self.rows = state["count"], state["key"].shape[1]
        for name in _ROWS:
            getattr(self, name)[:, : self.rows] = state[name]

    def advance(
        self, query: Array, key: Array, value: Array, options: Mapping[str, Any]
    ) -> tuple[Array, Array, Callable[[], Slots]]:
        """Attend to all rows and to the new tokens, piece by piece.

        Parameters
        ----------
        query : ndarray, shape (batch, heads, queries, head_dim)
            The queries of the last of the new tokens.
        key, value : ndarray, shape (batch, key heads, tokens, dim)
        options
            Options of `headspan.attention`. Arrays have the axes (batch, heads) or (batch, heads, queries or 1).

        Returns
        -------
        out : ndarray, shape (batch, heads, queries, dim of value)
        lse : ndarray, shape (batch, heads, queries)
        keep : callable
            Returns slots that hold the new tokens, possibly this object. Nothing changes before `keep` is called.
        """
        tokens, skipped = key.shape[2], key.shape[2] - query.shape[2]
        out, lse = np.empty((*query.shape[:3], value.shape[3]), query.dtype), np.empty(query.shape[:3], query.dtype)
        slots = self if tokens <= PIECE else copy.deepcopy(self)
        received, new = None, 0
        for first in range(0, tokens, PIECE):
            if first > 0:
                slots._keep(new, received)
            part = np.s_[:, :, first : first + PIECE]
            new = min(PIECE, tokens - first)
            slots._write(key[part], value[part])
            chunk = slice(max(first - skipped, 0), max(first + new - skipped, 0))
            part_options = {name: _tokens_of(option, chunk) for name, option in options.items()}
            received = None
            if chunk.start < chunk.stop:
                out[:, :, chunk], lse[:, :, chunk], received = slots._attend(query[:, :, chunk], new, part_options)

        def keep() -> Slots:
            slots._keep(new, received)
            return slots

        return out, lse, keep

    def _arrays(self) -> tuple[npt.NDArray[Any], ...]:
        return self.key, self.value, self.received, self.positions, self.tokens

    def _write(self, key: Array, value: Array) -> None:
        """Write new tokens into the scratch space after the rows."""
        tokens = key.shape[2]
        new = np.s_[:, self.rows : self.rows + tokens]
        for rows, array in ((self.key, key), (self.value, value)):
            rows.reshape(*self._axes, *rows.shape[1:])[:, *new] = array
        self.received[new], self.tokens[new] = 0, 1
        self.positions[new] = np.arange(self.count, self.count + tokens)

    def _attend(
        self, query: Array, new: int, options: Mapping[str, Any]
    ) -> tuple[Array, Array, npt.NDArray[np.float64]]:
        """Return out, lse and the weight that each row received, decayed within the piece."""
        rows, axes, pairs = self.rows + new, query.shape[:3], len(self.key)
        shared = query.shape[0] * query.shape[1] // pairs
        # The core sees each pair as a batch item with one key head, because each pair has its own positions.
        query = query.reshape(pairs, shared, *query.shape[2:])
        options = {name: _fold(option, pairs, shared) for name, option in options.items()}
        if options.keys() & BY_DISTANCE:
            options["query_positions"] = np.arange(self.count + new - axes[2], self.count + new)
            options["key_positions"] = self.positions[:, :rows]
        if self._rule.merge:
            options["key_bias"] = np.log(self.tokens[:, None, :rows])
        key = self.key[:, None, :rows]
        out, lse, saved = forward(Request(query, key, self.value[:, None, :rows], options), with_lse=True)
        assert lse is not None
        assert saved is not None
        received = self._received(query, key, saved, options)
        return out.reshape(*axes, -1), lse.reshape(axes), received

    def _received(self, query: Array, key: Array, saved: Saved, options: dict[str, Any]) -> npt.NDArray[np.float64]:
        """Sum the weights of each key. The sum is the gradient of a value with one dimension."""
        options.pop("sinks", None)  # the statistics include them
        pairs, heads, queries, dim = query.shape
        statistics = saved.statistics
        if queries == 1 and heads > 1 and "alibi_slopes" not in options:
            # Heads that share keys become queries of one head, which fills vector lanes and takes a third of the time.
            query, statistics = query.reshape(pairs, 1, heads, dim), statistics.reshape(pairs, 1, heads, 2)
            options |= {
                name: option.reshape(pairs, 1, heads) for name, option in options.items() if _per_head(name, option)
            }
            options["causal"] = False
            if "query_positions" in options:
                options["query_positions"] = np.repeat(options["query_positions"], heads)
        last = np.zeros(query.shape[2]) if queries == 1 else np.arange(queries - 1, -1, -1)
        share = np.broadcast_to((self._rule.decay**last).astype(query.dtype)[:, None], (*query.shape[:3], 1))
        request = Request(query, key, np.zeros((*key.shape[:3], 1), key.dtype), options)
        gradient = backward(request, Saved(np.zeros_like(share), statistics), share, needs=("value",))["value"]
        received = gradient[:, 0, :, 0].astype(np.float64)
        received[np.isnan(received)] = 0  # NaN says nothing about a key, and would keep the key forever
        return received

    def _keep(self, new: int, received: npt.NDArray[np.float64] | None) -> None:
        """Turn written tokens into rows, and remove the rows beyond the slots."""
        rows = self.rows + new
        self.received[:, : self.rows] *= self._rule.decay**new
        if received is not None:
            self.received[:, :rows] += received
        too_many = rows - self._rule.slots
        if too_many > 0:
            self._let_go(self._least(rows, too_many))
        self.rows, self.count = min(rows, self._rule.slots), self.count + new

    def _least(self, rows: int, too_many: int) -> npt.NDArray[np.bool_]:
        """Mark the `too_many` rows before the window that received the least weight. Ties go to the older row."""
        received = self.received[:, : rows - self._rule.window]
        limit = np.partition(received, too_many - 1)[:, too_many - 1, None]
        below, equal = received < limit, received == limit
        chosen = below | (equal & (equal.cumsum(axis=1) <= too_many - below.sum(axis=1, keepdims=True)))
        window = np.zeros((len(received), self._rule.window), bool)
        return np.concatenate([chosen, window], axis=1)

    def _let_go(self, least: npt.NDArray[np.bool_]) -> None:
        """Remove the marked rows of each pair, and move later rows forward."""
        moved = self._arrays()[: None if self._rule.merge else -1]  # without merging, the numbers of tokens are all 1
        for pair, removed in enumerate(least):
            first, stay = int(removed.argmax()), np.flatnonzero(~removed)
            if self._rule.merge:
                self._merge(pair, np.flatnonzero(removed), stay)
            for array in moved:
                _close(array[pair], first, stay)

    def _merge(self, pair: int, removed: npt.NDArray[np.int64], stay: npt.NDArray[np.int64]) -> None:
        """Merge each removed row into the staying row with the most similar key."""
        key, value, tokens = self.key[pair], self.value[pair], self.tokens[pair]
        removed = removed[np.isfinite(key[removed]).all(axis=1) & np.isfinite(value[removed]).all(axis=1)]
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            kept = key[stay]
            length = np.sqrt((kept * kept).sum(axis=1))
            cosine = (key[removed] @ kept.T) / np.where(length > 0, length, 1)
        like = stay[np.where(np.isnan(cosine), -np.inf, cosine).argmax(axis=1)]
        into, which = np.unique(like, return_inverse=True)
        total = tokens[into]
        np.add.at(total, which, tokens[removed])
        for array in (key, value):
            sums = array[into] * tokens[into, None]
            np.add.at(sums, which, array[removed] * tokens[removed, None])
            array[into] = sums / total[:, None]
        tokens[into] = total
        np.add.at(self.received[pair], like, self.received[pair, removed])


def _close(rows: npt.NDArray[Any], first: int, stay: npt.NDArray[np.int64]) -> None:
    """Move the staying rows forward, starting at the first removed row."""
    if stay[-1] == len(stay):  # one row is removed, as in generation: a plain move is faster
        width = rows[0].size
        flat = rows.reshape(-1)
        flat[first * width : len(stay) * width] = flat[(first + 1) * width : (len(stay) + 1) * width]
    else:
        rows[first : len(stay)] = rows[stay[first:]]


def _per_head(name: str, option: Any) -> bool:
    return name in ARRAY_OPTIONS and ARRAY_OPTIONS[name].per_token and np.ndim(option) > 0


def _fold(option: Any, pairs: int, shared: int) -> Any:
    """Reshape an option of axes (batch, heads, ...) to (pairs, heads of a key head, ...)."""
    return option.reshape(pairs, shared, *option.shape[2:]) if np.ndim(option) else option


def _tokens_of(option: Any, tokens: slice) -> Any:
    """Return the part of an option that belongs to some queries."""
    return option[:, :, tokens] if np.ndim(option) == 3 and option.shape[2] > 1 else option
