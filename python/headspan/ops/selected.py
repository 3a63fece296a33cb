"""Blocks of keys that the content chooses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from headspan import _check, _core
from headspan._check import Array
from headspan.ops.arguments.sizes import check_alike, check_last
from headspan.ops.runtime import get_num_threads
from headspan.patterns import Blocks

_ALWAYS = ("own", "previous", "first")
_Integers = npt.NDArray[np.int64]


def selected_blocks(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    *,
    keep: int,
    query_block: int = 64,
    key_block: int = 4,
    always: Iterable[str] = _ALWAYS,
    window: int | None = None,
    shortlist: int | None = None,
    causal: bool = True,
) -> Blocks:
    """Choose the blocks of keys that suit each block of queries best, as a pattern for `attention`.

    A block of keys is as good as the product of the mean of its keys and the mean of the queries, of a batch item and
    head. With `causal` the first query of a block stands for all of them, so that no token has a say in what earlier
    ones see: a changed future changes no earlier output (to the bit from 16 queries a block on; smaller blocks are
    computed together, and the order of their sums is not the same for all choices). The choice is a constant for
    gradients.

    The smaller the blocks of queries, the better a choice suits each of them, and the longer it takes to choose: with
    ``query_block=1`` each query chooses for itself.

    Parameters
    ----------
    query : array_like, shape (batch, heads, tokens, head_dim)
        float32 or float64; leading axes may be left out. As many as there are keys, or fewer, the last ones.
    key : array_like, shape (batch, key heads, key tokens, head_dim)
    keep : int
        How many blocks of keys are chosen for each block of queries, beside those that it always sees.
    query_block, key_block : int
        Tokens of a block of queries and of keys.
    always : iterable of str
        What is seen anyway, in whole blocks of keys: ``"own"``, the tokens of the block of queries; ``"previous"``,
        the `window` before it; ``"first"``, the first block of keys. Other keys are seen only where they are chosen:
        without ``"own"`` a query does not even see its own.
    window : int, optional
        How many tokens ``"previous"`` are; as many as a block of queries has, unless given.
    shortlist : int, optional
        How many blocks are compared one by one for a block of queries, 16 times `keep` unless given. Where more are
        allowed, 16 neighbours at a time are first compared by their common mean, and the best of these make the
        shortlist; blocks whose neighbours are not all allowed come on top. The work is then that of a sixteenth.
    causal : bool
        Whether a block of queries chooses among the blocks of keys before it alone, by its first query. Where only
        the last queries are given this is the first of those that are.

    Returns
    -------
    Blocks
        For so many batch items, heads and keys. `attention` leaves out later keys as ever; where `causal` is False,
        this has to be given there, too.

    Raises
    ------
    ValueError
        For a wrong shape or value.
    TypeError
        For a wrong or mixed type.

    Notes
    -----
    In three small models that were trained with full attention (``experiments/README.md``: characters of Python source,
    context 1024, about 70 pairs a query) each query by itself (``query_block=1, window=23``) lost 13 to 19 % of what a
    window of as many pairs lost with ``key_block=2, keep=22``, and 28 to 52 % with ``key_block=4, keep=11``. Blocks of
    16 queries lost more than the window. Choosing for 65,536 queries one by one takes longer than their attention.

    References
    ----------
    Means of keys as what stands for a block, and a choice by their products: Lu et al., "MoBA: Mixture of Block
    Attention for Long-Context LLMs", 2025, section 2.2, there for each query; a block of queries may share a choice
    here.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 1, 2, 1000, 16))
    >>> pattern = hs.selected_blocks(q, k, keep=8)
    >>> hs.attention(q, k, v, pattern=pattern).shape
    (1, 2, 1000, 16)
    >>> cost = pattern.cost(tokens=1000, heads=2, head_dim=16)
    >>> cost.forward_flops < 0.2 * cost.dense_flops
    True
    """
    queries, keys = _checked(query, key)
    count = _check.integer("keep", keep, at_least=0)
    rows = _check.integer("query_block", query_block, at_least=1)
    columns = _check.integer("key_block", key_block, at_least=1)
    back = rows if window is None else _check.integer("window", window, at_least=0)
    most = 16 * count if shortlist is None else _check.integer("shortlist", shortlist, at_least=count)
    causal, threads = _check.flag("causal", causal), get_num_threads()
    tokens, before = keys.shape[2], keys.shape[2] - queries.shape[2]
    blocks = _Anyway(tokens, (rows, columns), _names(always), back)
    allowed = blocks.others(causal)
    allowed[: before // rows] = 0  # of blocks without a query
    if causal:
        first = np.maximum(np.arange(blocks.rows) * rows - before, 0)
        choosing = np.ascontiguousarray(queries[:, :, first])
    else:
        choosing = _core.block_means(queries, rows, before, blocks.rows, threads)
    of_keys = _core.block_means(keys, columns, 0, blocks.columns, threads)
    count = min(count, int((allowed[:, 1::2] - allowed[:, ::2]).sum(axis=1).max()))
    chosen = _core.select_blocks(choosing, of_keys, allowed, count, most, threads)
    masks = [[blocks.with_chosen(of_head) for of_head in item] for item in chosen]
    return Blocks(masks if len(masks) > 1 else masks[0], (rows, columns), per_head=True)


def _checked(query: npt.ArrayLike, key: npt.ArrayLike) -> list[Array]:
    """Return query and key on four axes."""
    arrays = {"query": _check.float_array("query", query), "key": _check.float_array("key", key)}
    check_alike({**arrays, "value": arrays["key"]})
    check_last(*(array.shape[-2] for array in arrays.values()))
    return [array.reshape((1,) * (4 - array.ndim) + array.shape) for array in arrays.values()]


def _names(always: Iterable[str]) -> set[str]:
    """Return what is always seen, checked."""
    names = _check.sequence("always", [always] if isinstance(always, str) else always, "names")
    for name in names:
        if name not in _ALWAYS:
            raise ValueError(f"always must be of {', '.join(map(repr, _ALWAYS))}, not hold {name!r}")
    return set(names)


class _Anyway:
    """The blocks of keys that each block of queries sees unasked: the first one, and a stretch up to its own.

    ::

        | first |    others    | from ... previous ... own ... to |    others, unless causal    |
    """

    def __init__(self, tokens: int, sides: tuple[int, int], always: set[str], window: int) -> None:
        first = np.arange(0, tokens, sides[0])  # token of each block of queries
        self.rows, self.columns = len(first), -(-tokens // sides[1])
        self._before = int("first" in always)
        begin = np.maximum(first - window, 0) if "previous" in always else first
        end = np.minimum(first + sides[0], tokens) if "own" in always else first
        self._from = begin // sides[1]
        self._to = np.where(begin < end, -(-end // sides[1]), self._from)

    def others(self, causal: bool) -> _Integers:
        """Return which blocks each block of queries may choose from, as two ranges, of shape (rows, 4)."""
        ranges = np.zeros((self.rows, 4), np.int64)
        ranges[:, 0], ranges[:, 1] = self._before, np.maximum(self._from, self._before)
        if not causal:
            ranges[:, 2], ranges[:, 3] = np.maximum(self._to, self._before), self.columns
            ranges[self._from == self._to, 1:] = (self.columns, 0, 0)  # nothing between them
        return ranges

    def with_chosen(self, chosen: _Integers) -> tuple[Any, Any]:
        """Return what each block of queries sees, as (indptr, indices); chosen has -1 behind the blocks of a row."""
        stretch = self._from[:, None] + np.arange(int((self._to - self._from).max(initial=0)))
        first, in_stretch = np.zeros((self.rows, 1), np.int64), (self._from == 0) & (self._to > 0)
        parts = {
            "first": (first, bool(self._before) & ~in_stretch[:, None]),
            "chosen": (chosen, chosen >= 0),
            "stretch": (stretch, stretch < self._to[:, None]),
        }
        columns, is_seen = (np.concatenate(its, axis=1) for its in zip(*parts.values(), strict=True))
        return np.append(0, np.cumsum(is_seen.sum(axis=1))), columns[is_seen]
