"""A range of keys for each query, and a prefix that all see: alone, with other limits, and what they mean."""

import headspan as hs
import numpy as np
import pytest
from bits import all_bits, make_arguments
from cases import DTYPES, normals
from pattern_cases import check_case, check_reference, named_case

pytestmark = pytest.mark.numerical

STEPS = np.cumsum(np.resize([0, 0.25, 1, 2.5, 0, 0, 1], 130))
WINDOWS = np.stack([np.arange(130) // 2, np.arange(130) + 1], axis=-1)
THREE = np.repeat([[3, 70], [64, 66], [9, 9]], [64, 64, 2], axis=0)
CACHES = {"key_ranges": [[[0, 101], [0, 102], [0, 103]], [[7, 9]] * 3], "query_positions": [[100, 101, 102], [8, 8, 8]]}
# name: (batch, heads, key_heads, queries, keys, head_dim), options
EDGES = {
    "ranges": ((1, 2, 1, 130, 130, 8), {"key_ranges": WINDOWS, "span": [3, 90]}),
    "both directions": ((1, 2, 1, 130, 130, 8), {"key_ranges": WINDOWS, "causal": False, "span": [3, 90]}),
    "in falling order": ((2, 2, 1, 130, 130, 8), {"key_ranges": np.stack([WINDOWS[::-1], WINDOWS])}),
    "of more queries": ((1, 2, 1, 130, 7, 8), {"key_ranges": np.minimum(WINDOWS, 7), "causal": False, "span": 7.5}),
    "one of a whole group": ((1, 2, 1, 130, 130, 8), {"key_ranges": THREE, "causal": False}),
    "one of a whole group, in a band": ((1, 2, 1, 130, 130, 8), {"key_ranges": THREE, "span": 9, "causal": False}),
    "and positions": ((1, 2, 1, 130, 130, 8), {"key_ranges": WINDOWS, "key_positions": STEPS, "span": [3.5, 40]}),
    "empty": ((1, 2, 1, 70, 70, 8), {"key_ranges": np.repeat(np.arange(70)[:, None], 2, axis=1)}),
    "of a cache": ((2, 4, 2, 3, 3000, 8), {**CACHES, "span": [3, 30, 99, 9]}),
    "a prefix": ((1, 2, 1, 130, 130, 8), {"prefix_lengths": 70}),
    "prefixes of a batch": ((4, 2, 1, 130, 130, 8), {"prefix_lengths": [0, 1, 64, 130], "span": [3, 90]}),
    "a prefix without self": (
        (1, 2, 1, 130, 130, 8), {"prefix_lengths": 70, "include_self": False, "span": [3, 90]},
    ),
    "a prefix after padding": ((2, 2, 1, 130, 130, 8), {"prefix_lengths": [50, 9], "key_start": [20, 64]}),
    "a prefix, the last queries": ((1, 2, 1, 40, 130, 8), {"prefix_lengths": 99, "span": [3, 90], "ramp": 2.5}),
    "a prefix, more queries": ((1, 2, 1, 130, 70, 8), {"prefix_lengths": 9, "causal": True, "span": [30.5, 90]}),
    "a prefix and positions": (
        (1, 2, 1, 130, 130, 8), {"prefix_lengths": 66, "key_positions": STEPS, "span": [3.5, 40]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "options"), EDGES.values(), ids=EDGES)
def test_edge(shape, options, dtype):
    case = named_case(shape, dtype, **options)
    check_case(case)
    if dtype == "float64":
        check_reference(case)


def close(one, two):
    np.testing.assert_allclose(one, two, rtol=0, atol=1e-11)


def test_ranges_are_what_other_limits_come_down_to():
    """Padding, causality, documents and prefixes, each written as ranges, give the same."""
    arrays = [normals(i, 2, 2, 70, 8) for i in range(3)]
    index = np.arange(70)
    later = np.stack([0 * index, index + 1], axis=-1)
    documents = np.stack([index // 20 * 20, np.minimum(index // 20 * 20 + 20, 70)], axis=-1)
    for options, ranges in (
        ({}, later),
        ({"key_start": [3, 60], "key_stop": [66, 61]}, [np.clip(later, *ends) for ends in ((3, 66), (60, 61))]),
        ({"segment_ids": index // 20, "causal": False}, documents),
        ({"prefix_lengths": 30}, np.maximum(later, [0, 30])),
    ):
        expected = hs.attention(*arrays, span=9.5, **options)
        close(hs.attention(*arrays, span=9.5, key_ranges=ranges, causal=False), expected)


def test_a_cache_with_room_is_the_keys_that_fill_it():
    key, value, query = normals(0, 2, 400, 8), normals(1, 2, 400, 8), normals(2, 2, 1, 8)
    options = {"span": [9.5, 60.0], "alibi_slopes": 0.125}
    expected = hs.attention(query, key[:, :101], value[:, :101], **options)
    key[:, 101:], value[:, 101:] = np.nan, np.nan
    close(hs.attention(query, key, value, query_positions=[100], key_ranges=[[0, 101]], **options), expected)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_keys_outside_all_ranges_are_not_read(dtype, causal):
    arrays, *grads = make_arguments((2, 1, 130, 130, 8), dtype)
    ranges = np.clip(WINDOWS, 20, 90)
    unseen = ~((np.arange(130) >= ranges[:, :1]) & (np.arange(130) < ranges[:, 1:])).any(axis=0)
    dirty = {name: np.where(unseen[:, None], np.nan, arrays[name]).astype(dtype) for name in ("key", "value")}
    options = {"key_ranges": ranges, "causal": causal, "span": 60.5, "temperature": 2.0}
    expected = all_bits(arrays, *grads, **options)
    for name, result in all_bits({**arrays, **dirty}, *grads, **options).items():
        np.testing.assert_array_equal(result, expected[name], err_msg=name)


@pytest.mark.parametrize(("batch", "queries"), [(0, 5), (2, 0)])
def test_no_items_and_no_queries(batch, queries):
    """Whatever says who sees whom, in each of its shapes."""
    query, key = np.zeros((batch, 2, queries, 4)), np.zeros((batch, 2, 5, 4))
    for lead in ((), (batch,)):
        ids = np.zeros((*lead, queries), int)
        for options in (
            {"query_positions": ids},
            {"key_positions": np.zeros((*lead, 5))},
            {"key_ranges": np.zeros((*lead, queries, 2), int)},
            {"segment_ids": np.broadcast_to([0, 1, 0, 1, 0], (*lead, 5))},
            {"query_segments": ids, "key_segments": [0, 1, 0, 1, 1]},
            {"prefix_lengths": np.zeros(lead, int), "key_start": np.zeros(lead, int)},
        ):
            out, vjp = hs.attention_vjp(query, key, key, **options)
            assert out.shape == query.shape
            assert not vjp(out).key.any()
            assert hs.attention_weights(query, key, **options).shape == (batch, 2, queries, 5)
            assert hs.reference.attention(query, key, key, **options).shape == query.shape
