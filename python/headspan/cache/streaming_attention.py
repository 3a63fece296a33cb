"""Attention over a stream without end, in memory that does not grow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan._check import Array
from headspan.cache import given
from headspan.cache.limits import Limits
from headspan.cache.slots import Rule, Slots
from headspan.cache.span_cache import SpanCache
from headspan.ops import reach
from headspan.ops.arguments import narrow
from headspan.ops.cost import Cost, cost, of_pairs
from headspan.ops.storage import storage_of

# What may be given for each query: one number, or for each head, and perhaps for each of its queries.
_OPTIONS = frozenset(["scale", "temperature", "alibi_slopes", "softcap", "sinks"])
_PER_HEAD = {"temperature": True, "alibi_slopes": False, "sinks": False}
_STATE = ("batch", "key_heads", "head_dim", "value_dim", *Rule._fields, "spans", "ramp", "dtype", "near", "far")
_BEYOND_ALL = float(reach.UNLIMITED)  # a span for heads that have none, where others do


class StreamingAttention:
    """Attention over a stream of any length in fixed memory: what is attended to is what stays.

    A key head whose heads all have a span that fits into the slots keeps what they reach, as in `SpanCache`, and its
    results are exact. Any other has so many rows, its slots: those of the newest tokens, and of all others those that
    queries gave the most weight.

    Parameters
    ----------
    batch, key_heads, head_dim : int
    slots : int
        Rows of a key head without a span, or with one that reaches further.
    window : int
        So many newest tokens stay whatever their weight; at most `slots`.
    decay : float
        From 0 to 1: the factor by which received weight counts less with every token. 1 adds up all there ever was.
    spans : array_like, shape (heads,), optional
        As `span` of `headspan.attention`, one for each head, and inf for heads without; heads are a multiple of the key
        heads. None: all are without.
    ramp : float
        As for `headspan.attention`.
    merge : bool
        Whether a row that does not stay is merged with the most similar one that does, and not forgotten.
    dtype : dtype
        float32 or float64: that of queries, keys, values and results. With float32, float16 and ml_dtypes' bfloat16 may
        be given, too, and results have the type of query.
    value_dim : int, optional
        head_dim of the values; that of the keys unless given.

    Attributes
    ----------
    count : int
        Tokens so far.
    nbytes : int
        Memory of keys, values and all that is known of them, which does not change.
    spans : ndarray or None

    Raises
    ------
    ValueError
        For a wrong shape or value.
    TypeError
        For a wrong type.

    Notes
    -----
    Tokens come in pieces: a call with at most 256 is one, and a longer one as many calls with 256 and the rest. In a
    piece of c tokens whose last n have queries

    1. query i, i = 0 .. n - 1, attends to all rows and to the tokens of the piece up to its own, exactly; the weights
       p_ij of a row of the softmax have the sum 1, or less beside `sinks`;
    2. the received weight a_j of every row, which is 0 for a new token, becomes

           a_j <- decay^c a_j + sum_i decay^(n - 1 - i) p_ij,

       summed over the heads that share the key head; a p_ij that is NaN counts as nothing;
    3. the newest `window` tokens stay, and of the others those with the largest a_j, `slots` in all; of equals the
       newer.

    With `merge`, each row that does not stay chooses, of those that do, the one with the largest cosine of their keys;
    all at once, of equals the older. That row gets the means of keys and of values, weighted with the numbers of tokens
    that each row stands for, and the sums of these numbers and of the received weights. A row of t tokens has log(t)
    added to its scores, as `key_bias`, and stands where it stood. Rows with NaN or infinite numbers are forgotten.

    For heads with slots this is attention over all keys only until a row has to go. In three small models (characters
    of Python source, 4 layers of 4 heads, context 1024, token by token: ``experiments/streams.py``) 64 slots for every
    head cost, in bits a character beside all keys, 0.03 to 0.12 with `merge` and 0.06 to 0.16 without, where decay (0.9
    or 0.95) and window (16 or 32) were those that did best on other text; a window of 64 and nothing else cost 0.05 to
    0.14, the first 4 tokens and a window as much or more. With 96 slots it was 0.02 to 0.09, 0.03 to 0.12, and 0.02 to
    0.10 for the window. Sums of all there ever was (decay 1) cost more than twice as much as the window. So there
    `merge` paid, and received weight alone did not.

    Sums of received weight are H2O's (Zhang et al., "H2O: Heavy-Hitter Oracle for Efficient Generative Inference of
    Large Language Models", NeurIPS 2023, section 4), which has no decay. First tokens, which may draw much weight
    without meaning ("attention sinks": Xiao et al., "Efficient Streaming Language Models with Attention Sinks",
    ICLR 2024, section 3), stay by their weight; ``SpanCache(spans=..., ramp=0, sink_tokens=4)`` is that paper's rule.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> rng = np.random.default_rng(0)
    >>> stream = hs.StreamingAttention(1, 2, 16, slots=64, window=16, decay=0.99, spans=[20, np.inf], ramp=4)
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
        key_heads: int,
        head_dim: int,
        *,
        slots: int,
        window: int,
        decay: float,
        spans: npt.ArrayLike | None = None,
        ramp: float = 32,
        merge: bool = False,
        dtype: npt.DTypeLike = np.float32,
        value_dim: int | None = None,
    ) -> None:
        self._batch, self._key_heads, self._dims = given.sizes(batch, key_heads, head_dim, value_dim)
        kept_as, storage = storage_of(dtype)
        if storage.stored != "same":
            raise TypeError(f"dtype must be float32 or float64, not {kept_as}")
        self._dtype = storage.arithmetic
        slots, window = _check.integer("slots", slots, at_least=1), _check.integer("window", window, at_least=1)
        if window > slots:
            raise ValueError(f"window must be at most the {slots} slots, of which it is a part, not {window}")
        decay, merge = _check.within("decay", decay, low=0, high=1), _check.flag("merge", merge)
        self._rule = Rule(slots, window, decay, merge)
        if spans is not None:
            array = _check.as_array("spans", spans)
            spans = np.where(array == np.inf, _BEYOND_ALL, array) if array.dtype.kind == "f" else array
        self._limits = limits = Limits(self._key_heads, spans, ramp, None, 0, self._dtype)
        near = np.array(limits.reach) < slots
        self._near_heads, self._far_heads = given.Heads(near), given.Heads(~near)
        self._near: SpanCache | None = None
        if near.any():
            assert limits.spans is not None
            its = limits.spans.reshape(self._key_heads, -1)[near].ravel()
            common: dict[str, Any] = {"ramp": limits.ramp, "dtype": self._dtype, "value_dim": self._dims[1]}
            self._near = SpanCache(self._batch, len(self._near_heads.key_heads), self._dims[0], spans=its, **common)
        self._far: Slots | None = None
        if not near.all():
            self._far = Slots((self._batch, len(self._far_heads.key_heads)), self._dims, self._rule, self._dtype)

    @property
    def count(self) -> int:
        """Tokens so far."""
        return self._parts[0].count

    @property
    def nbytes(self) -> int:
        """Memory of keys and values, and of what is known of each row."""
        return sum(part.nbytes for part in self._parts)

    @property
    def spans(self) -> npt.NDArray[np.float64] | None:
        """Spans of the heads."""
        spans = self._limits.spans
        return None if spans is None else np.where(spans >= _BEYOND_ALL, np.inf, spans)

    def cost(self, heads: int | None = None) -> Cost:
        """Count the work of attention of the next token: it meets what has stayed, and itself.

        Of heads with slots all rows count, though a span may leave some out.

        Parameters
        ----------
        heads : int, optional
            Of the queries; as many as there are spans, or key heads without, unless given.

        Returns
        -------
        Cost
            `dense_flops` are those of attention to all tokens so far, `cache_bytes` is `nbytes`. The received weights,
            which take a pass of their own over the rows in slots, are not counted.

        Raises
        ------
        ValueError
            For a number of heads that does not suit.
        TypeError
            For a wrong type.
        """
        spans = self._limits.spans
        usual = self._key_heads if spans is None else spans.size
        count = usual if heads is None else _check.integer("heads", heads, at_least=1)
        if not self._takes(count):
            raise ValueError(f"heads must be {self._heads_taken}, not {count}")
        rows = np.full(count, min(self.count, self._rule.slots) + 1)
        if self._near is not None:  # which there is only with spans
            near = np.isin(np.arange(count), self._near_heads.queries(count))
            last, ramp = self.count + 1, self._limits.ramp
            reached = cost(tokens=1, heads=count, head_dim=self._dims[0], key_tokens=last, span=spans, ramp=ramp)
            rows = np.where(near, reached.head_pairs, rows)
        read = self._batch * int(rows.reshape(self._key_heads, -1).max(axis=1).sum())
        counted = of_pairs(self._batch * rows, self._dims[0], self._batch * count * (self.count + 1))
        return counted._replace(read_bytes=read * sum(self._dims) * self._dtype.itemsize, cache_bytes=self.nbytes)

    def append(self, key: npt.ArrayLike, value: npt.ArrayLike) -> None:
        """Add tokens without queries: with their pieces, received weights decay.

        Parameters
        ----------
        key, value : array_like, shape (batch, key_heads, tokens, dims)

        Raises
        ------
        ValueError
            For a wrong shape; the stream is then as before.
        TypeError
            For a wrong type.
        """
        heads = self._key_heads if self._limits.spans is None else self._limits.spans.size
        nobody = np.empty((self._batch, heads, 0, self._dims[0]), self._dtype)
        self._advance(nobody, *self._checked_rows(key, value), {})

    def attend(
        self,
        query: npt.ArrayLike,
        key: npt.ArrayLike,
        value: npt.ArrayLike,
        *,
        return_lse: bool = False,
        **options: Any,
    ) -> Any:
        """Attend to what has stayed and to new tokens, and add these.

        Parameters
        ----------
        query : array_like, shape (batch, heads, queries, head_dim)
            Of the last of the new tokens, or of all.
        key, value : array_like, shape (batch, key_heads, tokens, dims)
            New tokens, any number of them. More than 256 are taken in pieces of 256, as in Notes above.
        return_lse : bool
        **options
            scale, temperature, alibi_slopes, softcap and sinks, as for `headspan.attention`. Distances are those of the
            tokens in the stream.

        Returns
        -------
        out : ndarray, shape (batch, heads, queries, value_dim)
        lse : ndarray, shape (batch, heads, queries)
            Only with `return_lse`.

        Raises
        ------
        ValueError
            For a wrong shape or value; the stream is then as before.
        TypeError
            For a wrong type or option.
        """
        given.refuse_others(options, _OPTIONS, "a stream")
        with_lse = _check.flag("return_lse", return_lse)
        query, narrow_type = given.query_of(query)
        rows = self._checked_rows(key, value)
        self._check_query(query, rows[0].shape[2])
        axes = query.shape[:3]
        for name, with_tokens in _PER_HEAD.items():
            if options.get(name) is not None:
                options[name] = given.each_head(name, options[name], axes, with_tokens=with_tokens)
        out, lse = self._advance(query, *rows, {name: its for name, its in options.items() if its is not None})
        if narrow_type is not None:
            out = narrow.narrowed(out, narrow_type)
        return (out, lse) if with_lse else out

    def state_dict(self) -> dict[str, Any]:
        """Return all there is to it: numbers, arrays, and of its two kinds of heads a dict of the like, or None."""
        return {
            "batch": self._batch,
            "key_heads": self._key_heads,
            "head_dim": self._dims[0],
            "value_dim": self._dims[1],
            **self._rule._asdict(),
            "spans": self.spans,
            "ramp": self._limits.ramp,
            "dtype": self._dtype.name,
            "near": None if self._near is None else self._near.state_dict(),
            "far": None if self._far is None else self._far.state(),
        }

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Self:
        """Make a stream that goes on from what `state_dict` gave."""
        state = given.of_state("StreamingAttention", state, _STATE)
        near, far = state.pop("near"), state.pop("far")
        sizes = [state.pop(name) for name in ("batch", "key_heads", "head_dim")]
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
        """Whether queries may have so many heads."""
        spans = self._limits.spans
        return heads > 0 and (heads % self._key_heads == 0 if spans is None else heads == spans.size)

    @property
    def _heads_taken(self) -> str:
        """How many those may be, in words."""
        spans = self._limits.spans
        return f"a multiple of {self._key_heads}" if spans is None else str(spans.size)

    def _checked_rows(self, key: object, value: object) -> tuple[Array, Array]:
        return given.rows(key, value, self._batch, self._key_heads, self._dims, self._dtype)

    def _check_query(self, query: Array, tokens: int) -> None:
        if query.dtype != self._dtype:
            raise TypeError(f"query must be {self._dtype}, as the stream computes, not {query.dtype}")
        shape = query.shape
        suits = len(shape) == 4 and self._takes(shape[1]) and (shape[0], shape[3]) == (self._batch, self._dims[0])
        if not suits:
            wanted = f"({self._batch}, {self._heads_taken}, queries, {self._dims[0]})"
            raise ValueError(f"query must be of shape {wanted}, not {shape}")
        if shape[2] > tokens:
            raise ValueError(f"query must be of the {tokens} new tokens or of the last of them, not {shape[2]} long")

    def _advance(self, query: Array, key: Array, value: Array, options: Mapping[str, Any]) -> tuple[Array, Array]:
        """Attend and add tokens; slots keep theirs last, when nothing can fail any more."""
        axes = query.shape[:3]
        results = np.empty((*axes, self._dims[1]), self._dtype), np.empty(axes, self._dtype)
        keep = None
        if self._far is not None:
            its = self._far_heads
            own = its.of_options(self._with_spans(options, axes))
            *found, keep = self._far.advance(its.of_queries(query), its.of_keys(key), its.of_keys(value), own)
            its.put(results, found)
        if self._near is not None and self.count + key.shape[2] > 0:
            its = self._near_heads
            new = its.of_queries(query), its.of_keys(key), its.of_keys(value)
            its.put(results, self._near.attend(*new, return_lse=True, **its.of_options(options)))
        if keep is not None:
            self._far = keep()
        return results

    def _with_spans(self, options: Mapping[str, Any], axes: tuple[int, ...]) -> Mapping[str, Any]:
        """Add spans for heads with slots, if any of these has one."""
        spans = self._limits.spans
        if spans is None or (spans[self._far_heads.queries(spans.size)] >= _BEYOND_ALL).all():
            return options
        return {**options, "span": np.broadcast_to(spans, axes[:2]), "ramp": self._limits.ramp}
