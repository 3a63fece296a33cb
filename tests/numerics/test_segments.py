"""Segments of queries and of keys: packed, in any order, in pieces, and what they mean."""

import headspan as hs
import numpy as np
import pytest
from bits import all_bits, make_arguments
from cases import DTYPES, normals
from headspan import _core
from headspan.ops.execution.functional import backward, forward
from headspan.ops.execution.request import Request
from option_cases import OPTIONS, make_arrays
from pattern_cases import PatternCase, check_case, check_reference, named_case

pytestmark = pytest.mark.numerical

RNG = np.random.default_rng(5)
CLUSTERS = RNG.integers(0, 7, (2, 130))
NOT_WITH_CLUSTERS = {"segment_ids", "query_segments", "prefix_lengths", "dropout", "block_gates"}
STEPS = np.cumsum(np.resize([0, 0.25, 1, 2.5, 0, 0, 1], 130))
PACKED = {"query_segments": np.repeat([0, 1, 2], [30, 5, 35]), "key_segments": np.repeat([0, 1, 2], [40, 60, 30])}
OTHER_ORDER = {"query_segments": np.repeat([2, 7, 0, 1], [20, 5, 25, 20]), "key_segments": PACKED["key_segments"]}
IN_PIECES = {"query_segments": CLUSTERS[0, :70], "key_segments": CLUSTERS[1]}
# name: (batch, heads, key_heads, queries, keys, head_dim), options
EDGES = {
    "packed": ((1, 2, 1, 70, 130, 8), {**PACKED, "causal": False}),
    "packed, causal": ((2, 2, 1, 70, 130, 8), {**PACKED, "span": [3, 90], "alibi_slopes": 0.125}),
    "packed, more queries": (
        (1, 2, 1, 130, 70, 8), {"query_segments": PACKED["key_segments"], "key_segments": PACKED["query_segments"],
                                "causal": True, "span": 9.5},
    ),
    "packed, without self": ((1, 2, 1, 70, 130, 8), {**PACKED, "include_self": False, "span": [3, 40]}),
    "in another order": ((1, 2, 1, 70, 130, 8), {**OTHER_ORDER, "span": [3, 90]}),
    "in another order, at positions": ((1, 2, 1, 70, 130, 8), {**OTHER_ORDER, "key_positions": STEPS, "span": [3, 90]}),
    "queries without keys": (
        (1, 1, 1, 70, 130, 8), {"query_segments": np.arange(70) // 20, "key_segments": np.arange(130) // 100 * 3},
    ),
    "no query sees a key": ((1, 1, 1, 70, 130, 8), {"query_segments": [0] * 70, "key_segments": [1] * 130}),
    "positions that start again": (
        (1, 2, 1, 130, 130, 8),
        {"segment_ids": np.arange(130) // 45, "key_positions": np.arange(130) % 45, "span": 9.5},
    ),
    "positions that start again, both ways": (
        (1, 2, 1, 130, 130, 8), {"segment_ids": np.arange(130) // 45, "key_positions": np.arange(130) % 45 / 4,
                                 "span": [3.5, 7], "ramp": 2, "causal": False, "include_self": False},
    ),
    "a range within": ((1, 2, 1, 70, 130, 8), {**PACKED, "key_ranges": np.tile([20, 90], (70, 1)), "causal": False}),
    "clusters": ((2, 2, 1, 130, 130, 8), {"segment_ids": CLUSTERS, "span": [3, 90]}),
    "clusters, one for the batch": ((2, 2, 1, 70, 130, 8), {"segment_ids": CLUSTERS[0], "causal": False}),
    "clusters, padded": (
        (2, 2, 2, 130, 130, 8), {"segment_ids": CLUSTERS, "key_start": [9, 0], "key_stop": [100, 130], "span": 40.5},
    ),
    "clusters, ranges": (
        (2, 2, 2, 130, 130, 8), {"segment_ids": CLUSTERS, "causal": False,
                                 "key_ranges": np.sort(RNG.integers(0, 131, (2, 130, 2)), axis=-1)},
    ),
    "clusters, everything of tokens": (
        (2, 4, 2, 70, 130, 8), {"segment_ids": CLUSTERS, "span": RNG.integers(0, 90, (2, 4, 70)) / 2.0,
                                "temperature": RNG.uniform(0.5, 2, (1, 1, 70)), "sinks": [0, 1, 2, 3],
                                "key_bias": np.where(np.arange(130) % 4, 0.5, -np.inf), "alibi_slopes": 0.125},
    ),
    "in pieces": ((2, 2, 1, 70, 130, 8), {**IN_PIECES, "causal": False, "span": [3, 90]}),
    "in pieces, causal": ((1, 2, 1, 70, 130, 8), {**IN_PIECES, "distance_bias": np.linspace(-1, 1, 40)}),
    "queries in pieces": (
        (1, 2, 1, 70, 130, 8), {"query_segments": CLUSTERS[0, :70] % 3, "key_segments": np.arange(130) // 44,
                                "key_stop": 99, "span": 9.5},
    ),
    "keys in pieces": ((2, 2, 1, 70, 130, 8), {"query_segments": np.arange(70) // 30, "key_segments": CLUSTERS % 3,
                                               "query_positions": np.arange(60, 130), "span": 30.5}),
}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "options"), EDGES.values(), ids=EDGES)
def test_edge(shape, options, dtype):
    case = named_case(shape, dtype, **options)
    check_case(case)
    if dtype == "float64":
        check_reference(case)


@pytest.mark.parametrize("ids", [[[5, 1, 5, 1, 1, 5, 1], [0, 0, 1, 2, 0, 2, 0]], [2, 0, 2, 0, 2, 0, 2]], ids=str)
@pytest.mark.parametrize("name", [name for name, options in OPTIONS.items() if not options.keys() & NOT_WITH_CLUSTERS])
def test_every_option_works_with_clusters(name, ids):
    """Options of each token, of each batch item, and of neither."""
    query, key, value = make_arrays()
    grad_out, grad_lse = normals(1, *query.shape[:3], value.shape[-1]), normals(2, *query.shape[:3])
    arrays = {"query": query, "key": key, "value": value}
    check_case(PatternCase(arrays, {**OPTIONS[name], "segment_ids": ids}, None, grad_out, grad_lse))


def close(one, two, name=""):
    np.testing.assert_allclose(one, two, rtol=0, atol=1e-11, err_msg=name)


@pytest.mark.parametrize("options", [{"span": 20.5}, {"causal": False, "alibi_slopes": 0.125}], ids=str)
@pytest.mark.parametrize("segments", [PACKED, OTHER_ORDER], ids=["packed", "in another order"])
def test_packed_segments_equal_separate_calls(segments, options):
    query, grad_out = normals(0, 2, 70, 8), normals(1, 2, 70, 8)
    key, value = normals(2, 2, 130, 8), normals(3, 2, 130, 8)
    out, vjp = hs.attention_vjp(query, key, value, **segments, **options)
    gradients = vjp(grad_out)
    for name in np.unique(segments["query_segments"]):
        queries, keys = segments["query_segments"] == name, segments["key_segments"] == name
        if not keys.any():
            assert not out[:, queries].any()
            continue
        one, part_vjp = hs.attention_vjp(query[:, queries], key[:, keys], value[:, keys], **{"causal": True, **options})
        part_gradients = part_vjp(grad_out[:, queries])
        close(out[:, queries], one)
        close(gradients.query[:, queries], part_gradients.query)
        close(gradients.key[:, keys], part_gradients.key)
        close(gradients.value[:, keys], part_gradients.value)


def test_clusters_equal_separate_calls_at_the_positions_of_their_tokens():
    arrays, ids = [normals(i, 2, 130, 8) for i in range(3)], CLUSTERS[0]
    out, lse = hs.attention(*arrays, segment_ids=ids, span=20.5, return_lse=True)
    for name in np.unique(ids):
        mine = np.flatnonzero(ids == name)
        places = {"query_positions": mine, "key_positions": mine}
        expected, expected_lse = hs.attention(*(a[:, mine] for a in arrays), span=20.5, return_lse=True, **places)
        close(out[:, mine], expected)
        close(lse[:, mine], expected_lse)


@pytest.mark.parametrize("dtype", DTYPES)
def test_segments_of_both_are_those_of_all_where_queries_are_the_last_keys(dtype):
    """The bits are the same, since no row is moved."""
    arrays, *grads = make_arguments((2, 1, 70, 130, 8), dtype)
    ids = np.arange(130) // 37
    one = all_bits(arrays, *grads, segment_ids=ids, span=20.5, temperature=2.0)
    both = {"query_segments": ids[60:], "key_segments": ids}
    for name, result in all_bits(arrays, *grads, **both, span=20.5, temperature=2.0).items():
        assert result.tobytes() == one[name].tobytes(), name
    request = Request(arrays["query"], arrays["key"], arrays["value"], both)
    assert isinstance(request.core, _core.Request)


@pytest.mark.parametrize("ids", [CLUSTERS, CLUSTERS[0]], ids=["of each item", "of all items"])
def test_weights_of_clusters_are_of_the_tokens_asked_for(ids):
    query, key, value = (normals(i, 2, 4, 130, 8) for i in range(3))
    options = {"segment_ids": ids, "span": [3, 20, 40, 90], "alibi_slopes": [[0.1], [0.2]], "sinks": 0.5}
    options |= {"pair_bias": np.cos(np.arange(130 * 130.0)).reshape(130, 130), "distance_bias": [0.0, 1.0, 2.0]}
    weights = hs.attention_weights(query, key, **options)
    close(weights @ value, hs.attention(query, key, value, **options))
    rows, cols = RNG.permutation(130)[:50], RNG.permutation(130)[:77]
    close(hs.attention_weights(query, key, rows=rows, cols=cols, **options), weights[:, :, rows][..., cols])
    pooled = hs.attention_weights(query, key, pool=(10, 13), **options)
    close(pooled, weights.reshape(2, 4, 13, 10, 10, 13).sum(axis=-1).mean(axis=3))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ids", [CLUSTERS, CLUSTERS[0]], ids=["of each item", "of all items"])
def test_a_bias_of_pairs_works_with_clusters(ids, dtype):
    for lead in ((), (4,), (2, 1)):
        bias = np.cos(np.arange(np.prod((*lead, 70, 130), dtype=float))).reshape(*lead, 70, 130).astype(dtype)
        bias[..., ::7, ::3] = -np.inf
        check_case(named_case((2, 4, 2, 70, 130, 8), dtype, segment_ids=ids, pair_bias=bias, span=40.5))


def test_results_of_clusters_are_written_to_arrays_of_the_caller():
    query, key, value, grad_out = (normals(i, 2, 4, 130, 8) for i in range(4))
    request = Request(query, key, value, {"segment_ids": CLUSTERS, "span": 20.5})
    out = np.full((2, 130, 4, 8), np.nan).swapaxes(1, 2)
    got, _, saved = forward(request, out=out)
    assert got is out
    into = {name: np.full((2, 4, 130, 8), np.nan) for name in ("query", "value")}
    gradients = backward(request, saved, grad_out, needs=("query", "value", "span"), into=into)
    expected, vjp = hs.attention_vjp(query, key, value, segment_ids=CLUSTERS, span=20.5)
    assert out.tobytes() == expected.tobytes()
    assert gradients.keys() == {"query", "value", "span"}
    for name, gradient in gradients.items():
        assert np.array_equal(gradient, getattr(vjp(grad_out), name)), name
        assert name == "span" or gradient is into[name]


def test_ids_can_be_any_integers():
    arrays = [normals(i, 2, 40, 8) for i in range(3)]
    ids = np.arange(40) % 3
    expected = hs.attention(*arrays, segment_ids=ids)
    for names in ([7, -3, 2**62], [0, 1, 2], [-5, -4, -(2**63)]):
        assert hs.attention(*arrays, segment_ids=np.array(names)[ids]).tobytes() == expected.tobytes()
    both = {"query_segments": ids.astype(np.uint8), "key_segments": ids.tolist()}
    assert hs.attention(*arrays, **both).tobytes() == expected.tobytes()


def test_dropout_is_refused_with_clusters():
    """Dropout depends on the places of tokens, which clusters change and consecutive documents do not."""
    query, key, value = make_arrays()
    options = {"dropout": 0.5, "seed": 1}
    with pytest.raises(ValueError, match="segment_ids that recur"):
        hs.attention(query, key, value, segment_ids=[0, 1, 0, 1, 0, 1, 0], **options)
    assert hs.attention(query, key, value, segment_ids=[0, 0, 0, 1, 1, 1, 1], **options).shape == (2, 4, 5, 2)
