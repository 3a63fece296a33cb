"""A pattern of any pairs, from a mask in any of several forms or from a function."""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from headspan import _check
from headspan.patterns.base import Pattern, Primitive
from headspan.patterns.blocks import Blocks
from headspan.patterns.tiles import Grid, Integers, Tiles, of_dense, of_function, of_packed, of_sparse


@dataclass(frozen=True, eq=False, repr=False)
class Mask(Primitive):
    """Any pairs: a query sees the keys for which a mask of all pairs is true.

    The mask is kept as tiles of 64 queries and 64 keys, with a bit for each pair, and without bits for tiles that are
    full. Time and memory follow the tiles that have a pair. Make the pattern once and use it in many calls. If a rule
    describes the pairs, such as `Window`, or segments and ranges of keys in the arguments of `headspan.attention`, the
    rule is faster to make, and it is not tied to a number of tokens.

    Parameters
    ----------
    allowed : array_like of bool, sparse matrix, array of uint8, callable, or str
        - The mask, of shape (tokens, key_tokens). With `per_head`, one mask per head. An additional leading axis, or a
          list of such masks, has one entry per batch item.
        - A sparse matrix of SciPy, of the same shape, whose entries other than 0 are the pairs, or lists of them.
        - Bits, as ``numpy.packbits(mask, axis=-1)`` packs them, together with `key_tokens`.
        - A function of query and key indices, together with `tokens`. It is called with a column of queries and a row
          of keys, and returns an array of bool for all their pairs. Indices of both start at 0.
        - A text, from the pattern's `to_spec`.
    tokens, key_tokens : int, optional
        Numbers of queries and keys, for a function; default of `key_tokens`: `tokens`. For bits, only `key_tokens`.
    blocks : Blocks, optional
        Pattern outside of which a function is not called, and no pair is allowed.
    per_head : bool
        Whether the mask has one entry per head.

    Raises
    ------
    ValueError
        If a shape is wrong. When the pattern is used, if the number of keys is not that of the mask, or if there are
        more queries. If there are fewer, they are the last ones.
    TypeError
        If the mask is not of bool, or the function does not return bool.

    See Also
    --------
    Blocks : A block mask.
    headspan.cost : Counts the pairs of a pattern.

    Examples
    --------
    >>> import numpy as np
    >>> from headspan.patterns import Mask
    >>> Mask(np.array([[True, False], [True, True]])).mask(2).astype(int)
    array([[1, 0],
           [1, 1]])
    >>> Mask(lambda query, key: (query - key) % 3 == 0, tokens=4).mask(4).astype(int)
    array([[1, 0, 0, 1],
           [0, 1, 0, 0],
           [0, 0, 1, 0],
           [1, 0, 0, 1]])
    """

    tiles: tuple[tuple[Tiles, ...], ...] = field(init=False)  # per batch item and head
    shape: tuple[int, int] = field(init=False)  # queries and keys
    per_head: bool = False
    per_item: bool = field(init=False)
    _name = "mask"

    def __init__(
        self,
        allowed: Any,
        *,
        tokens: int | None = None,
        key_tokens: int | None = None,
        blocks: Blocks | None = None,
        per_head: bool = False,
    ) -> None:
        object.__setattr__(self, "per_head", _check.flag("per_head", per_head))
        if isinstance(allowed, str):
            self._read(allowed)
            return
        if callable(allowed):
            if self.per_head:
                raise ValueError("a Mask of a function is for all heads; pass a list of patterns, one for each head")
            rows = [[_from_function(allowed, tokens, key_tokens, blocks)]]
            per_item = False
        else:
            for name, value in (("tokens", tokens), ("blocks", blocks)):
                if value is not None:
                    raise TypeError(f"{name} is for a Mask of a function, not of {_check.describe(allowed)}")
            rows, per_item = _from_masks(allowed, key_tokens, self.per_head)
        shapes = {shape for row in rows for shape, _ in row}
        if len(shapes) != 1 or len({len(row) for row in rows}) != 1:
            raise ValueError("the masks of Mask must have the same shape for all batch items and heads")
        self._set(shapes.pop(), tuple(tuple(tiles for _, tiles in row) for row in rows), per_item)

    def _set(self, shape: tuple[int, int], tiles: tuple[tuple[Tiles, ...], ...], per_item: bool) -> None:
        for row in tiles:
            for part in row:
                for array in part[1:]:
                    array.flags.writeable = False  # patterns are hashable
        for name, value in {"shape": shape, "tiles": tiles, "per_item": per_item}.items():
            object.__setattr__(self, name, value)

    def _read(self, text: str) -> None:
        try:
            data = zlib.decompress(base64.b85decode(text))
            numbers = np.frombuffer(data, "<i8").astype(np.int64)
            queries, keys, items, heads, per_item, per_head = numbers[:6].tolist()
            sizes = numbers[6 : 6 + items * heads]
            parts = np.split(numbers[6 + items * heads :], np.cumsum(sizes))[:-1]
            tiles = [Tiles.from_numbers(part) for part in parts]
            rows = tuple(tuple(tiles[item * heads : (item + 1) * heads]) for item in range(items))
        except (ValueError, IndexError, zlib.error):
            raise ValueError("the text of a Mask must be one that to_spec returned") from None
        object.__setattr__(self, "per_head", bool(per_head))
        self._set((queries, keys), rows, bool(per_item))

    @cached_property
    def _text(self) -> str:
        parts = [part.numbers() for row in self.tiles for part in row]
        head = [*self.shape, len(self.tiles), len(self.tiles[0]), self.per_item, self.per_head, *map(len, parts)]
        numbers = np.concatenate([np.array(head, np.int64), *parts]).astype("<i8")
        return base64.b85encode(zlib.compress(numbers.tobytes(), 1)).decode()

    @property
    def items(self) -> int | None:
        return len(self.tiles) if self.per_item else None

    @property
    def heads(self) -> int | None:
        return len(self.tiles[0]) if self.per_head else None

    @cached_property
    def default_causal(self) -> bool | None:
        return None if any(part.looks_ahead for row in self.tiles for part in row) else True

    def part(self, item: int, head: int) -> Pattern:
        if not (self.per_item or self.per_head):
            return self
        return self._parts[item if self.per_item else 0][head if self.per_head else 0]

    @cached_property
    def _parts(self) -> list[list[Mask]]:
        return [[self._part(tiles) for tiles in row] for row in self.tiles]

    def _part(self, tiles: Tiles) -> Mask:
        return mask_of_tiles(self.shape, [[tiles]], per_item=False, per_head=False)

    def _check_size(self, queries: int, keys: int, global_tokens: tuple[int, ...]) -> None:
        if keys != self.shape[1] or queries > self.shape[0]:
            raise ValueError(
                f"Mask of shape {self.shape} is for {self.shape[1]} keys and up to {self.shape[0]} queries, "
                f"not for {keys} and {queries}"
            )

    def _numbers(self) -> Integers:
        ((tiles,),) = self.tiles
        return tiles.numbers()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mask) or self._brief_key() != other._brief_key():
            return False
        pairs = zip(self._arrays(), other._arrays(), strict=True)
        return all(one is another or np.array_equal(one, another) for one, another in pairs)

    def __hash__(self) -> int:
        return hash(self._brief_key())

    def _brief_key(self) -> tuple[Any, ...]:
        """Return a cheap hash key: the sizes and a sample of the numbers, which may be many."""
        some = tuple((array.shape, array.ravel()[:: array.size // 64 + 1].tobytes()) for array in self._arrays())
        firsts = tuple(tuple(part.first_row for part in row) for row in self.tiles)
        return some, firsts, self.shape, self.per_item, self.per_head

    def _arrays(self) -> list[Integers]:
        return [array for row in self.tiles for part in row for array in part[1:]]

    def __repr__(self) -> str:
        return f"Mask('{self._text}')"

    def _brief(self) -> str:
        return f"Mask({' x '.join(map(str, self.shape))}{', per_head=True' if self.per_head else ''})"


def mask_of_tiles(shape: tuple[int, int], tiles: Sequence[Sequence[Tiles]], *, per_item: bool, per_head: bool) -> Mask:
    """Return the pattern of the tiles of each batch item and head."""
    mask = object.__new__(Mask)
    object.__setattr__(mask, "per_head", per_head)
    mask._set(shape, tuple(tuple(row) for row in tiles), per_item)
    return mask


_Sized = tuple[tuple[int, int], Tiles]


def _from_function(
    function: Callable[[Any, Any], Any], tokens: int | None, key_tokens: int | None, blocks: Blocks | None
) -> _Sized:
    if tokens is None:
        raise TypeError("tokens must be given for a Mask of a function")
    queries = _check.integer("tokens of Mask", tokens, at_least=1)
    keys = queries if key_tokens is None else _check.integer("key_tokens of Mask", key_tokens, at_least=1)
    if blocks is not None:
        if not isinstance(blocks, Blocks) or not blocks.is_shared:
            raise TypeError(
                f"blocks of Mask must be Blocks for all batch items and heads, not {_check.describe(blocks)}"
            )
        if queries > keys:
            raise ValueError(f"blocks of Mask are for at most as many queries as keys, not {queries} and {keys}")
        blocks.check_tokens(queries, keys)
    return (queries, keys), of_function(function, Grid(queries, keys), blocks)


def _from_masks(allowed: Any, key_tokens: int | None, per_head: bool) -> tuple[list[list[_Sized]], bool]:
    """Return the tiles of each batch item and head, and whether items have masks of their own."""
    keys = None if key_tokens is None else _check.integer("key_tokens of Mask", key_tokens, at_least=1)
    depth = _depth(allowed)
    if depth not in (per_head, per_head + 1):
        axes = "heads, tokens, key_tokens" if per_head else "tokens, key_tokens"
        kind, shape = " per head" if per_head else "", getattr(allowed, "shape", f"one of {depth + 2} axes")
        raise ValueError(f"Mask{kind} must have the shape ({axes}) or (batch, {axes}), not {shape}")
    per_item = depth == per_head + 1
    items = list(allowed) if per_item else [allowed]
    rows = [[_from_mask(mask, keys) for mask in (item if per_head else [item])] for item in items]
    if not rows or not rows[0]:
        raise ValueError("Mask must have at least one batch item and one head")
    return rows, per_item


def _depth(allowed: Any) -> int:
    """Return the number of axes of a mask before that of its queries."""
    if hasattr(allowed, "tocsr"):
        return 0
    if isinstance(allowed, list | tuple) and allowed and (hasattr(allowed[0], "tocsr") or _depth(allowed[0]) >= 0):
        return 1 + _depth(allowed[0])
    return np.ndim(allowed) - 2


def _from_mask(mask: Any, keys: int | None) -> _Sized:
    if hasattr(mask, "tocsr"):
        if mask.ndim != 2:
            raise ValueError(f"Mask must have the shape (tokens, key_tokens), not {mask.shape}")
        return _sized(mask.shape, lambda: of_sparse(mask))
    array = _check.as_array("Mask", mask)
    if array.ndim != 2:
        raise ValueError(f"Mask must have the shape (tokens, key_tokens), not {array.shape}")
    if array.dtype == np.uint8 and keys is not None:
        return _sized((len(array), keys), lambda: of_packed(array, keys))
    if keys is not None:
        raise TypeError("key_tokens is for a Mask of a function or of bits, which are an array of uint8")
    if array.dtype != np.bool_:
        raise TypeError(f"Mask must be of bool, not {array.dtype}")
    return _sized(array.shape, lambda: of_dense(array))


def _sized(shape: tuple[int, ...], make: Callable[[], Tiles]) -> _Sized:
    if math.prod(shape) == 0:
        raise ValueError(f"Mask must have at least one query and one key, not the shape {tuple(shape)}")
    return (int(shape[0]), int(shape[1])), make()
