"""Attention with learned spans, its gradient, and its weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Unpack, overload

import numpy.typing as npt

from headspan import _check
from headspan._check import Array
from headspan._help import as_written
from headspan.ops.arguments.options import DIFFERENTIABLE, Options, takes_options
from headspan.ops.arguments.request import Request
from headspan.ops.functional import backward, forward


@as_written
class Gradients(NamedTuple):
    """Gradients of an attention, each of the shape of its argument.

    Attributes
    ----------
    query, key, value : ndarray
    span, temperature, alibi_slopes, sinks, key_bias, distance_bias, pair_bias, block_gates : ndarray or None
        None where the argument was None.
    memory_key, memory_value : ndarray or None
        As these.
    """

    query: Array
    key: Array
    value: Array
    span: Array | None
    temperature: Array | None
    alibi_slopes: Array | None
    sinks: Array | None
    memory_key: Array | None
    memory_value: Array | None
    key_bias: Array | None
    distance_bias: Array | None
    pair_bias: Array | None
    block_gates: Array | None


_NONE: dict[str, Any] = dict.fromkeys(DIFFERENTIABLE)


@overload
def attention(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    *,
    return_lse: Literal[False] = ...,
    **options: Unpack[Options],
) -> Array: ...
@overload
def attention(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    *,
    return_lse: Literal[True],
    **options: Unpack[Options],
) -> tuple[Array, Array]: ...
@takes_options
def attention(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    *,
    return_lse: bool = False,
    **options: Unpack[Options],
) -> Any:
    """Attention in which every head, or every token, has its own span.

    With x the distance from a query to a key, z the span and R the ramp, the weight of a pair is proportional to
    ``m(x) * exp(scale / temperature * query . key - slope * x)`` with the soft mask
    ``m(x) = clip((R + z - x) / R, 0, 1)``. Pairs with m = 0 cost nothing and are never read.

    Parameters
    ----------
    query : array_like, shape (batch, heads, tokens, head_dim)
        float32 or float64; leading axes may be left out. float16 and bfloat16 (of ml_dtypes) are computed with in
        float32, and what comes out, gradients too, is rounded to their type; log-sum-exps and weights are float32.
    key, value : array_like, shape (batch, key heads, key tokens, head_dim)
        Of the same type; heads is a multiple of the key heads. Query i stands at position
        ``i + key tokens - tokens``, so that the last query sees the last key. The head_dim of value may be another.
    span : array_like, optional
        How far a query looks before the mask falls, in tokens: a number, or of shape (heads,), (batch, heads) or
        (batch, heads, tokens). None: without limit.
    ramp : float
        Tokens over which the mask falls from 1 to 0, beyond the span: a span of 0 reaches 31 keys back with the default
        of 32, made for contexts of thousands of tokens. It is chosen like the span, in tokens, and small beside the
        input (say a tenth of it), or all heads reach everything whatever their spans. Only pairs on the ramp move a
        span: a long ramp lets it feel what lies farther off, a short one leaves less to compute beyond it. 0 gives a
        hard window, whose span has no gradient.
    causal : bool, optional
        Whether queries see no later keys. Else the distance is absolute. None: True, as for sequences; a `pattern` that
        looks both ways and more queries than keys ask for a choice, and a `Neighborhood` that is causal axis by axis
        has made it.
    include_self : bool
        Whether a query sees the key at its own position.
    scale : float, optional
        Of the dot products; ``1 / sqrt(head_dim)`` unless given.
    temperature : array_like, optional
        Divides the dot products; the shapes of `span`.
    alibi_slopes : array_like, optional
        A number, or of shape (heads,) or (batch, heads).
    softcap : float, optional
        Bounds the scaled dot products, before anything is added to them: ``softcap * tanh(product / softcap)``.
    sinks : array_like, optional
        A score that takes its share of the softmax and gives nothing, so that a head may look at less: ``exp(sink)``
        is added to the sum; 0 is the softmax with one more in it. A number, or of shape (heads,) or (batch, heads).
    memory_key, memory_value : array_like, optional
        Learned keys that every query sees at any distance, whatever causality, spans, patterns and padding say, and
        their values, in the same softmax: of shape (key heads, m, head_dim) or (m, head_dim), and of the type of query.
        They have products, scaled and capped like others, and no slope and no bias.
    pattern : Pattern, list of Pattern or list of lists of Pattern, optional
        Which pairs there are at all, see `headspan.patterns`; a list has one for each head, a list of lists for each
        batch item one for all heads or one for each. Equal ones are planned once. The span works inside it.
    query_positions, key_positions : array_like, optional
        Where tokens stand, for distances, causality and spans: numbers that do not decrease, of shape (tokens,) or
        (batch, tokens); within each segment, if there are any, so that they may start again with it. Patterns go by
        index all the same.
    key_begin, key_lengths : array_like of int, optional
        The first key of each batch item that counts, and how many keys there are up to the last that does; outside
        lies padding, on the left and on the right. Numbers, or of shape (batch,). Positions stay as they are.
    key_ranges : array_like of int, optional
        The keys of each query: the first one and, as for a slice, the one after the last, of shape (tokens, 2) or
        (batch, tokens, 2), in any order. What else hides keys (`causal`, spans, a pattern, padding) does so within
        them; keys that are in no range are not read. Positions stay: a query of a cache with room to spare stands
        where `query_positions` says, as in ``query_positions=[100], key_ranges=[[0, 101]]``.
    prefix_lengths : array_like of int, optional
        How many keys, from the first that is no padding on, are seen by all queries, also by those before them
        (PrefixLM): a number, or of shape (batch,). Spans and patterns go on within the prefix. Only with `causal`.
    segment_ids : array_like of int, optional
        The segment that each key belongs to, of shape (key tokens,) or (batch, key tokens), such as a document of
        several packed one after another (see `segments_from`), or a cluster: a query sees keys of its own segment
        only. Ids may come back, but not within a `pattern`; tokens are then copied to where those of an id are
        neighbours, and cost no more than their segments do.
    query_segments, key_segments : array_like of int, optional
        The same for queries and keys apart, of shapes (tokens,) or (batch, tokens) and (key tokens,) or (batch, key
        tokens), for packed cross-attention and chunks of packed prompts. Unless `query_positions` say otherwise, the
        last query of a segment stands beside the last key of it, the one before beside the key before, and so on.
    key_bias : array_like, optional
        Added to the scores of each key, so that some matter more; -inf removes one. Of shape (key tokens,),
        (heads or 1, key tokens) or (batch or 1, heads or 1, key tokens).
    distance_bias : array_like, optional
        Added to the scores by distance: a table of shape (distances,) or (heads, distances), whose last entry is that
        of all larger distances, in both directions. Of distances that are not whole the whole part counts. On a grid
        of more axes a table by the offset key - query along each, of shape (offsets, ...) or (heads, offsets, ...) with
        odd numbers of offsets, 0 in the middle, and the outermost for all beyond (Swin's and NATTEN's).
    distance_buckets : array_like of int, optional
        Which entry of `distance_bias` an offset key - query has: an array of odd length, offset 0 in the middle, keys
        behind before it and keys ahead after it; its ends for all beyond. See `t5_buckets`.
    pair_bias : array_like, optional
        Added to the score of each pair; -inf removes it. Of shape (tokens, key tokens) with axes of heads and of batch
        items before, which may be 1, and of the type of query. It is read where a pair is computed, and not copied.
    block_gates : array_like, optional
        A factor of at least 0 of all pairs of a block, in the softmax: of shape (query blocks, key blocks) or (heads or
        1, query blocks, key blocks), for as many blocks as the keys fill, of queries too. 0 removes a block, and it is
        left out of the work if `Blocks` of the gates above 0 is among the patterns; its gradient is 0 then, so that it
        stays.
    gate_block : int or (int, int), optional
        Tokens of a block of `block_gates`, or queries and keys of one, as of `Blocks`.
    dropout : float
        The share of the weights that are set to 0 after the softmax, at random; the others are divided by one less that
        share. The log-sum-exp is that without dropout.
    seed : int, optional
        Of dropout: what is dropped is a hash of it, of the batch item, the head, and where query and key stand among
        the keys, the same in every pass, for any number of threads and on every machine. Give another one in each step.
    return_lse : bool
        Whether to return the log-sum-exp too.

    Returns
    -------
    out : ndarray, shape (batch, heads, tokens, head_dim of value)
        0 for a query that sees no key and no memory.
    lse : ndarray, shape (batch, heads, tokens)
        The natural logarithm of the sum of ``m * exp(score)``; for a query that sees nothing the sink, or -inf. Only
        with `return_lse`.

    Raises
    ------
    ValueError
        For a wrong shape or value.
    TypeError
        For a wrong or mixed type.

    References
    ----------
    Sukhbaatar et al., "Adaptive Attention Span in Transformers", ACL 2019, equations 3 and 4; slopes: Press et al.,
    "Train Short, Test Long", ICLR 2022; the soft cap: Gemma Team, "Gemma 2", 2024, section 2; sinks: Xiao et al.,
    "Efficient Streaming Language Models with Attention Sinks", ICLR 2024, and OpenAI, "gpt-oss model card", 2025;
    memory keys: Sukhbaatar et al., "Augmenting Self-attention with Persistent Memory", 2019, equations 8 and 9;
    segments of queries and keys: `flash_attn_varlen_func` of Dao, "FlashAttention-2", ICLR 2024; clusters: Roy et al.,
    "Efficient Content-Based Sparse Attention with Routing Transformers", TACL 2021; prefixes: Raffel et al., "Exploring
    the Limits of Transfer Learning with a Unified Text-to-Text Transformer", JMLR 2020, section 3.2.1;
    biases by offset: Liu et al., "Swin Transformer", ICCV 2021, equation 4.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> rng = np.random.default_rng(0)
    >>> q, k, v = rng.standard_normal((3, 1, 2, 100, 16))
    >>> hs.attention(q, k, v, span=[4, 50]).shape
    (1, 2, 100, 16)
    """
    with_lse = _check.flag("return_lse", return_lse)
    request = Request(query, key, value, options)
    out, lse, _ = forward(request, with_lse=with_lse, with_saved=False)
    return (out, lse) if with_lse else out


@overload
def attention_vjp(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    *,
    return_lse: Literal[False] = ...,
    **options: Unpack[Options],
) -> tuple[Array, Callable[..., Gradients]]: ...
@overload
def attention_vjp(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    *,
    return_lse: Literal[True],
    **options: Unpack[Options],
) -> tuple[tuple[Array, Array], Callable[..., Gradients]]: ...
@takes_options
def attention_vjp(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    *,
    return_lse: bool = False,
    **options: Unpack[Options],
) -> Any:
    """Attention, and the function that takes a gradient back through it.

    Parameters
    ----------
    query, key, value, **options, return_lse
        As for `attention`. The arrays must not be changed before the gradient has been taken.

    Returns
    -------
    out : ndarray, or (out, lse) with `return_lse`
        As from `attention`. `out` is read-only, since the gradient is computed from it; a copy is not.
    vjp : callable
        ``vjp(grad_out, grad_lse=None)`` gives the `Gradients` of ``sum(grad_out * out) + sum(grad_lse * lse)``. The
        gradient of a parameter that is shared is the sum over those who share it.

    Raises
    ------
    ValueError
        For a wrong shape or value; also by `vjp`.
    TypeError
        For a wrong or mixed type; also by `vjp`.

    Notes
    -----
    The mask has two kinks, at the distances x = z and x = z + R, and a whole span, the usual start, has pairs on both.
    The gradient of a span is everywhere that towards shorter spans: at x = z a pair counts with 1/R, as those behind
    it do, and at x = z + R with 0, since a pair with m = 0 is not computed. Elsewhere both directions agree.

    Examples
    --------
    >>> import numpy as np
    >>> import headspan as hs
    >>> rng = np.random.default_rng(0)
    >>> q, k, v = rng.standard_normal((3, 1, 2, 100, 16))
    >>> out, vjp = hs.attention_vjp(q, k, v, span=[4.5, 50.5])
    >>> vjp(np.ones_like(out)).span.shape
    (2,)
    """
    with_lse = _check.flag("return_lse", return_lse)
    request = Request(query, key, value, options)
    out, lse, saved = forward(request, with_lse=with_lse)
    assert saved is not None
    out.flags.writeable = False  # the gradient needs it as it is

    def vjp(grad_out: npt.ArrayLike, grad_lse: npt.ArrayLike | None = None) -> Gradients:
        """Gradients of ``sum(grad_out * out) + sum(grad_lse * lse)``."""
        return Gradients(**_NONE | backward(request, saved, grad_out, grad_lse))

    return ((out, lse) if with_lse else out), vjp
