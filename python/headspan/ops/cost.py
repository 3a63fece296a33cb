"""Cost of an attention: counts of pairs, operations and bytes."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt

from headspan import _check
from headspan._help import as_written
from headspan.ops import reach
from headspan.ops.arguments.options import DEFAULTS, Options, takes_options
from headspan.ops.execution.request import Request
from headspan.ops.execution.runtime import get_num_threads
from headspan.ops.halo import Layout, sent_rows, starts_of
from headspan.ops.storage import storage_of
from headspan.patterns.per_head import per_head


@as_written
class Cost(NamedTuple):
    """Cost of one attention.

    Attributes
    ----------
    pairs : int
        Pairs of a query and a key (or a persistent key) with a mask above 0, over all heads and batch items.
    forward_flops, backward_flops : int
        Floating-point operations: 4 and 10 times head_dim per pair. A multiply-add counts as two.
    dense_flops : int
        Operations of a forward pass that computes every pair, whether allowed or not.
    head_pairs : ndarray of int64, shape (heads,)
        Pairs of each head, over all batch items.
    read_bytes, cache_bytes : int or None
        Bytes of keys and values that one token reads, and that a `SpanCache` holds; only with `decode`.
    sent_bytes : int or None
        Bytes of keys and values that all ranks send forward, and of gradients that they send backward; with `ranks`.

    See Also
    --------
    cost : Counts the pairs and the operations.
    headspan.sparse.hierarchical_cost : The same for hierarchical attention.
    """

    pairs: int
    forward_flops: int
    backward_flops: int
    dense_flops: int
    head_pairs: npt.NDArray[np.int64]
    read_bytes: int | None = None
    cache_bytes: int | None = None
    sent_bytes: int | None = None


@takes_options
def cost(
    *,
    tokens: int,
    num_heads: int,
    head_dim: int,
    key_tokens: int | None = None,
    batch: int = 1,
    decode: bool = False,
    ranks: int | Sequence[int] | None = None,
    num_key_heads: int | None = None,
    dtype: object = np.float32,
    **options: Unpack[Options],
) -> Cost:
    """Count the pairs and the floating-point operations of an attention.

    Attention is causal by default: pass ``causal=False`` to let queries see later keys.

    Parameters
    ----------
    tokens, num_heads, head_dim, batch : int
        Sizes of the query.
    key_tokens : int, optional
        Number of key tokens. Default: `tokens`.
    decode : bool
        Whether to count one decoding step: the last of `tokens` attends to keys and values in a `SpanCache`.
    ranks : int or sequence of int, optional
        Number of ranks over which `headspan.torch.halo_attention` distributes the tokens, in slices that differ by at
        most one token, longer ones first; or the number of tokens of each rank.
    num_key_heads : int, optional
        With `decode` or `ranks`: number of heads of keys and values. Default: `num_heads`.
    dtype : dtype or str
        With `decode`: the type in which the cache stores keys and values, see `SpanCache`. With `ranks`: the type of
        the tensors.
    **options
        As for `attention`. The options of a call can be passed unchanged; those that remove no pair have no effect.

    Returns
    -------
    Cost

    Raises
    ------
    ValueError
        If arguments exclude each other, such as `decode` and `ranks`.

    See Also
    --------
    Cost : The result of `cost`.
    attention : The attention whose cost is counted.
    headspan.sparse.hierarchical_cost : The same for hierarchical attention.

    Examples
    --------
    >>> import headspan as hs
    >>> full = hs.cost(tokens=1000, num_heads=2, head_dim=64)
    >>> short = hs.cost(tokens=1000, num_heads=2, head_dim=64, span=[64, 256])
    >>> full.pairs, short.pairs, short.head_pairs
    (1001000, 338112, array([ 91440, 246672]))
    >>> hs.cost(tokens=1000, num_heads=1, head_dim=64, segment_ids=[0] * 500 + [1] * 500).pairs
    250500

    One decoding step on a text of 100,000 tokens, with keys and values stored as bfloat16:

    >>> sizes = {"num_heads": 2, "head_dim": 64}
    >>> token = hs.cost(tokens=100_000, **sizes, span=[10, 1000], ramp=1, decode=True, dtype="bfloat16")
    >>> token.pairs, token.read_bytes
    (1012, 259072)

    On four ranks, each head receives the 31 or 1000 keys before every slice except the first:

    >>> hs.cost(tokens=8000, **sizes, span=[0, 969], ranks=4).sent_bytes == 3 * (31 + 1000) * 2 * 64 * 4
    True
    """
    if ranks is not None:
        if decode or key_tokens is not None:
            wrong = "decode" if decode else "key_tokens"
            raise ValueError(f"ranks are for whole inputs, and cannot be combined with {wrong}")
        forward = cost(tokens=tokens, num_heads=num_heads, head_dim=head_dim, batch=batch, **options)
        return forward._replace(
            sent_bytes=_sending(tokens, num_heads, head_dim, batch, ranks, num_key_heads, dtype, options)
        )
    if _check.flag("decode", decode):
        if key_tokens is not None:
            raise ValueError("key_tokens cannot be combined with decode, where the last of `tokens` sees all of them")
        step = cost(tokens=1, num_heads=num_heads, head_dim=head_dim, key_tokens=tokens, batch=batch, **options)
        read, held = _decoding(tokens, num_heads, head_dim, batch, num_key_heads, dtype, options)
        return step._replace(read_bytes=read, cache_bytes=held)
    sizes = {"tokens": tokens, "num_heads": num_heads, "head_dim": head_dim, "batch": batch}
    tokens, num_heads, head_dim, batch = (_check.integer(name, n, at_least=1) for name, n in sizes.items())
    keys = tokens if key_tokens is None else _check.integer("key_tokens", key_tokens, at_least=1)
    if batch * num_heads * tokens * keys > sys.maxsize:
        raise ValueError(
            f"cost counts less than 2**63 pairs, not those of tokens {tokens}, heads {num_heads}, batch {batch}"
        )
    # Broadcast zeros take no memory. Their type must be that of pair_bias.
    zero = np.zeros(1, np.float32 if getattr(options.get("pair_bias"), "dtype", None) == np.float32 else np.float64)
    query, key = (np.broadcast_to(zero, (batch, num_heads, count, 1)) for count in (tokens, keys))
    persistent_key = options.get("persistent_key")
    persistent = 0 if persistent_key is None else np.shape(persistent_key)[-2]  # every query sees all of them
    remaining = {name: option for name, option in options.items() if name not in ("persistent_key", "persistent_value")}
    counted = Request(query, key, key, remaining).core.pairs(get_num_threads())
    head_pairs = (
        np.broadcast_to(counted.sum(axis=0) * (batch // counted.shape[0]), (num_heads,)) + batch * tokens * persistent
    )
    return of_pairs(head_pairs, head_dim, batch * num_heads * tokens * (keys + persistent))


def of_pairs(head_pairs: npt.NDArray[np.int64], head_dim: int, dense_pairs: int) -> Cost:
    """Return the cost of `head_pairs` computed pairs per head, out of `dense_pairs` in total."""
    pairs = int(head_pairs.sum())
    return Cost(pairs, 4 * head_dim * pairs, 10 * head_dim * pairs, 4 * head_dim * dense_pairs, head_pairs)


def _sending(
    tokens: int,
    num_heads: int,
    head_dim: int,
    batch: int,
    ranks: int | Sequence[int],
    num_key_heads: int | None,
    dtype: object,
    options: Mapping[str, Any],
) -> int:
    """Return the bytes of keys and values that all ranks send."""
    if isinstance(ranks, Sequence):
        lengths = [_check.integer("ranks", length, at_least=0) for length in ranks]
        if sum(lengths) != tokens:
            raise ValueError(f"ranks must have {tokens} tokens in total, not {sum(lengths)}")
    else:
        count = _check.integer("ranks", ranks, at_least=1)
        lengths = [(tokens + count - 1 - rank) // count for rank in range(count)]
    name, storage = storage_of(dtype)
    if name == "int8":
        raise ValueError("dtype must be a type of tensors if ranks are given, not int8")
    shared = num_heads if num_key_heads is None else _check.integer("num_key_heads", num_key_heads, at_least=1)
    sizes = {"tokens": tokens, "batch": batch, "heads": num_heads, "key_heads": shared}
    layout = Layout.of(options, **sizes, dtype=storage.arithmetic)
    starts, span = starts_of(lengths), options.get("span")
    slices = [slice(*ends) for ends in itertools.pairwise(starts.tolist())]
    spans = [span] * len(slices)
    if span is not None and np.ndim(span) == 3:
        spans = [np.broadcast_to(span, (batch, num_heads, tokens))[..., part] for part in slices]
    windows = [layout.window(values, part.start, part.stop) for values, part in zip(spans, slices, strict=True)]
    return int(batch * sent_rows(np.array(windows), starts) * 2 * head_dim * storage.element.itemsize)


def _decoding(
    tokens: int,
    num_heads: int,
    head_dim: int,
    batch: int,
    num_key_heads: int | None,
    dtype: object,
    options: Mapping[str, Any],
) -> tuple[int, int]:
    """Return the bytes of keys and values that a token reads and that a cache holds."""
    count = num_heads if num_key_heads is None else _check.integer("num_key_heads", num_key_heads, at_least=1)
    if num_heads % count:
        raise ValueError(f"num_heads must be a multiple of num_key_heads, not {num_heads} and {count}")
    _, storage = storage_of(dtype)
    row = 2 * storage.elements(head_dim) * storage.element.itemsize
    patterns = per_head(options.get("pattern"), 1, num_heads, 1, tokens)
    span = options.get("span")
    spans = np.broadcast_to(np.asarray(np.inf if span is None else span, np.float64), (num_heads,))
    furthest = reach.of_spans(spans, options.get("ramp", DEFAULTS["ramp"]))
    if patterns:
        furthest = np.minimum(furthest, [reach.of_pattern(pattern) for pattern in patterns])
    furthest = furthest.reshape(count, -1).max(axis=1)
    rows = np.minimum(furthest, tokens - 1) + 1
    kept = sorted({token for pattern in patterns for token in pattern.global_tokens})
    beyond = sum(sum(token < tokens - size for token in kept) for size in rows)
    limited = int((furthest < reach.UNLIMITED).sum())  # heads without a limit keep all tokens
    return int(batch * row * (rows.sum() + beyond)), int(batch * row * (rows.sum() + limited * len(kept)))
