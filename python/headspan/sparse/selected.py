"""Blocks of keys selected by content."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from headspan import _check, _compiled
from headspan._check import Array
from headspan.ops.arguments.sizes import check_alike, check_last
from headspan.ops.execution.runtime import get_num_threads
from headspan.patterns import Blocks

_ALWAYS = ("own", "previous", "first")
_Integers = npt.NDArray[np.int64]


def selected_blocks(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    *,
    keep: int,
    block_size: int | tuple[int, int] = (64, 4),
    always: Iterable[str] = _ALWAYS,
    window: int | None = None,
    shortlist: int | None = None,
    causal: bool = True,
) -> Blocks:
    """Select the blocks of keys that match each block of queries best, as a pattern for `attention`.

    The selection is causal by default: pass ``causal=False`` to let queries see later keys. The score of a block of
    keys is the dot product of the mean of its keys and the mean of the queries, for each batch item and head. With
    `causal`, the first query of a block replaces the mean, so that no token affects what earlier tokens see: a change
    of later tokens changes no earlier output. This holds to the bit for blocks of at least 16 queries; smaller blocks
    are computed together, and the order of their sums depends on the selection. Gradients treat the selection as a
    constant.

    Smaller blocks of queries get a selection that fits each query better, but selecting takes longer. With
    ``block_size=(1, 4)`` each query has its own selection.

    Parameters
    ----------
    query : array_like, shape (batch, heads, tokens, head_dim)
        float32 or float64; leading axes may be omitted. The queries of all tokens, or of the last ones.
    key : array_like, shape (batch, key heads, key tokens, head_dim)
    keep : int
        Number of selected blocks of keys per block of queries, in addition to those that it always sees.
    block_size : int or (int, int)
        Tokens of a block, or (queries, keys) of a block, as in `Blocks`.
    always : iterable of str
        Keys that are always visible, in whole blocks: ``"own"``, the tokens of the block of queries; ``"previous"``,
        the `window` before it; ``"first"``, the first block of keys. Other keys are visible only if they are selected.
        Without ``"own"`` a query does not see its own key unless it is selected.
    window : int, optional
        Number of tokens of ``"previous"``. Default: the queries of a block.
    shortlist : int, optional
        Number of blocks that are compared one by one per block of queries; default: 16 times `keep`. If more blocks are
        allowed, groups of 16 neighbouring blocks are first compared by their common mean, and the best groups form the
        shortlist; blocks of incomplete groups are added to it. This reduces the work to about a sixteenth.
    causal : bool
        Whether a block of queries selects, by its first query, only among the earlier blocks of keys. If `query` holds
        only the last tokens, the first query of a block is the first one passed.

    Returns
    -------
    Blocks
        Pattern for these batch items, heads and keys. `attention` still masks later keys; with ``causal=False``, pass
        ``causal=False`` there, too.

    Raises
    ------
    ValueError
        If `always` holds an unknown name.
    TypeError
        If `query` and `key` differ in type.

    See Also
    --------
    headspan.patterns.Blocks : A block mask.
    learned_blocks : Options for learned gates of blocks.

    Notes
    -----
    The loss was measured in three small models trained with full attention (``experiments/README.md``: characters of
    Python source, context 1024, about 70 pairs per query). With single queries and ``window=23``, selection lost 13 to
    19 % of what a window of as many pairs lost for blocks of 2 keys and ``keep=22``, and 28 to 52 % for blocks of 4
    keys and ``keep=11``. Blocks of 16 queries lost more than the window. Selecting for 65,536 single queries takes
    longer than attention.

    References
    ----------
    Lu et al., "MoBA: Mixture of Block Attention for Long-Context LLMs", 2025, section 2.2, represent a block by the
    mean of its keys and select blocks by dot products for each query. Here a block of queries may share a selection.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 1, 2, 1000, 16))
    >>> pattern = hs.sparse.selected_blocks(q, k, keep=8)
    >>> hs.attention(q, k, v, pattern=pattern).shape
    (1, 2, 1000, 16)
    >>> cost = hs.cost(pattern=pattern, tokens=1000, num_heads=2, head_dim=16)
    >>> cost.forward_flops < 0.2 * cost.dense_flops
    True
    """
    queries, keys = _checked(query, key)
    count = _check.integer("keep", keep, at_least=0)
    rows, columns = _check.pair("block_size", block_size)
    back = rows if window is None else _check.integer("window", window, at_least=0)
    most = 16 * count if shortlist is None else _check.integer("shortlist", shortlist, at_least=count)
    causal, threads = _check.flag("causal", causal), get_num_threads()
    tokens, before = keys.shape[2], keys.shape[2] - queries.shape[2]
    blocks = _AlwaysVisible(tokens, (rows, columns), _names(always), back)
    allowed = blocks.others(causal)
    allowed[: before // rows] = 0  # blocks without a query select nothing
    if causal:
        first = np.maximum(np.arange(blocks.rows) * rows - before, 0)
        choosing = np.ascontiguousarray(queries[:, :, first])
    else:
        choosing = _compiled.block_means(queries, rows, before, blocks.rows, threads)
    of_keys = _compiled.block_means(keys, columns, 0, blocks.columns, threads)
    count = min(count, int((allowed[:, 1::2] - allowed[:, ::2]).sum(axis=1).max()))
    chosen = _compiled.select_blocks(choosing, of_keys, allowed, count, most, threads)
    masks = [[blocks.with_chosen(of_head) for of_head in item] for item in chosen]
    return Blocks(masks if len(masks) > 1 else masks[0], (rows, columns), per_head=True)


def _checked(query: npt.ArrayLike, key: npt.ArrayLike) -> list[Array]:
    """Return query and key with four axes."""
    arrays = {"query": _check.float_array("query", query), "key": _check.float_array("key", key)}
    check_alike({**arrays, "value": arrays["key"]})
    check_last(*(array.shape[-2] for array in arrays.values()))
    return [array.reshape((1,) * (4 - array.ndim) + array.shape) for array in arrays.values()]


def _names(always: Iterable[str]) -> set[str]:
    """Check the names in `always`."""
    names = _check.sequence("always", [always] if isinstance(always, str) else always, "names")
    for name in names:
        if name not in _ALWAYS:
            raise ValueError(f"always must be of {', '.join(map(repr, _ALWAYS))}, got {name!r}")
    return set(names)


class _AlwaysVisible:
    """The blocks of keys that each block of queries always sees: the first block, and a range up to its own.

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
        """Return the blocks that each block of queries may select, as two ranges, of shape (rows, 4)."""
        ranges = np.zeros((self.rows, 4), np.int64)
        ranges[:, 0], ranges[:, 1] = self._before, np.maximum(self._from, self._before)
        if not causal:
            ranges[:, 2], ranges[:, 3] = np.maximum(self._to, self._before), self.columns
            ranges[self._from == self._to, 1:] = (self.columns, 0, 0)  # one range without a gap
        return ranges

    def with_chosen(self, chosen: _Integers) -> tuple[Any, Any]:
        """Return the visible blocks of each row as (indptr, indices); `chosen` pads rows with -1 at the end."""
        stretch = self._from[:, None] + np.arange(int((self._to - self._from).max(initial=0)))
        first, in_stretch = np.zeros((self.rows, 1), np.int64), (self._from == 0) & (self._to > 0)
        parts = {
            "first": (first, bool(self._before) & ~in_stretch[:, None]),
            "chosen": (chosen, chosen >= 0),
            "stretch": (stretch, stretch < self._to[:, None]),
        }
        columns, is_seen = (np.concatenate(arrays, axis=1) for arrays in zip(*parts.values(), strict=True))
        return np.append(0, np.cumsum(is_seen.sum(axis=1))), columns[is_seen]
