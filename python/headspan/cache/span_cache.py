"""Keys and values of a text that is continued token by token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan._check import Array
from headspan.cache import given
from headspan.cache.limits import Limits
from headspan.cache.rings import Rings
from headspan.ops.arguments import narrow
from headspan.ops.arguments.request import Request
from headspan.ops.functional import forward
from headspan.ops.storage import storage_of
from headspan.patterns.base import Pattern

# What may be given for each query; the others say what the cache has to keep, and are its own.
_OPTIONS = frozenset(
    ["scale", "temperature", "alibi_slopes", "softcap", "sinks", "memory_key", "memory_value", "include_self"]
) | {"key_begin", "key_lengths", "distance_bias", "distance_buckets", "dropout", "seed"}
# What a state has: arguments of the constructor, and what there is.
_SIZES = ("batch", "key_heads", "head_dim")
_CONTENTS = ("count", "first", "keys", "values")
_STATE = (*_SIZES, "value_dim", "spans", "ramp", "pattern", "dtype", "sink_tokens", "slack", *_CONTENTS)


class SpanCache:
    """Keys and values that are as long for every key head as its heads can see.

    A text of any length needs the memory of the spans: what no head that shares a key head can reach any more is
    overwritten. Attention over the cache gives the numbers of `headspan.attention` over all keys.

    Parameters
    ----------
    batch, key_heads, head_dim : int
    spans : array_like, shape (heads,), optional
        As `span` of `headspan.attention`, one for each head; heads are a multiple of the key heads. None: without
        limit, for as many heads as key heads, and the cache grows.
    ramp : float
        As for `headspan.attention`.
    pattern : Pattern or list of Pattern, optional
        As for `headspan.attention`. `Local`, `Blockwise` and what is made of them with `Global` bound what is kept, as
        spans do; global tokens are kept for good. Until the last of them has come all tokens are kept, for it sees
        all that are before it. A pattern that looks ahead is refused.
    dtype : dtype or str
        As what keys and values are kept: float32 or float64, in which queries, keys and values are given then; or
        float16, bfloat16 or int8, a half and a quarter of the bytes, computed with in float32. Wherever that is so,
        float16 and ml_dtypes' bfloat16 may be given, too, and results have the type of query. int8 rows have a scale
        each, the largest number of the row divided by 127.
    value_dim : int, optional
        head_dim of the values; that of the keys unless given.
    sink_tokens : int
        So many first tokens are kept and seen at any distance, as if by ``| Global(range(sink_tokens))``.
    slack : int
        How many tokens may be taken back by `truncate`, or appended before they attend.

    Attributes
    ----------
    count : int
        Tokens so far.
    nbytes : int
        Memory of keys and values.
    spans : ndarray or None
        May be set to shorter ones while the text goes on.

    Raises
    ------
    ValueError
        For a wrong shape or value.
    TypeError
        For a wrong type.

    Notes
    -----
    A key head has a ring of ``reach + 1 + slack`` rows, reach being the furthest of its heads', ``span + ramp``; one
    without limit has pages, which beams share (Kwon et al., "PagedAttention", SOSP 2023, section 4.4). Sinks: Xiao et
    al., "Efficient Streaming Language Models with Attention Sinks", ICLR 2024, section 3.2; a window for each head:
    Xiao et al., "DuoAttention", ICLR 2025, section 2.3.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> rng = np.random.default_rng(0)
    >>> q, k, v = rng.standard_normal((3, 1, 2, 100, 16)).astype(np.float32)
    >>> cache = hs.SpanCache(1, 2, 16, spans=[4, 30], ramp=8)
    >>> prompt = cache.attend(q[:, :, :90], k[:, :, :90], v[:, :, :90])
    >>> for i in range(90, 100):
    ...     out = cache.attend(q[:, :, [i]], k[:, :, [i]], v[:, :, [i]])
    >>> whole = hs.attention(q, k, v, span=[4, 30], ramp=8)
    >>> bool(np.allclose(out, whole[:, :, -1:], atol=1e-6)), cache.count, cache.nbytes
    (True, 100, 6400)
    """

    def __init__(
        self,
        batch: int,
        key_heads: int,
        head_dim: int,
        *,
        spans: npt.ArrayLike | None = None,
        ramp: float = 32,
        pattern: Pattern | Sequence[Pattern] | None = None,
        dtype: npt.DTypeLike = np.float32,
        value_dim: int | None = None,
        sink_tokens: int = 0,
        slack: int = 0,
    ) -> None:
        self._batch, self._key_heads, self._dims = given.sizes(batch, key_heads, head_dim, value_dim)
        self._kept_as, storage = storage_of(dtype)
        self._dtype = storage.arithmetic
        self._slack = _check.integer("slack", slack, at_least=0)
        self._limits = Limits(self._key_heads, spans, ramp, pattern, sink_tokens, self._dtype)
        self._row = np.zeros(max(self._dims), self._dtype)
        self._rings = Rings(self._batch, self._dims, storage, self._capacities(self._limits, 0), self._limits.kept)

    @property
    def count(self) -> int:
        """Tokens so far."""
        return self._rings.count

    @property
    def nbytes(self) -> int:
        """Memory of keys and values."""
        return self._rings.nbytes

    @property
    def spans(self) -> npt.NDArray[np.float64] | None:
        """Spans of the heads."""
        return None if self._limits.spans is None else self._limits.spans.copy()

    @spans.setter
    def spans(self, spans: npt.ArrayLike) -> None:
        limits = self._limits.shortened(spans)
        self._rings.shorten(self._capacities(limits, self.count))
        self._limits = limits

    def append(self, key: npt.ArrayLike, value: npt.ArrayLike) -> None:
        """Add tokens.

        Parameters
        ----------
        key, value : array_like, shape (batch, key_heads, tokens, dims)

        Raises
        ------
        ValueError
            For a wrong shape; the cache is then as before.
        TypeError
            For a wrong type.
        MemoryError
            If heads without limit outgrow the memory; the cache is then as before.
        """
        self._keep(*self._checked_rows(key, value))

    def attend(
        self,
        query: npt.ArrayLike,
        key: npt.ArrayLike | None = None,
        value: npt.ArrayLike | None = None,
        *,
        span: npt.ArrayLike | None = None,
        clip: bool = False,
        return_lse: bool = False,
        **options: Any,
    ) -> Any:
        """Attend to all tokens, the new ones among them, and add these.

        Parameters
        ----------
        query : array_like, shape (batch, heads, tokens, head_dim)
            Of the last tokens.
        key, value : array_like, shape (batch, key_heads, new tokens, dims), optional
            Tokens to be added, any number of them: a prompt, a piece of one, or a single token. Without them the
            queries are of tokens that were added before.
        span : array_like, optional
            Other spans than those of the cache, not reaching further; the shapes of `headspan.attention`.
        clip : bool
            Whether spans that reach further are cut down to those of the cache, and no error.
        return_lse : bool
        **options
            scale, temperature, alibi_slopes, softcap, sinks, memory_key, memory_value, include_self, key_begin,
            key_lengths, distance_bias, distance_buckets, dropout and seed, as for `headspan.attention`.

        Returns
        -------
        out : ndarray, shape (batch, heads, tokens, value_dim)
        lse : ndarray, shape (batch, heads, tokens)
            Only with `return_lse`.

        Raises
        ------
        ValueError
            For a wrong shape or value, or for a query that reaches what is no longer there; the cache is then as
            before.
        TypeError
            For a wrong type or option.
        """
        given.refuse_others(options, _OPTIONS, "a cache")
        with_lse, clip = _check.flag("return_lse", return_lse), _check.flag("clip", clip)
        query, narrow_type = given.query_of(query)
        new = None if key is None and value is None else self._checked_rows(key, value)
        count = self.count + (0 if new is None else new[0].shape[2])
        if count == 0:
            which = "no key is given" if new is None else "key has 0 tokens"
            raise ValueError(f"attend needs a token, but the cache is empty and {which}")
        keys, values = (self._virtual_rows(count, dim) for dim in self._dims)
        tokens = query.shape[2] if query.ndim == 4 else 0
        spans = self._limits.spans_of((self._batch, tokens), span, clip, count, self._rings.first)
        own = {"span": spans, "ramp": self._limits.ramp, "pattern": self._limits.pattern_of(count)}
        cache = {"cache": self._rings.core} | ({} if new is None else {"new_key": new[0], "new_value": new[1]})
        request = Request(query, keys, values, {**own, **options}, for_core=cache)
        out, lse, _ = forward(request, with_lse=with_lse, with_saved=False)
        if new is not None:
            self._keep(*new)
        if narrow_type is not None:
            out = narrow.narrowed(out, narrow_type)
        return (out, lse) if with_lse else out

    def truncate(self, count: int) -> None:
        """Take the last tokens back, so that `count` are left.

        Raises
        ------
        ValueError
            If more are taken back than `slack` allows and the next token would miss some; the cache is then as before.
        """
        count = _check.integer("count", count, at_least=0)
        if count > self.count:
            raise ValueError(f"count must be at most the {self.count} tokens that there are, not {count}")
        for head, first in enumerate(self._rings.first):
            if first > self._limits.oldest_needed(head, count):
                raise ValueError(
                    f"count must leave what the next token can see, which key head {head} no longer has for {count}; "
                    f"slack={self._slack} is how many tokens can be taken back at any time"
                )
        self._rings.truncate(count)

    def reorder(self, items: npt.ArrayLike) -> None:
        """Let batch item i go on from what item ``items[i]`` was, as beams do; there may be more or fewer than before.

        Raises
        ------
        ValueError
            For an item that is not there; the cache is then as before.
        TypeError
            For what is no list of integers.
        """
        index = _check.as_array("items", items)
        if index.dtype.kind not in "iu" or index.ndim != 1 or index.size == 0:
            raise TypeError(f"items must be integers, one for each batch item, not {_check.describe(items)}")
        if not 0 <= index.min() <= index.max() < self._batch:
            wrong = index.min() if index.min() < 0 else index.max()
            raise ValueError(f"items must lie between 0 and {self._batch - 1}, not be {wrong}")
        self._rings.reorder(index)
        self._batch = index.size

    def copy(self) -> Self:
        """Return a cache of its own that goes on from here."""
        return type(self).from_state_dict(self.state_dict())

    def __reduce__(self) -> tuple[Any, ...]:  # for pickle and copy.deepcopy: what the core has is no object of Python
        return type(self).from_state_dict, (self.state_dict(),)

    def state_dict(self) -> dict[str, Any]:
        """Return all there is to it: numbers, arrays, lists of arrays, and patterns as text."""
        pattern = self._limits.given_pattern
        keys, values = self._rings.state()
        specs = [its.to_spec() for its in ([pattern] if isinstance(pattern, Pattern) else pattern or [])]
        return {
            "batch": self._batch,
            "key_heads": self._key_heads,
            "head_dim": self._dims[0],
            "value_dim": self._dims[1],
            "spans": self.spans,
            "ramp": self._limits.ramp,
            "pattern": specs[0] if isinstance(pattern, Pattern) else specs or None,
            "dtype": self._kept_as,
            "sink_tokens": self._limits.sink_tokens,
            "slack": self._slack,
            "count": self.count,
            "first": self._rings.first,
            "keys": keys,
            "values": values,
        }

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Self:
        """Make a cache of what `state_dict` gave."""
        state = given.of_state("SpanCache", state, _STATE)
        count, first, keys, values = (state.pop(name) for name in _CONTENTS)
        sizes = [state.pop(name) for name in _SIZES]
        pattern = state.pop("pattern")
        if pattern is not None:
            read = Pattern.from_spec
            pattern = read(pattern) if isinstance(pattern, str) else [read(spec) for spec in pattern]
        cache = cls(*sizes, pattern=pattern, **state)
        cache._rings.shorten(cache._capacities(cache._limits, count))
        cache._rings.load(keys, values, count, first)
        return cache

    def _virtual_rows(self, count: int, dim: int) -> Array:
        """Stand for all keys or values there have been, of which the request has to know the shape."""
        strides = (0, 0, 0, self._row.itemsize)
        return np.ndarray((self._batch, self._key_heads, count, dim), self._dtype, self._row, 0, strides)

    # ---- what is given

    def _checked_rows(self, key: object, value: object) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return new rows as they are kept."""
        own = given.rows(key, value, self._batch, self._key_heads, self._dims, self._dtype)
        return self._rings.encoded(own[0]), self._rings.encoded(own[1])

    def _keep(self, key: npt.NDArray[Any], value: npt.NDArray[Any]) -> None:
        """Add rows as they are kept; once the last global token has come, let go of what it alone could see."""
        self._rings.append(key, value)
        self._rings.shorten(self._capacities(self._limits, self.count))

    def _capacities(self, limits: Limits, count: int) -> list[int]:
        """Return how many rows each key head keeps of so many tokens."""
        return [reach + 1 + self._slack for reach in limits.kept_back(count, self._slack)]
