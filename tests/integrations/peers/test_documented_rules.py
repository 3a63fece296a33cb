"""The pairs that other libraries allow by their documentation, against those of headspan's arguments.

The libraries need not be installed: a mask is written here from the words of their documentation.
"""

import headspan as hs
import numpy as np
import pytest
from headspan.patterns import Neighborhood, Window


def inputs(queries, keys, heads=2):
    rng = np.random.default_rng(0)
    return [rng.standard_normal((2, heads, count, 8)) for count in (queries, keys, keys)]


def softmax_of(q, k, v, allowed, added=0.0):
    scores = np.where(allowed, q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + added, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ v


def indices(queries, keys):
    """The positions of queries, the last one at the last key, and of keys."""
    return np.arange(keys - queries, keys)[:, None], np.arange(keys)


def axis_of_natten(length, kernel_size, dilation, causal, stride=1):
    """The neighbors of a token are the kernel_size nearest of its dilation group; causal ones end with itself.

    Near the borders the window is shifted, so that it keeps its size; an even one has more before than after. As many
    tokens of a dilation group as the stride share the window of the middle one, or the later of two; causal windows
    begin where that of the last one does. If the last few are fewer, the last one replaces a missing middle one.
    """
    allowed = np.zeros((length, length), bool)
    for token in range(length):
        group = list(range(token % dilation, length, dilation))
        at = group.index(token)
        leader = min(at - at % stride + (stride - 1 if causal else stride // 2), len(group) - 1)
        if causal:
            seen = group[max(0, leader - kernel_size + 1) : at + 1]
        else:
            centre = min(max(leader, kernel_size // 2), len(group) - 1 - (kernel_size - 1) // 2)
            seen = group[centre - kernel_size // 2 : centre + (kernel_size - 1) // 2 + 1]
            assert len(seen) == kernel_size
        allowed[token, seen] = True
    return allowed


@pytest.mark.parametrize("causal", [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("dilation", [(1, 1), (2, 1), (2, 3)])
@pytest.mark.parametrize(
    ("kernel_size", "stride"),
    [((3, 3), (1, 1)), ((2, 4), (1, 1)), ((4, 1), (1, 1)), ((3, 3), (2, 3)), ((2, 4), (1, 4)), ((4, 1), (3, 1))],
)
def test_natten(kernel_size, stride, dilation, causal):
    shape = (9, 13)
    rows, columns = (axis_of_natten(*axis) for axis in zip(shape, kernel_size, dilation, causal, stride, strict=True))
    allowed = np.kron(rows, columns)
    q, k, v = inputs(117, 117)
    pattern = Neighborhood(shape, window=kernel_size, dilation=dilation, causal=causal, stride=stride)
    np.testing.assert_allclose(hs.attention(q, k, v, pattern=pattern), softmax_of(q, k, v, allowed), atol=1e-11)


def test_natten_relative_positional_bias():
    """One number for every offset key - query within the window, of 2 * kernel_size - 1 on each axis."""
    shape, kernel_size = (5, 6), 3
    table = np.random.default_rng(1).standard_normal((2, 5, 5))
    i, j = np.divmod(np.arange(30), 6)
    down, right = i - i[:, None], j - j[:, None]
    allowed = np.kron(axis_of_natten(5, 3, 1, False), axis_of_natten(6, 3, 1, False))
    added = table[:, np.clip(down, -2, 2) + 2, np.clip(right, -2, 2) + 2]
    q, k, v = inputs(30, 30)
    ours = hs.attention(q, k, v, pattern=Neighborhood(shape, kernel_size), distance_bias=table, causal=False)
    np.testing.assert_allclose(ours, softmax_of(q, k, v, allowed, added), atol=1e-11)


@pytest.mark.parametrize("queries", [3, 12])
@pytest.mark.parametrize("memories", [0, 2])
def test_x_transformers(queries, memories):
    """`attn_max_attend_past` keys before the query's own; `attn_num_mem_kv` keys in front are seen by all."""
    past, keys = 4, 12
    at, key = indices(queries, keys)
    allowed = np.hstack([np.ones((queries, memories), bool), (key <= at) & (at - key <= past)])
    q, k, v = inputs(queries, keys)
    mem_k, mem_v = np.random.default_rng(1).standard_normal((2, 2, memories, 8))
    behind_memory = [np.concatenate([[mem] * len(rows), rows], axis=-2) for mem, rows in ((mem_k, k), (mem_v, v))]
    ours = hs.attention(q, k, v, pattern=Window(past + 1), persistent_key=mem_k, persistent_value=mem_v)
    np.testing.assert_allclose(ours, softmax_of(q, *behind_memory, allowed), atol=1e-11)


@pytest.mark.parametrize("queries", [3, 12])
@pytest.mark.parametrize("window_size", [(4, 0), (3, 2), (-1, 0), (-1, 1)])
def test_flash_attention(queries, window_size):
    """Keys from i - left to i + right are seen, -1 being without limit. The last query stands at the last key."""
    left, right = window_size
    at, key = indices(queries, 12)
    allowed = (key <= at + right) & ((key >= at - left) | (left < 0))
    q, k, v = inputs(queries, 12)
    pattern = Window(13 if left < 0 else left + 1, ahead=right)
    ours = hs.attention(q, k, v, pattern=pattern, causal=False)
    np.testing.assert_allclose(ours, softmax_of(q, k, v, allowed), atol=1e-11)


@pytest.mark.parametrize(
    ("causal", "window_size"), [(False, (-1, -1)), (True, (-1, -1)), (True, (2, 0)), (True, (2, 2)), (False, (2, 2))]
)
def test_flash_attention_varlen(causal, window_size):
    """Sequences one after another, with the last query at the last key; the result of a query without keys is 0."""
    query_lengths, key_stop = [3, 5, 0, 4, 2, 1], [7, 2, 3, 4, 0, 6]
    cu_seqlens_q, cu_seqlens_k = (np.cumsum([0, *lengths]) for lengths in (query_lengths, key_stop))
    left, right = window_size
    allowed = np.zeros((cu_seqlens_q[-1], cu_seqlens_k[-1]), bool)
    for first, first_key, *counts in zip(cu_seqlens_q, cu_seqlens_k, query_lengths, key_stop, strict=False):
        at, key = indices(*counts)
        seen = (key >= at - left) | (left < 0)
        seen &= (key <= at + right) | (right < 0)
        allowed[first : first + counts[0], first_key : first_key + counts[1]] = seen & ((key <= at) | (not causal))
    q, k, v = inputs(*allowed.shape)
    some = allowed.any(axis=1)
    assert not some.all()
    theirs = np.zeros_like(q)
    theirs[:, :, some] = softmax_of(q[:, :, some], k, v, allowed[some])
    ours = hs.attention(
        q,
        k,
        v,
        query_segments=hs.segment_ids(cu_seqlens_q),
        key_segments=hs.segment_ids(cu_seqlens_k),
        causal=causal,
        span=None if left < 0 else left,
        ramp=0,
    )
    np.testing.assert_allclose(ours, theirs, atol=1e-11)


@pytest.mark.parametrize("start_size", [0, 2])
def test_streaming_llm(start_size):
    """After each token the cache keeps `start_size` keys of the first tokens, and the last `recent_size`."""
    recent_size, count = 3, 14
    allowed, kept = np.zeros((count, count), bool), []
    for token in range(count):
        allowed[token, [*kept, token]] = True
        kept = [each for each in (*kept, token) if each < start_size or each > token - recent_size]
    q, k, v = inputs(count, count)
    cache = hs.SpanCache(2, 2, 8, first_tokens=start_size, pattern=Window(recent_size + 1), dtype=np.float64)
    ours = [cache.attend(*(array[:, :, token : token + 1] for array in (q, k, v))) for token in range(count)]
    np.testing.assert_allclose(np.concatenate(ours, axis=2), softmax_of(q, k, v, allowed), atol=1e-11)


@pytest.mark.parametrize("local_window_size", [3, (3, 2)])
def test_jax(local_window_size):
    """(left, right) keys besides the query's own, or one number for both; the first query is at the first key."""
    left, right = local_window_size if isinstance(local_window_size, tuple) else (local_window_size,) * 2
    token = np.arange(10)
    allowed = (token <= token[:, None] + right) & (token >= token[:, None] - left)
    q, k, v = inputs(10, 10)
    ours = hs.attention(q, k, v, pattern=Window(left + 1, ahead=right), causal=False)
    np.testing.assert_allclose(ours, softmax_of(q, k, v, allowed), atol=1e-11)
