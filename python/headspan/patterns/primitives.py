"""The primitive patterns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headspan import _check
from headspan.patterns.base import MAX_TOKENS, Pattern, Primitive


@dataclass(frozen=True)
class Full(Primitive):
    """Every pair.

    See Also
    --------
    Global : Tokens that see all tokens and are seen by all.
    """

    _name = "full"


@dataclass(frozen=True)
class Window(Primitive):
    """A sliding window of `size` keys, of which the query's own key is the last: ``p - size < j <= p``.

    With the other arguments it is ``j = p - k * dilation`` with ``-ahead <= k < size``. A `sliding_window` of
    transformers is the same number; the `window_size` of flash-attn, ``(left, right)``, is
    ``Window(left + 1, ahead=right)``.

    Parameters
    ----------
    size : int
        Number of keys up to and including the query's own key.
    ahead : int
        Number of keys after the query's own key.
    dilation : int
        Step between neighbouring keys.

    Raises
    ------
    ValueError
        If `size` or `dilation` is less than 1, or `ahead` is negative.

    See Also
    --------
    Neighborhood : Windows on a grid of tokens.
    Blockwise : Blocks of keys around the block of a query.

    References
    ----------
    Beltagy et al., "Longformer: The Long-Document Transformer", 2020, section 3.1.

    Examples
    --------
    >>> from headspan.patterns import Window
    >>> Window(3, dilation=2).mask(5).astype(int)[-1]
    array([1, 0, 1, 0, 1])
    """

    size: int
    ahead: int = 0
    dilation: int = 1
    _name = "window"

    def __post_init__(self) -> None:
        self._check_integer("size", at_least=1)
        self._check_integer("ahead", at_least=0)
        self._check_integer("dilation", at_least=1)

    @property
    def default_causal(self) -> bool | None:
        return True if self.ahead == 0 else None

    def _numbers(self) -> list[int]:
        return [
            min(n, MAX_TOKENS) for n in ((self.size - 1) * self.dilation, self.ahead * self.dilation, self.dilation)
        ]


@dataclass(frozen=True)
class Strided(Primitive):
    """Every n-th key, counted from the query: ``(p - j) mod stride = 0``; or with an offset: ``j mod stride = offset``.

    Parameters
    ----------
    stride : int
    offset : int, optional
        Offset from 0 to stride - 1, which selects the same keys for all queries. None: count from the query.

    Raises
    ------
    ValueError
        If `stride` is less than 1, or `offset` is out of range.

    See Also
    --------
    Fixed : The last columns of every block.
    Window : A sliding window.

    References
    ----------
    Child et al., "Generating Long Sequences with Sparse Transformers", 2019, section 4.3.

    Examples
    --------
    >>> from headspan.patterns import Strided
    >>> Strided(3).mask(5).astype(int)[-1], Strided(3, offset=0).mask(5).astype(int)[-1]
    (array([0, 1, 0, 0, 1]), array([1, 0, 0, 1, 0]))
    """

    stride: int
    offset: int | None = None
    _name = "strided"

    def __post_init__(self) -> None:
        stride = self._check_integer("stride", at_least=1)
        if self.offset is not None and self._check_integer("offset", at_least=0) >= stride:
            raise ValueError(f"offset of Strided must be below the stride of {stride}, not {self.offset}")

    def _numbers(self) -> list[int]:
        return [min(self.stride, MAX_TOKENS), -1 if self.offset is None else min(self.offset, MAX_TOKENS - 1)]


@dataclass(frozen=True)
class Fixed(Primitive):
    """The last columns of every block, for all queries: ``j mod block_size >= block_size - columns``.

    Parameters
    ----------
    block_size, columns : int

    Raises
    ------
    ValueError
        If an argument is less than 1, or `columns` exceeds `block_size`.

    See Also
    --------
    Strided : Every n-th key.
    Blockwise : Blocks of keys around the block of a query.

    References
    ----------
    Child et al., "Generating Long Sequences with Sparse Transformers", 2019, section 4.3: the second part of its fixed
    pattern; ``Blockwise(block_size)`` is the first.

    Examples
    --------
    >>> from headspan.patterns import Fixed
    >>> Fixed(4, 1).mask(8).astype(int)[0]
    array([0, 0, 0, 1, 0, 0, 0, 1])
    """

    block_size: int
    columns: int
    _name = "fixed"

    def __post_init__(self) -> None:
        block_size = self._check_integer("block_size", at_least=1)
        if self._check_integer("columns", at_least=1) > block_size:
            raise ValueError(f"columns of Fixed must be at most the block_size of {block_size}, not {self.columns}")


@dataclass(frozen=True)
class Blockwise(Primitive):
    """The block of keys at the query, and a number of blocks before and after it.

    Parameters
    ----------
    block_size : int
    back, ahead : int
        Number of blocks before and after the block of the query.

    Raises
    ------
    ValueError
        If `block_size` is less than 1, or `back` or `ahead` is negative.

    See Also
    --------
    Blocks : A block mask.
    Window : A sliding window.

    References
    ----------
    Qiu et al., "Blockwise Self-Attention for Long Document Understanding", 2020.

    Examples
    --------
    >>> from headspan.patterns import Blockwise
    >>> Blockwise(2, back=1).mask(6).astype(int)[3]
    array([1, 1, 1, 1, 0, 0])
    """

    block_size: int
    back: int = 0
    ahead: int = 0
    _name = "blockwise"

    def __post_init__(self) -> None:
        self._check_integer("block_size", at_least=1)
        self._check_integer("back", at_least=0)
        self._check_integer("ahead", at_least=0)

    @property
    def default_causal(self) -> bool | None:
        return True if self.ahead == 0 else None

    def _numbers(self) -> list[int]:
        block_size = min(self.block_size, MAX_TOKENS)
        return [block_size, *(min(n, MAX_TOKENS // block_size + 1) for n in (self.back, self.ahead))]


@dataclass(frozen=True)
class Global(Primitive):
    """Global tokens, which see all tokens and are seen by all tokens. Spans do not limit their pairs.

    Parameters
    ----------
    tokens : int or iterable of int
        Indices among the keys, shared by all batch items; or an array of shape (batch, n), or one list per batch item.

    Raises
    ------
    ValueError
        If an index is negative; when the pattern is used, if an index is beyond the keys.

    See Also
    --------
    Full : Every pair.
    Window : A sliding window.

    References
    ----------
    Beltagy et al., "Longformer: The Long-Document Transformer", 2020, section 3.1.

    Examples
    --------
    >>> from headspan.patterns import Global, Window
    >>> (Window(2) | Global(0)).mask(5).astype(int)[-1]
    array([1, 0, 0, 1, 1])
    >>> (Window(2) | Global([[0], [2, 3]])).mask(5).astype(int)[:, -1]
    array([[1, 0, 0, 1, 1],
           [0, 0, 1, 1, 1]])
    """

    tokens: tuple[int, ...] | tuple[tuple[int, ...], ...]
    _name = "global"

    def __init__(self, tokens: int | Iterable[int] | Iterable[Iterable[int]]) -> None:
        if isinstance(tokens, np.ndarray) and tokens.ndim == 0:
            tokens = tokens.item()
        entries: list[Any] = list(tokens) if isinstance(tokens, Iterable) else [tokens]
        has_rows = bool(entries) and all(_is_row(entry) for entry in entries)
        object.__setattr__(self, "tokens", tuple(map(_ascending, entries)) if has_rows else _ascending(entries))

    @property
    def _rows(self) -> list[tuple[int, ...]]:
        """The tokens of each batch item; empty if all share them."""
        return [entry for entry in self.tokens if isinstance(entry, tuple)]

    @property
    def items(self) -> int | None:
        return len(self._rows) or None

    def part(self, item: int, head: int) -> Pattern:
        return Global(self._rows[item]) if self._rows else self

    def with_globals_below(self, keys: int) -> Pattern:
        if self._rows:
            return Global([[token for token in row if token < keys] for row in self._rows])
        return Global(token for token in self.global_tokens if token < keys)

    def _check_size(self, queries: int, keys: int, global_tokens: tuple[int, ...]) -> None:
        tokens = self.global_tokens
        if tokens and tokens[-1] >= keys:
            raise ValueError(f"tokens of Global must be below the number of keys, {keys}, not {tokens[-1]}")

    @property
    def global_tokens(self) -> tuple[int, ...]:
        return tuple(sorted({token for row in self.tokens for token in (row if isinstance(row, tuple) else (row,))}))

    def _numbers(self) -> list[int]:
        return list(self.global_tokens)


@dataclass(frozen=True)
class Random(Primitive):
    """Distinct blocks of keys, drawn at random for every block of queries, but the same in every run.

    Parameters
    ----------
    blocks : int
        Number of blocks per block of queries; fewer if not enough exist.
    block_size : int
    seed : int
    per_head : bool
        Whether every head has a separate draw, for any number of heads.
    avoid : Pattern, optional
        Pattern to which the random blocks are added. Blocks that contain a pair of it are not drawn, so each block adds
        all its keys, as in BigBird, where window, global tokens and random blocks are disjoint. Queries that see every
        key by this pattern, such as global tokens, are ignored. Without `avoid`, ``|`` joins parts that may overlap.

    Raises
    ------
    ValueError
        If `blocks` or `block_size` is less than 1, or `seed` is negative or at least 2**63.

    See Also
    --------
    Blocks : A block mask.
    Strided : Every n-th key.

    References
    ----------
    Zaheer et al., "Big Bird: Transformers for Longer Sequences", 2020, section 2 and appendix D.

    Examples
    --------
    >>> from headspan.patterns import Blockwise, Random
    >>> Random(2, block_size=4, seed=0).mask(16).sum(axis=1).min()
    np.int64(8)
    >>> seen = Blockwise(4, back=1)
    >>> bigbird = seen | Random(2, block_size=4, per_head=True, avoid=seen)
    >>> bigbird.mask(32, num_heads=3)[:, 4:].sum(axis=2).min()  # of four different blocks
    np.int64(16)
    """

    blocks: int
    block_size: int
    seed: int = 0
    per_head: bool = field(default=False, kw_only=True)
    avoid: Pattern | None = field(default=None, kw_only=True)
    _name = "random"

    def __post_init__(self) -> None:
        self._check_integer("blocks", at_least=1)
        self._check_integer("block_size", at_least=1)
        if self._check_integer("seed", at_least=0) >= 2**63:
            raise ValueError(f"seed of Random must be below 2**63, not {self.seed}")
        object.__setattr__(self, "per_head", _check.flag("per_head of Random", self.per_head))
        if self.avoid is not None and not isinstance(self.avoid, Pattern):
            raise TypeError(f"avoid of Random must be a Pattern, not {_check.describe(self.avoid)}")

    @property
    def items(self) -> int | None:
        return None if self.avoid is None else self.avoid.items

    @property
    def heads(self) -> int | None:
        return None if self.avoid is None else self.avoid.heads

    @property
    def _differs_by_head(self) -> bool:
        return self.per_head or (self.avoid is not None and self.avoid._differs_by_head)

    def part(self, item: int, head: int) -> Pattern:
        seed = _seed_of_head(self.seed, head) if self.per_head else self.seed
        avoid = None if self.avoid is None else self.avoid.part(item, head)
        return Random(self.blocks, self.block_size, seed, avoid=avoid)

    def _check_size(self, queries: int, keys: int, global_tokens: tuple[int, ...]) -> None:
        if self.avoid is not None:
            self.avoid.check_tokens(queries, keys)

    def _avoided(self) -> Pattern | None:
        return self.avoid

    def _numbers(self) -> list[int]:
        return [min(self.blocks, MAX_TOKENS), min(self.block_size, MAX_TOKENS), self.seed]


def _is_row(tokens: object) -> bool:
    return isinstance(tokens, Iterable) and not isinstance(tokens, str) and getattr(tokens, "ndim", 1) > 0


def _ascending(tokens: Iterable[Any]) -> tuple[int, ...]:
    return tuple(sorted({_check.integer("tokens of Global", token, at_least=0) for token in tokens}))


def _seed_of_head(seed: int, head: int) -> int:
    """Return the seed of a head: the element `head` of SplitMix64 (Steele et al., 2014) started at `seed`."""
    z = (seed + (head + 1) * 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return (z ^ (z >> 31)) >> 1  # a seed has 63 bits
