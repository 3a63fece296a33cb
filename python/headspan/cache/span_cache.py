"""A cache of keys and values for token-by-token generation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, overload

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan._check import Array
from headspan._help import described
from headspan.cache import arguments
from headspan.cache.limits import Limits
from headspan.cache.rings import Rings
from headspan.ops.arguments.options import options_in, refuse_unknown
from headspan.ops.arguments.rows import In
from headspan.ops.execution import narrow
from headspan.ops.execution.functional import forward
from headspan.ops.execution.request import Request
from headspan.ops.storage import storage_of
from headspan.patterns.base import Pattern

# Options that may differ between calls. All other options decide what the cache keeps, so the constructor takes them.
_OPTIONS = options_in(In.CACHE)
# Entries of a state: the arguments of the constructor, then the contents of the cache.
_SIZES = ("batch", "num_key_heads", "head_dim")
_CONTENTS = ("count", "first", "keys", "values")
_STATE = (*_SIZES, "value_dim", "span", "ramp", "pattern", "dtype", "first_tokens", "slack", *_CONTENTS)


class SpanCache:
    """A cache that keeps, for each key head, only the keys and values that its heads can reach.

    The memory depends on the spans and not on the length of the text: the cache overwrites tokens that no head of a key
    head can reach. Attention over the cache gives the same numbers as `headspan.attention` over all keys.

    Parameters
    ----------
    batch, num_key_heads, head_dim : int
    span : array_like, shape () or (heads,), optional
        The span of all heads or of each head in tokens, as `span` of `headspan.attention`; inf means no limit. The
        number of heads is a multiple of `num_key_heads`. By default no head has a limit, and the cache grows.
    ramp : float
        As for `headspan.attention`.
    pattern : Pattern or list of Pattern, optional
        As for `headspan.attention`. Like spans, `Window`, `Blockwise` and combinations of them with `Global` limit how
        many tokens the cache keeps. Global tokens are always kept. A global token sees all tokens before it, so the
        cache keeps all tokens until the last global token has arrived. Patterns that look ahead are not allowed.
    dtype : dtype or str
        The type in which keys and values are stored. With float32 or float64, queries, keys and values have this type.
        float16 and bfloat16 need half the bytes and int8 a quarter, and they are computed in float32. If the arithmetic
        is float32, inputs may also be float16 or ml_dtypes' bfloat16, and results have the type of `query`. Each row of
        int8 has a scale, its largest absolute number divided by 127.
    value_dim : int, optional
        The head_dim of the values. By default that of the keys.
    first_tokens : int
        The number of first tokens that are kept and seen at any distance, as by ``| Global(range(first_tokens))``.
    slack : int
        The number of tokens that `truncate` may remove, or that may be appended before they attend.

    Attributes
    ----------
    batch : int
        The number of batch items, which `reorder` may change.
    count : int
        The number of tokens so far.
    nbytes : int
        Memory of the keys and values, in bytes.
    span : ndarray or None
        You may set shorter spans at any time.

    See Also
    --------
    attention : Attention without a cache.
    headspan.torch.SpanCache : The same cache for tensors.
    headspan.memory.StreamingAttention : Attention over a stream in fixed memory.
    cost : With `decode`, the bytes that a step reads.

    Notes
    -----
    A key head has a ring buffer of ``reach + 1 + slack`` rows, where reach is the largest ``span + ramp`` of its heads.
    A key head without a limit has pages, which beams share (Kwon et al., "PagedAttention", SOSP 2023, section 4.4).
    Sinks follow Xiao et al., "Efficient Streaming Language Models with Attention Sinks", ICLR 2024, section 3.2, and
    windows for each head Xiao et al., "DuoAttention", ICLR 2025, section 2.3.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> rng = np.random.default_rng(0)
    >>> q, k, v = rng.standard_normal((3, 1, 2, 100, 16)).astype(np.float32)
    >>> cache = hs.SpanCache(1, 2, 16, span=[4, 30], ramp=8)
    >>> prompt = cache.attend(q[:, :, :90], k[:, :, :90], v[:, :, :90])
    >>> for i in range(90, 100):
    ...     out = cache.attend(q[:, :, [i]], k[:, :, [i]], v[:, :, [i]])
    >>> expected = hs.attention(q, k, v, span=[4, 30], ramp=8)
    >>> bool(np.allclose(out, expected[:, :, -1:], atol=1e-6)), cache.count, cache.nbytes
    (True, 100, 6400)
    """

    def __init__(
        self,
        batch: int,
        num_key_heads: int,
        head_dim: int,
        *,
        span: npt.ArrayLike | None = None,
        ramp: float = 32,
        pattern: Pattern | Sequence[Pattern] | None = None,
        dtype: npt.DTypeLike = np.float32,
        value_dim: int | None = None,
        first_tokens: int = 0,
        slack: int = 0,
    ) -> None:
        self._batch, self._key_heads, self._dims = arguments.sizes(batch, num_key_heads, head_dim, value_dim)
        self._kept_as, storage = storage_of(dtype)
        self._dtype = storage.arithmetic
        self._slack = _check.integer("slack", slack, at_least=0)
        self._limits = Limits(self._key_heads, span, ramp, pattern, first_tokens, self._dtype)
        self._row = np.zeros(max(self._dims), self._dtype)
        self._rings = Rings(self._batch, self._dims, storage, self._capacities(self._limits, 0), self._limits.kept)

    @property
    def batch(self) -> int:
        """The number of batch items, which `reorder` may change."""
        return self._batch

    @property
    def count(self) -> int:
        """The number of tokens so far."""
        return self._rings.count

    @property
    def nbytes(self) -> int:
        """Memory of the keys and values, in bytes."""
        return self._rings.nbytes

    @property
    def span(self) -> npt.NDArray[np.float64] | None:
        """The spans of the heads."""
        return None if self._limits.spans is None else self._limits.spans.copy()

    @span.setter
    def span(self, span: npt.ArrayLike) -> None:
        limits = self._limits.shortened(span)
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
            If a shape is wrong. The cache does not change.
        MemoryError
            If heads without a limit need more memory than there is. The cache does not change.
        """
        self._keep(*self._checked_rows(key, value))

    @overload
    def attend(
        self,
        query: npt.ArrayLike,
        key: npt.ArrayLike | None = ...,
        value: npt.ArrayLike | None = ...,
        *,
        span: npt.ArrayLike | None = ...,
        clip: bool = ...,
        return_lse: Literal[False] = ...,
        **options: Any,
    ) -> Array: ...
    @overload
    def attend(
        self,
        query: npt.ArrayLike,
        key: npt.ArrayLike | None = ...,
        value: npt.ArrayLike | None = ...,
        *,
        span: npt.ArrayLike | None = ...,
        clip: bool = ...,
        return_lse: Literal[True],
        **options: Any,
    ) -> tuple[Array, Array]: ...
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
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Add new tokens and attend to all tokens.

        Parameters
        ----------
        query : array_like, shape (batch, heads, tokens, head_dim)
            The queries of the last tokens.
        key, value : array_like, shape (batch, key_heads, new tokens, dims), optional
            Tokens to add: a prompt, a part of a prompt or a single token. By default no token is added, and the queries
            belong to tokens that are already in the cache.
        span : array_like, optional
            Spans for this call, of the shapes of `headspan.attention` and at most as long as the spans of the cache.
        clip : bool
            Whether to clip spans that reach further to the spans of the cache. Otherwise they are an error.
        return_lse : bool
            Whether to return the log-sum-exp too.
        **options
            scale, temperature, alibi_slopes, softcap, sinks, persistent_key, persistent_value, include_self, key_start,
            key_stop, distance_bias, distance_buckets, dropout and seed, as for `headspan.attention`.

        Returns
        -------
        out : ndarray, shape (batch, heads, tokens, value_dim)
        lse : ndarray, shape (batch, heads, tokens)
            Only with `return_lse`.

        Raises
        ------
        ValueError
            If a shape or value is wrong, or a query reaches tokens that were dropped. The cache does not change.
        """
        refuse_unknown(options, _OPTIONS, by="a cache", explicit=("span", "clip", "return_lse"))
        with_lse, clip = _check.flag("return_lse", return_lse), _check.flag("clip", clip)
        query, narrow_type = arguments.query_of(query)
        new = None if key is None and value is None else self._checked_rows(key, value)
        count = self.count + (0 if new is None else new[0].shape[2])
        if count == 0:
            which = "no key is given" if new is None else "key has 0 tokens"
            raise ValueError(f"attend requires a token, but the cache is empty and {which}")
        keys, values = (self._virtual_rows(count, dim) for dim in self._dims)
        heads, tokens = query.shape[1:3] if query.ndim == 4 else (0, 0)
        spans = self._limits.spans_of((self._batch, heads, tokens), span, clip, count, self._rings.first)
        limits = {"span": spans, "ramp": self._limits.ramp, "pattern": self._limits.pattern_of(count)}
        cache = {"cache": self._rings.core} | ({} if new is None else {"new_key": new[0], "new_value": new[1]})
        request = Request(query, keys, values, {**limits, **options}, for_core=cache)
        out, lse, _ = forward(request, with_lse=with_lse, with_saved=False)
        if new is not None:
            self._keep(*new)
        if narrow_type is not None:
            out = narrow.narrowed(out, narrow_type)
        return out if lse is None else (out, lse)

    def truncate(self, count: int) -> None:
        """Remove the last tokens, so that `count` tokens remain.

        Raises
        ------
        ValueError
            If more than `slack` tokens are removed and the next token would miss some. The cache does not change.
        """
        count = _check.integer("count", count, at_least=0)
        if count > self.count:
            raise ValueError(f"count must be at most {self.count}, the number of tokens, not {count}")
        for head, first in enumerate(self._rings.first):
            if first > self._limits.oldest_needed(head, count):
                raise ValueError(
                    f"count must leave the keys that the next token can see, but key head {head} lacks some for "
                    f"{count}; "
                    f"slack={self._slack} tokens can be removed at any time"
                )
        self._rings.truncate(count)

    def reorder(self, items: npt.ArrayLike) -> None:
        """Replace batch item i by item ``items[i]``, as beam search does. The batch size may change.

        Raises
        ------
        ValueError
            If an item does not exist. The cache does not change.
        TypeError
            If `items` is not a list of integers.
        """
        index = _check.as_array("items", items)
        if index.dtype.kind not in "iu" or index.ndim != 1 or index.size == 0:
            raise TypeError(f"items must be integers, one for each batch item, not {_check.describe(items)}")
        if not 0 <= index.min() <= index.max() < self._batch:
            wrong = index.min() if index.min() < 0 else index.max()
            raise ValueError(f"items must be between 0 and {self._batch - 1}, got {wrong}")
        self._rings.reorder(index)
        self._batch = index.size

    def copy(self) -> Self:
        """Return an independent copy of the cache."""
        return type(self).from_state_dict(self.state_dict())

    def __repr__(self) -> str:
        sizes = {"batch": self._batch, "num_key_heads": self._key_heads, "head_dim": self._dims[0]}
        stored = {"dtype": self._kept_as, "count": self.count, "nbytes": self.nbytes}
        return described(self, **sizes, span=self.span, ramp=self._limits.ramp, **stored)

    def __reduce__(self) -> tuple[Any, ...]:  # pickle and deepcopy cannot copy the core's object
        return type(self).from_state_dict, (self.state_dict(),)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the cache: numbers, arrays, lists of arrays, and patterns as text."""
        pattern = self._limits.pattern
        keys, values = self._rings.state()
        specs = [part.to_spec() for part in ([pattern] if isinstance(pattern, Pattern) else pattern or [])]
        return {
            "batch": self._batch,
            "num_key_heads": self._key_heads,
            "head_dim": self._dims[0],
            "value_dim": self._dims[1],
            "span": self.span,
            "ramp": self._limits.ramp,
            "pattern": specs[0] if isinstance(pattern, Pattern) else specs or None,
            "dtype": self._kept_as,
            "first_tokens": self._limits.first_tokens,
            "slack": self._slack,
            "count": self.count,
            "first": self._rings.first,
            "keys": keys,
            "values": values,
        }

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Self:
        """Make a cache from a state that `state_dict` returned."""
        state = arguments.of_state("SpanCache", state, _STATE)
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
        """Return a stand-in for all keys or values so far, which gives the request their shape without their memory."""
        strides = (0, 0, 0, self._row.itemsize)
        return np.ndarray((self._batch, self._key_heads, count, dim), self._dtype, self._row, 0, strides)

    # ---- new rows

    def _checked_rows(self, key: object, value: object) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return new rows in the form in which the cache stores them."""
        rows = arguments.rows(key, value, self._batch, self._key_heads, self._dims, self._dtype)
        return self._rings.encoded(rows[0]), self._rings.encoded(rows[1])

    def _keep(self, key: npt.NDArray[Any], value: npt.NDArray[Any]) -> None:
        """Add stored rows. After the last global token, drop the rows that only this token could see."""
        self._rings.append(key, value)
        self._rings.shorten(self._capacities(self._limits, self.count))

    def _capacities(self, limits: Limits, count: int) -> list[int]:
        """Return how many rows each key head keeps after `count` tokens."""
        return [reach + 1 + self._slack for reach in limits.kept_back(count, self._slack)]
