"""Attention with learned spans and its gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Unpack, overload

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan._check import Array
from headspan._help import as_written
from headspan.ops.arguments.options import DIFFERENTIABLE, Options, takes_options
from headspan.ops.execution.functional import ARRAYS, backward, forward
from headspan.ops.execution.request import Request


@as_written
class Gradients(NamedTuple):
    """Gradients of an attention, each with the shape of its argument.

    Attributes
    ----------
    query, key, value : ndarray
    span, temperature, alibi_slopes, sinks, key_bias, distance_bias, pair_bias, block_gates : ndarray or None
    persistent_key, persistent_value : ndarray or None
        None if the argument was None.

    See Also
    --------
    attention_vjp : Returns the function that computes the gradients.
    """

    query: Array
    key: Array
    value: Array
    span: Array | None
    temperature: Array | None
    alibi_slopes: Array | None
    sinks: Array | None
    key_bias: Array | None
    distance_bias: Array | None
    pair_bias: Array | None
    block_gates: Array | None
    persistent_key: Array | None
    persistent_value: Array | None


_NONE: dict[str, Any] = dict.fromkeys(DIFFERENTIABLE)


@overload
def attention(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    *,
    return_lse: Literal[False] = ...,
    out: Array | None = ...,
    threads: int | None = ...,
    **options: Unpack[Options],
) -> Array: ...
@overload
def attention(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    *,
    return_lse: Literal[True],
    out: Array | None = ...,
    threads: int | None = ...,
    **options: Unpack[Options],
) -> tuple[Array, Array]: ...
@takes_options
def attention(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    *,
    return_lse: bool = False,
    out: npt.NDArray[np.floating] | None = None,
    threads: int | None = None,
    **options: Unpack[Options],
) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
    """Compute attention in which every head, or every token, has its own span.

    Attention is causal by default: pass ``causal=False`` to let queries see later keys. The weight of a query and a key
    at distance x is proportional to ``m(x) * exp(scale / temperature * query . key - slope * x)``. The soft mask
    ``m(x) = clip((R + z - x) / R, 0, 1)`` depends on the span z and the ramp R. Pairs with m = 0 are never read and
    cost nothing.

    Parameters
    ----------
    query : array_like, shape (batch, heads, tokens, head_dim)
        Queries of type float32 or float64; leading axes may be omitted. float16 and bfloat16 (from ml_dtypes) are
        computed in float32. Outputs and gradients are rounded to the input type; log-sum-exps and weights stay float32.
    key, value : array_like, shape (batch, key heads, key tokens, head_dim)
        Keys and values of the same type as `query`; heads must be a multiple of key heads. Query i is at position
        ``i + key tokens - tokens``, so the last query is aligned with the last key. The head_dim of `value` may differ.

    Spans:
    span : array_like, optional
        Distance in tokens up to which the mask is 1; the mask falls to 0 over the next `ramp` tokens (default 32). A
        number, or an array of shape (heads,), (batch, heads) or (batch, heads, tokens). inf means no limit.
        Default: None, no limit for any head.
    ramp : float
        Number of tokens beyond the span over which the mask falls from 1 to 0. Default: 32, which suits contexts of
        thousands of tokens; a head with span 0 then still reaches 31 keys back. Choose a ramp that is short relative to
        the input, for example a tenth of it; otherwise every head reaches the whole input at any span. Only pairs on
        the ramp contribute to the gradient of a span: a long ramp takes in more distant keys, a short ramp computes
        fewer pairs beyond the span. 0 gives a hard window, whose span has no gradient.

    Causality and positions:
    causal : bool, optional
        Whether a query sees only keys at its own and earlier positions. If False, distances are absolute values.
        Default: None, which means True, except that a causal `Neighborhood` decides for each axis. The argument is
        required for a `pattern` that looks both ways and for more queries than keys.
    include_self : bool
        Whether a query sees the key at its own position. Default: True.
    query_positions, key_positions : array_like, optional
        Positions of the tokens, used for distances, causality and spans: numbers of shape (tokens,) or (batch, tokens)
        that do not decrease. With segments, they must not decrease within a segment and may restart in the next one.
        Patterns always use indices. Default: keys are at 0, 1, 2, ..., and the last query is at the last key.

    Padding and packing:
    key_start, key_stop : array_like of int, optional
        Padding on the left and right: only keys j with ``key_start <= j < key_stop`` are visible, like a slice.
        Numbers, or of shape (batch,). Positions do not change. Default: no padding.
    key_ranges : array_like of int, optional
        Range of visible keys of each query as (start, stop), like a slice, of shape (tokens, 2) or (batch, tokens, 2)
        and in any order. `causal`, spans, a pattern and padding apply within the ranges; keys outside all ranges are
        not read. Positions do not change: for a query on a preallocated cache, pass its position as well, as in
        ``query_positions=[100], key_ranges=[[0, 101]]``. Default: all keys.
    prefix_lengths : array_like of int, optional
        Length of the prefix (PrefixLM): all queries see this many keys from the first that is not padding, even later
        keys. A number, or of shape (batch,). Spans and patterns still apply within the prefix. Requires `causal`.
        Default: no prefix.
    segment_ids : array_like of int, optional
        Segment of each key, of shape (key tokens,) or (batch, key tokens): for example a packed document (see
        `segment_ids`) or a cluster. A query sees only keys of its own segment, and only such pairs are computed. If
        an id occurs in several runs, tokens are copied to make segments contiguous; this excludes a `pattern`.
        Default: one segment.
    query_segments, key_segments : array_like of int, optional
        Separate segment ids of queries and keys, for packed cross-attention and chunks of packed prompts: of shape
        (tokens,) or (batch, tokens), and (key tokens,) or (batch, key tokens). Unless `query_positions` is given, the
        queries of a segment are aligned with its last keys: the last query with the last key, and so on backwards.
        Default: one segment.

    Patterns:
    pattern : Pattern, list of Pattern or list of lists of Pattern, optional
        Sparsity pattern: the pairs that are allowed, see `headspan.patterns`. The span applies within it. A list has
        one pattern per head. A list of lists has a list per batch item, with one pattern for all heads or one per head.
        Equal patterns are planned only once. Default: all pairs.

    Biases and other score terms:
    scale : float, optional
        Factor of the dot products. Default: ``1 / sqrt(head_dim)``.
    temperature : array_like, optional
        Divisor of the dot products, of any shape that `span` may have. Default: 1.
    alibi_slopes : array_like, optional
        ALiBi slopes: a number, or an array of shape (heads,) or (batch, heads). Default: 0.
    softcap : float, optional
        Bound of the scaled dot products: ``softcap * tanh(product / softcap)``. It is applied before slopes and biases.
        Default: no bound.
    sinks : array_like, optional
        Attention sinks: scores without a value. ``exp(sink)`` is added to the denominator of the softmax, so that the
        weights of a head may sum to less than 1; a sink of 0 adds 1. A number, or of shape (heads,) or (batch, heads).
        Default: no sinks.
    key_bias : array_like, optional
        Bias added to all scores of a key, to change its importance; -inf removes the key. Of shape (key tokens,),
        (heads or 1, key tokens) or (batch or 1, heads or 1, key tokens). Default: no bias.
    distance_bias : array_like, optional
        Bias added to the scores by distance in either direction: a table of shape (distances,) or (heads, distances),
        whose last entry applies to all larger distances. Fractional distances are truncated. On a grid with several
        axes it is a table by the offset key - query along each axis, as in Swin and NATTEN: of shape (offsets, ...) or
        (heads, offsets, ...), with odd numbers of offsets, 0 in the middle, and the ends for all larger offsets.
        Default: no bias.
    distance_buckets : array_like of int, optional
        Index into `distance_bias` for each offset key - query: an array of odd length with offset 0 in the middle,
        earlier keys before it and later keys after it. Its ends apply to all larger offsets. See `t5_buckets`.
        Default: the index is the distance.
    pair_bias : array_like, optional
        Bias added to the score of each pair; -inf removes the pair. Of shape (tokens, key tokens), optionally with
        leading axes for heads and batch items, which may have length 1, and of the type of `query`. It is read where
        pairs are computed, and is not copied. Default: no bias.
    block_gates : array_like, optional
        Non-negative factor of all pairs of a block in the softmax, of shape (query blocks, key blocks) or (heads or 1,
        query blocks, key blocks). Both axes have as many blocks as the key tokens fill. A gate of 0 removes its block;
        its gradient is 0, so that it stays 0. The block is skipped if the pattern includes `Blocks` of the gates > 0.
        Default: no gates.
    gate_block_size : int or (int, int), optional
        Block size of `block_gates` in tokens, or as (queries, keys), like the block size of `Blocks`. Required with
        `block_gates`. Default: None.

    Persistent keys:
    persistent_key, persistent_value : array_like, optional
        Learned keys and values that every query sees, regardless of distance, causality, spans, patterns and padding.
        They share the softmax with the other keys. Their products are scaled and capped; slopes and biases do not
        apply. Of shape (key heads, m, head_dim) or (m, head_dim) and of the type of `query`. Default: none.

    Dropout:
    dropout : float
        Fraction of the weights that are set to 0 at random after the softmax. The others are divided by
        ``1 - dropout``. The log-sum-exp is that without dropout. Default: 0.
    seed : int, optional
        Seed of the dropout; use a new one in each training step. A hash of the seed, the batch item, the head and the
        indices of query and key selects the dropped weights. They are the same in every pass, for any number of threads
        and on every machine. Required for a `dropout` above 0. Default: None.

    Output:
    return_lse : bool
        Whether to also return the log-sum-exp. Default: False.
    out : ndarray, optional
        Array for the output, of its shape and type, with a contiguous last axis; other strides are arbitrary. It must
        not overlap the arguments. Default: a new array.
    threads : int, optional
        Maximum number of threads of this call. Default: that of `get_num_threads`. Results have the same bits for any
        number.

    Returns
    -------
    out : ndarray, shape (batch, heads, tokens, head_dim of value)
        The attention output. It is 0 for a query that sees no key.
    lse : ndarray, shape (batch, heads, tokens)
        Natural logarithm of the sum of ``m * exp(score)``, sink included. For a query that sees no key it
        is the sink, or -inf without one. Only with `return_lse`.

    Raises
    ------
    ValueError
        If options contradict each other.
    TypeError
        If `query`, `key` and `value` differ in type, or if an option is unknown.

    See Also
    --------
    attention_vjp : The same attention with its gradients.
    attention_weights : The weights of the same attention, for inspection.
    cost : The pairs and the operations of an attention.
    SpanCache : Cache of keys and values for generation.
    headspan.torch.attention : Attention for tensors.
    headspan.jax.attention : Attention for JAX arrays.
    headspan.reference.attention : The definition in NumPy, to test against.

    References
    ----------
    Spans: Sukhbaatar et al., "Adaptive Attention Span in Transformers", ACL 2019, equations 3 and 4; slopes: Press et
    al., "Train Short, Test Long", ICLR 2022; the soft cap: Gemma Team, "Gemma 2", 2024, section 2; sinks: Xiao et al.,
    "Efficient Streaming Language Models with Attention Sinks", ICLR 2024, and OpenAI, "gpt-oss model card", 2025;
    persistent keys: Sukhbaatar et al., "Augmenting Self-attention with Persistent Memory", 2019, equations 8 and 9;
    segments of queries and keys: `flash_attn_varlen_func` of Dao, "FlashAttention-2", ICLR 2024; clusters: Roy et al.,
    "Efficient Content-Based Sparse Attention with Routing Transformers", TACL 2021; prefixes: Raffel et al., "Exploring
    the Limits of Transfer Learning with a Unified Text-to-Text Transformer", JMLR 2020, section 3.2.1;
    biases by offset: Liu et al., "Swin Transformer", ICCV 2021, equation 4.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> rng = np.random.default_rng(0)
    >>> q, k, v = rng.standard_normal((3, 1, 2, 1000, 16))
    >>> hs.attention(q, k, v, span=[64, 256]).shape
    (1, 2, 1000, 16)
    """
    with_lse = _check.flag("return_lse", return_lse)
    request = Request(query, key, value, options)
    if out is not None:
        _check_out(out, request)
    result, lse, _ = forward(request, out=out, with_lse=with_lse, with_saved=False, threads=threads)
    return result if lse is None else (result, lse)


def _check_out(out: object, request: Request) -> None:
    """Raise an error unless `out` is a writeable array that shares no memory with query, key and value."""
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out must be a NumPy array, not {_check.describe(out)}")
    shape = (*request.query.shape[:3], request.value.shape[3])[4 - request.ndim :]
    dtype = request.query.dtype if request.narrow is None else request.narrow
    if out.dtype != dtype:
        raise TypeError(f"out must be {dtype}, not {out.dtype}")
    if out.shape != shape:
        raise ValueError(f"out must be of shape {shape}, not {out.shape}")
    if not out.flags.writeable:
        raise ValueError("out must be writeable, got a read-only array")
    for name in ARRAYS:
        array = getattr(request, name)
        if np.may_share_memory(out, array) and np.shares_memory(out, array):
            raise ValueError(f"out must not overlap {name}, which is read while out is written")


@overload
def attention_vjp(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    *,
    return_lse: Literal[False] = ...,
    threads: int | None = ...,
    **options: Unpack[Options],
) -> tuple[Array, Callable[..., Gradients]]: ...
@overload
def attention_vjp(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    *,
    return_lse: Literal[True],
    threads: int | None = ...,
    **options: Unpack[Options],
) -> tuple[tuple[Array, Array], Callable[..., Gradients]]: ...
@takes_options
def attention_vjp(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    *,
    return_lse: bool = False,
    threads: int | None = None,
    **options: Unpack[Options],
) -> tuple[np.ndarray | tuple[np.ndarray, np.ndarray], Callable[..., Gradients]]:
    """Compute attention and return the function that computes its gradients (vector-Jacobian product).

    Attention is causal by default: pass ``causal=False`` to let queries see later keys.

    Parameters
    ----------
    query, key, value, **options, return_lse, threads
        As for `attention`; `threads` also applies to `vjp`. Do not change the arrays before `vjp` has been called.

    Returns
    -------
    out : ndarray, or (out, lse) with `return_lse`
        As from `attention`. `out` is read-only because `vjp` reads it; a copy is writeable.
    vjp : callable
        ``vjp(grad_out, grad_lse=None)`` returns the `Gradients` of ``sum(grad_out * out) + sum(grad_lse * lse)``. If
        an argument is shared by batch items, heads or tokens, its gradient is the sum over them.

    See Also
    --------
    attention : Attention without the function for gradients.
    Gradients : The gradients that the function returned by `attention_vjp` computes.
    headspan.torch.attention : Attention for tensors.
    headspan.autograd.attention : Attention for the autograd package.

    Notes
    -----
    The mask has kinks at the distances x = z and x = z + R. An integer span, the usual initial value, has pairs at
    both. At a kink, the gradient of a span is the derivative towards shorter spans: a pair at x = z contributes with
    1/R, like the pairs beyond it, and a pair at x = z + R with 0, because a pair with m = 0 is not computed.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> rng = np.random.default_rng(0)
    >>> q, k, v = rng.standard_normal((3, 1, 2, 1000, 16))
    >>> out, vjp = hs.attention_vjp(q, k, v, span=[64.5, 256.5])
    >>> vjp(np.ones_like(out)).span.shape
    (2,)
    """
    with_lse = _check.flag("return_lse", return_lse)
    request = Request(query, key, value, options)
    out, lse, saved = forward(request, with_lse=with_lse, threads=threads)
    assert saved is not None
    out.flags.writeable = False  # vjp reads it

    def vjp(grad_out: npt.ArrayLike, grad_lse: npt.ArrayLike | None = None) -> Gradients:
        """Return the gradients of ``sum(grad_out * out) + sum(grad_lse * lse)``."""
        return Gradients(**_NONE | backward(request, saved, grad_out, grad_lse, threads=threads))

    return (out if lse is None else (out, lse)), vjp
