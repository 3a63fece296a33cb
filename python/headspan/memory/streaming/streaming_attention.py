"""Attention over an endless stream in fixed memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self, overload

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan._check import Array
from headspan._help import described
from headspan.cache import arguments
from headspan.cache.limits import Limits
from headspan.cache.span_cache import SpanCache
from headspan.memory.streaming.slots import Rule, Slots
from headspan.ops.arguments.options import ARRAY_OPTIONS, options_in, refuse_unknown
from headspan.ops.arguments.rows import In
from headspan.ops.cost import Cost, cost, of_pairs
from headspan.ops.execution import narrow
from headspan.ops.storage import storage_of

# Options of a call. Those in _PER_HEAD may be one number, one per head or, where True, one per query.
_OPTIONS = options_in(In.STREAM)
_PER_HEAD = {name: ARRAY_OPTIONS[name].per_token for name in _OPTIONS if name in ARRAY_OPTIONS}
_STATE = ("batch", "num_key_heads", "head_dim", "value_dim", *Rule._fields, "span", "ramp", "dtype", "near", "far")


class StreamingAttention:
    """Attention over a stream of any length in fixed memory.

    If the spans of all heads of a key head fit into the slots, the key head keeps all tokens in their reach, as
    `SpanCache` does, and its results are exact. Every other key head keeps a fixed number of rows, its slots: the
    newest tokens, and of the older tokens those to which queries gave the most weight.

    Parameters
    ----------
    batch, num_key_heads, head_dim : int
    slots : int
        The number of rows of a key head whose heads have no span or a longer reach.
    window : int
        The number of newest tokens that stay whatever their weight. At most `slots`.
    decay : float
        The factor, from 0 to 1, by which received weight shrinks with every token. 1 sums up all weight so far.
    span : array_like, shape () or (heads,), optional
        The span of all heads or of each head in tokens, as for `headspan.attention`; inf means no limit. The number of
        heads is a multiple of `num_key_heads`. By default no head has a limit.
    ramp : float
        As for `headspan.attention`.
    merge : bool
        Whether a row that is removed is merged into the most similar row that stays. Otherwise it is dropped.
    dtype : dtype
        float32 or float64, the type of queries, keys, values and results. With float32, inputs may also be float16 or
        ml_dtypes' bfloat16, and results have the type of `query`.
    value_dim : int, optional
        The head_dim of the values. By default that of the keys.

    Attributes
    ----------
    count : int
        The number of tokens so far.
    nbytes : int
        Memory of the keys, the values and their statistics, in bytes. It is constant.
    span : ndarray or None

    See Also
    --------
    headspan.SpanCache : Cache of keys and values for generation.
    KeyValueStore : Keys and values on disk.
    headspan.plot.kept_tokens : Draws which tokens a stream keeps.

    Notes
    -----
    A call with more than 256 tokens is split into pieces of 256 and the rest, as if each piece were a call. For a piece
    of c tokens whose last n have queries:

    1. Query i, i = 0 .. n - 1, attends exactly to all rows and to the tokens of the piece up to its own. The softmax
       weights p_ij of a query sum to 1, or to less with `sinks`.
    2. The received weight a_j of every row, which is 0 for a new token, becomes

           a_j <- decay^c a_j + sum_i decay^(n - 1 - i) p_ij,

       summed over the heads that share the key head. A p_ij that is NaN counts as 0.
    3. The newest `window` tokens stay, and of the others those with the largest a_j, `slots` rows in all. Ties go to
       the newer row.

    With `merge`, each removed row is merged into the staying row whose key has the largest cosine similarity with its
    own. All removed rows choose at once, and ties go to the older row. The merged row keeps its position and gets the
    means of keys and values, weighted by the numbers of tokens, and the sums of these numbers and of received weights.
    A row of t tokens has log(t) added to its scores, as `key_bias`. Removed rows with NaN or inf are dropped.

    For heads with slots, the result equals attention over all keys only until a row is removed. We measured three small
    models (characters of Python source, 4 layers of 4 heads, context 1024, token by token:
    ``experiments/small/streams.py``) in bits per character above attention to all keys, with the decay (0.9 or 0.95)
    and window (16 or 32) that did best on other text. 64 slots per head cost 0.03 to 0.12 with `merge` and 0.06 to 0.16
    without. A plain window of 64 cost 0.05 to 0.14, and the first 4 tokens plus a window as much or more. 96 slots cost
    0.02 to 0.09 and 0.03 to 0.12, and a window of 96 cost 0.02 to 0.10. A decay of 1 cost more than twice as much as
    the window. In these models `merge` helped, and received weight alone did not.

    Summing received weight is the method of H2O (Zhang et al., "H2O: Heavy-Hitter Oracle for Efficient Generative
    Inference of Large Language Models", NeurIPS 2023, section 4), which has no decay. First tokens that draw much
    weight without meaning ("attention sinks": Xiao et al., "Efficient Streaming Language Models with Attention Sinks",
    ICLR 2024, section 3) stay by their weight. ``SpanCache(span=..., ramp=0, first_tokens=4)`` is that paper's rule.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> rng = np.random.default_rng(0)
    >>> stream = hs.memory.StreamingAttention(1, 2, 16, slots=64, window=16, decay=0.99, span=[20, np.inf], ramp=4)
    >>> before = stream.nbytes
    >>> for _ in range(500):
    ...     q, k, v = rng.standard_normal((3, 1, 2, 1, 16)).astype(np.float32)
    ...     out = stream.attend(q, k, v)
    >>> stream.count, out.shape, stream.nbytes == before
    (500, (1, 2, 1, 16), True)
    """

    def __init__(
        self,
        batch: int,
        num_key_heads: int,
        head_dim: int,
        *,
        slots: int,
        window: int,
        decay: float,
        span: npt.ArrayLike | None = None,
        ramp: float = 32,
        merge: bool = False,
        dtype: npt.DTypeLike = np.float32,
        value_dim: int | None = None,
    ) -> None:
        self._batch, self._key_heads, self._dims = arguments.sizes(batch, num_key_heads, head_dim, value_dim)
        kept_as, storage = storage_of(dtype)
        if storage.stored != "same":
            raise TypeError(f"dtype must be float32 or float64, not {kept_as}")
        self._dtype = storage.arithmetic
        slots, window = _check.integer("slots", slots, at_least=1), _check.integer("window", window, at_least=1)
        if window > slots:
            raise ValueError(f"window must be at most {slots}, the number of slots, not {window}")
        decay, merge = _check.within("decay", decay, low=0, high=1), _check.flag("merge", merge)
        self._rule = Rule(slots, window, decay, merge)
        self._limits = limits = Limits(self._key_heads, span, ramp, None, 0, self._dtype)
        near = np.array(limits.reach) < slots
        self._near_heads, self._far_heads = arguments.Heads(near), arguments.Heads(~near)
        self._near: SpanCache | None = None
        if near.any():
            assert limits.spans is not None
            spans = limits.spans if limits.heads is None else limits.spans.reshape(self._key_heads, -1)[near].ravel()
            common: dict[str, Any] = {"ramp": limits.ramp, "dtype": self._dtype, "value_dim": self._dims[1]}
            self._near = SpanCache(self._batch, len(self._near_heads.key_heads), self._dims[0], span=spans, **common)
        self._far: Slots | None = None
        if not near.all():
            self._far = Slots((self._batch, len(self._far_heads.key_heads)), self._dims, self._rule, self._dtype)

    def __repr__(self) -> str:
        sizes = {"batch": self._batch, "num_key_heads": self._key_heads, "head_dim": self._dims[0]}
        rule = {**self._rule._asdict(), "span": self.span, "ramp": self._limits.ramp}
        return described(self, **sizes, **rule, dtype=self._dtype, count=self.count, nbytes=self.nbytes)

    @property
    def count(self) -> int:
        """The number of tokens so far."""
        return self._parts[0].count

    @property
    def nbytes(self) -> int:
        """Memory of the keys, the values and their statistics, in bytes."""
        return sum(part.nbytes for part in self._parts)

    @property
    def span(self) -> npt.NDArray[np.float64] | None:
        """The spans of the heads."""
        return None if self._limits.spans is None else self._limits.spans.copy()

    def cost(self, num_heads: int | None = None) -> Cost:
        """Count the work of attention of the next token to the rows that the stream keeps and to itself.

        For heads with slots all rows count, even if a span masks some of them.

        Parameters
        ----------
        num_heads : int, optional
            The number of heads of the queries. By default the number of spans, or `num_key_heads` without spans.

        Returns
        -------
        Cost
            `dense_flops` is for attention to all tokens so far, and `cache_bytes` is `nbytes`. The additional pass over
            the slots for the received weights is not counted.

        Raises
        ------
        ValueError
            If `num_heads` fits neither the spans nor the key heads.
        TypeError
            If `num_heads` is not an integer.
        """
        spans, default = self._limits.spans, self._limits.heads or self._key_heads
        count = default if num_heads is None else _check.integer("num_heads", num_heads, at_least=1)
        if not self._takes(count):
            raise ValueError(f"heads must be {self._heads_taken}, not {count}")
        rows = np.full(count, min(self.count, self._rule.slots) + 1)
        if self._near is not None:  # implies that there are spans
            near = np.isin(np.arange(count), self._near_heads.queries(count))
            last, ramp = self.count + 1, self._limits.ramp
            reached = cost(tokens=1, num_heads=count, head_dim=self._dims[0], key_tokens=last, span=spans, ramp=ramp)
            rows = np.where(near, reached.head_pairs, rows)
        read = self._batch * int(rows.reshape(self._key_heads, -1).max(axis=1).sum())
        counted = of_pairs(self._batch * rows, self._dims[0], self._batch * count * (self.count + 1))
        return counted._replace(read_bytes=read * sum(self._dims) * self._dtype.itemsize, cache_bytes=self.nbytes)

    def append(self, key: npt.ArrayLike, value: npt.ArrayLike) -> None:
        """Add tokens without queries. Received weights decay as with queries.

        Parameters
        ----------
        key, value : array_like, shape (batch, key_heads, tokens, dims)

        Raises
        ------
        ValueError
            If a shape is wrong. The stream does not change.
        """
        heads = self._limits.heads or self._key_heads
        nobody = np.empty((self._batch, heads, 0, self._dims[0]), self._dtype)
        self._advance(nobody, *self._checked_rows(key, value), {})

    @overload
    def attend(
        self,
        query: npt.ArrayLike,
        key: npt.ArrayLike,
        value: npt.ArrayLike,
        *,
        return_lse: Literal[False] = ...,
        **options: Any,
    ) -> Array: ...
    @overload
    def attend(
        self,
        query: npt.ArrayLike,
        key: npt.ArrayLike,
        value: npt.ArrayLike,
        *,
        return_lse: Literal[True],
        **options: Any,
    ) -> tuple[Array, Array]: ...
    def attend(
        self,
        query: npt.ArrayLike,
        key: npt.ArrayLike,
        value: npt.ArrayLike,
        *,
        return_lse: bool = False,
        **options: Any,
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Attend to the rows of the stream and to new tokens, and add the new tokens.

        Parameters
        ----------
        query : array_like, shape (batch, heads, queries, head_dim)
            The queries of all new tokens or of the last of them.
        key, value : array_like, shape (batch, key_heads, tokens, dims)
            New tokens. More than 256 are processed in pieces of 256, as the Notes of the class describe.
        return_lse : bool
            Whether to return the log-sum-exp too.
        **options
            scale, temperature, alibi_slopes, softcap and sinks, as for `headspan.attention`. Distances are measured
            between positions in the stream.

        Returns
        -------
        out : ndarray, shape (batch, heads, queries, value_dim)
        lse : ndarray, shape (batch, heads, queries)
            Only with `return_lse`.

        Raises
        ------
        ValueError
            If a shape or value is wrong. The stream does not change.
        """
        refuse_unknown(options, _OPTIONS, by="a stream", explicit=("return_lse",))
        with_lse = _check.flag("return_lse", return_lse)
        query, narrow_type = arguments.query_of(query)
        rows = self._checked_rows(key, value)
        self._check_query(query, rows[0].shape[2])
        axes = query.shape[:3]
        for name, with_tokens in _PER_HEAD.items():
            if options.get(name) is not None:
                options[name] = arguments.each_head(name, options[name], axes, with_tokens=with_tokens)
        out, lse = self._advance(query, *rows, {name: option for name, option in options.items() if option is not None})
        if narrow_type is not None:
            out = narrow.narrowed(out, narrow_type)
        return (out, lse) if with_lse else out

    def state_dict(self) -> dict[str, Any]:
        """Return the state: numbers, arrays, and a state or None for each of the two kinds of heads."""
        return {
            "batch": self._batch,
            "num_key_heads": self._key_heads,
            "head_dim": self._dims[0],
            "value_dim": self._dims[1],
            **self._rule._asdict(),
            "span": self.span,
            "ramp": self._limits.ramp,
            "dtype": self._dtype.name,
            "near": None if self._near is None else self._near.state_dict(),
            "far": None if self._far is None else self._far.state(),
        }

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Self:
        """Make a stream from a state that `state_dict` returned."""
        state = arguments.of_state("StreamingAttention", state, _STATE)
        near, far = state.pop("near"), state.pop("far")
        sizes = [state.pop(name) for name in ("batch", "num_key_heads", "head_dim")]
        stream = cls(*sizes, **state)
        if stream._near is not None:
            stream._near = SpanCache.from_state_dict(near)
        if stream._far is not None:
            stream._far.load(far)
        return stream

    @property
    def _parts(self) -> list[SpanCache | Slots]:
        return [part for part in (self._near, self._far) if part is not None]

    def _takes(self, heads: int) -> bool:
        """Return whether queries may have this number of heads."""
        known = self._limits.heads
        return heads > 0 and (heads % self._key_heads == 0 if known is None else heads == known)

    @property
    def _heads_taken(self) -> str:
        """The number of heads that queries may have, in words."""
        known = self._limits.heads
        return f"a multiple of {self._key_heads}" if known is None else str(known)

    def _checked_rows(self, key: object, value: object) -> tuple[Array, Array]:
        return arguments.rows(key, value, self._batch, self._key_heads, self._dims, self._dtype)

    def _check_query(self, query: Array, tokens: int) -> None:
        if query.dtype != self._dtype:
            raise TypeError(f"query must be {self._dtype}, the type of the stream, not {query.dtype}")
        shape = query.shape
        suits = len(shape) == 4 and self._takes(shape[1]) and (shape[0], shape[3]) == (self._batch, self._dims[0])
        if not suits:
            expected = f"({self._batch}, {self._heads_taken}, queries, {self._dims[0]})"
            raise ValueError(f"query must be of shape {expected}, not {shape}")
        if shape[2] > tokens:
            raise ValueError(f"query must have at most as many tokens as key, {tokens}, not {shape[2]}")

    def _advance(self, query: Array, key: Array, value: Array, options: Mapping[str, Any]) -> tuple[Array, Array]:
        """Attend and add tokens. The slots change last, when nothing can fail any more."""
        axes = query.shape[:3]
        results = np.empty((*axes, self._dims[1]), self._dtype), np.empty(axes, self._dtype)
        keep = None
        if self._far is not None:
            heads = self._far_heads
            new = heads.of_queries(query), heads.of_keys(key), heads.of_keys(value)
            *far_results, keep = self._far.advance(*new, heads.of_options(self._with_spans(options, axes)))
            heads.put(results, far_results)
        if self._near is not None and self.count + key.shape[2] > 0:
            heads = self._near_heads
            new = heads.of_queries(query), heads.of_keys(key), heads.of_keys(value)
            heads.put(results, self._near.attend(*new, return_lse=True, **heads.of_options(options)))
        if keep is not None:
            self._far = keep()
        return results

    def _with_spans(self, options: Mapping[str, Any], axes: tuple[int, ...]) -> Mapping[str, Any]:
        """Add the spans if any head with slots has one."""
        spans = self._limits.spans
        if spans is None:
            return options
        spans = np.broadcast_to(spans, axes[:2])
        if np.isinf(self._far_heads.of_queries(spans)).all():
            return options
        return {**options, "span": spans, "ramp": self._limits.ramp}
