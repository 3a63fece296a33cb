"""What a view shows: checked arrays, how the browser gets them, and maps pooled for long inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan.ops.arguments.request import Request
from headspan.ops.attention_map import attention_weights
from headspan.ops.cost import cost
from headspan.patterns.base import Pattern
from headspan.patterns.per_head import per_head

Array = npt.NDArray[Any]

BLOCKS = 128  # of a pooled map, along each side


@dataclass(frozen=True)
class ViewData:
    """The heads of one view.

    Attributes
    ----------
    query, key : ndarray, shape (heads, tokens, head_dim)
        Of the heads shown; each has a key of its own.
    norms : ndarray, shape (heads, key tokens), or None
        Length of every value.
    value_dim : int
    span : list of float
        One a head, no larger than the number of keys.
    ramp : float
    tokens : list of str, or None
        Of all keys.
    heads : list of int
        Their indices in the query, from 0.
    names : list of str
        What the heads are called, counted from 1 as in all pictures.
    pool : (int, int), or None
        Queries and keys in a block of a map; None if the browser computes the weights.
    patterns : list of Pattern
        None, one for all heads, or one for each.
    unit : str
        What the model reads, in the plural.
    """

    query: Array
    key: Array
    norms: Array | None
    value_dim: int
    span: list[float]
    ramp: float
    tokens: list[str] | None
    heads: list[int]
    names: list[str]
    pool: tuple[int, int] | None
    patterns: list[Pattern] = field(default_factory=list)
    unit: str = "tokens"

    @classmethod
    def checked(
        cls,
        query: npt.ArrayLike,
        key: npt.ArrayLike,
        value: npt.ArrayLike | None,
        span: npt.ArrayLike | None,
        ramp: float,
        tokens: Sequence[str] | None,
        heads: Sequence[int] | None,
        max_tokens: int,
        pattern: Pattern | Sequence[Pattern] | None = None,
        unit: str = "tokens",
    ) -> ViewData:
        """Check the arguments of `headspan.explore`."""
        request = Request(query, key, key if value is None else value, {"span": span, "ramp": ramp})
        batch, count, queries, _ = request.query.shape
        keys = request.key.shape[2]
        if batch != 1:
            raise ValueError(f"query must be one item of a batch, not {batch}; query[0] is the first")
        if queries == 0:
            raise ValueError(f"query must have at least one token, not shape {request.query.shape}")
        shown = _shown_heads(heads, count)
        own_key = np.array(shown) // (count // request.key.shape[1])
        limit = _check.integer("max_tokens", max_tokens, at_least=1)
        norms = None if value is None else np.linalg.norm(request.value[0], axis=-1)[own_key]
        return cls(
            query=request.query[0, shown],
            key=request.key[0, own_key],
            norms=norms,
            value_dim=request.value.shape[-1],
            span=_one_a_head(request, count, keys)[shown].tolist(),
            ramp=float(ramp),
            tokens=_check.token_texts(tokens, keys),
            heads=shown,
            names=[f"head {number + 1}" for number in shown],
            patterns=_shown_patterns(per_head(pattern, count, queries, keys), shown),
            pool=None if max(queries, keys) <= limit else (-(-queries // BLOCKS), -(-keys // BLOCKS)),
            unit=str(unit),
        )

    @property
    def meta(self) -> dict[str, Any]:
        """Sizes and texts, as the browser gets them."""
        heads, queries, dim = self.query.shape
        assert heads == len(self.heads)
        return {
            "heads": self.heads,
            "names": self.names,
            "queries": queries,
            "keys": self.key.shape[1],
            "dim": dim,
            "valueDim": self.value_dim,
            "itemsize": self.query.itemsize,
            "scale": dim**-0.5,
            "tokens": self.tokens,
            "pool": self.pool,
            "unit": self.unit,
            "patterns": [_described(pattern) for pattern in self.patterns] or None,
        }

    @property
    def arrays(self) -> dict[str, bytes]:
        """Arrays for the browser to compute with, as the bytes of float32; none if it gets pooled maps."""
        computes = self.pool is None
        return {
            "query": _float32(self.query) if computes else b"",
            "key": _float32(self.key) if computes else b"",
            "norms": b"" if self.norms is None or not computes else _float32(self.norms),
            "allowed": b"".join(map(self._bits, self.patterns)) if computes else b"",
        }

    def map_of(self, index: int, span: float, ramp: float, temperature: float) -> bytes:
        """Pooled map of a head as the bytes of float32; nothing if the browser computes."""
        if self.pool is None:
            return b""
        pattern = self.patterns[min(index, len(self.patterns) - 1)] if self.patterns else None
        options: dict[str, Any] = {"span": span, "ramp": ramp, "temperature": temperature, "pattern": pattern}
        return _float32(attention_weights(self.query[index], self.key[index], pool=self.pool, **options))

    def counts(self, span: list[float], ramp: float) -> list[list[int]]:
        """Pairs of every head and those of its last query; nothing if the browser counts."""
        if self.pool is None or not self.patterns:
            return []
        heads, queries, dim = self.query.shape
        sizes: dict[str, Any] = {"key_tokens": self.key.shape[1], "heads": heads, "head_dim": dim}
        both = [
            cost(tokens=rows, span=span, ramp=ramp, pattern=self._pattern, **sizes).head_pairs.tolist()
            for rows in (queries, 1)
        ]
        return [list(pairs) for pairs in zip(*both, strict=True)]

    @property
    def _pattern(self) -> Pattern | list[Pattern] | None:
        return self.patterns if len(self.patterns) > 1 else next(iter(self.patterns), None)

    def _bits(self, pattern: Pattern) -> bytes:
        """Return the pairs a pattern allows, a bit each, the first lowest in its byte."""
        return np.packbits(pattern.mask(self.query.shape[1], self.key.shape[1]), bitorder="little").tobytes()


def _shown_patterns(patterns: list[Pattern], shown: list[int]) -> list[Pattern]:
    """Patterns of the heads shown; one alone if they share it."""
    own = patterns if len(patterns) < 2 else [patterns[head] for head in shown]
    return own[:1] if all(pattern == own[0] for pattern in own) else own


def _described(pattern: Pattern) -> dict[str, Any]:
    """Return what the browser has to know of a pattern besides its pairs."""
    return {
        "name": pattern.short_name(),
        "free": list(pattern.global_tokens),
        "grid": list(pattern.grid) or None,
    }


def _float32(array: Array) -> bytes:
    return np.ascontiguousarray(array, dtype="<f4").tobytes()


def _shown_heads(heads: Sequence[int] | None, count: int) -> list[int]:
    if heads is None:
        return list(range(count))
    given = _check.sequence("heads", heads, "integers")
    shown = [_check.integer("heads", head, at_least=0) for head in given]
    if not shown or max(shown) >= count or len(set(shown)) < len(shown):
        raise ValueError(f"heads must be different numbers from 0 to {count - 1}, not {_check.describe(given)}")
    return shown


def _one_a_head(request: Request, heads: int, keys: int) -> npt.NDArray[np.float64]:
    if "span" not in request.parameters:
        return np.full(heads, float(keys))
    array = request.parameters["span"].array
    if array.shape[2] != 1:
        raise ValueError(
            f"span must be one number a head for a view, not of shape {request.parameters['span'].shape}; "
            "headspan.plot.dynamic_spans draws spans of every token"
        )
    return np.minimum(np.broadcast_to(array[0, :, 0], (heads,)).astype(np.float64), keys)
