"""Positions, lengths, segments and biases of keys: on their own, together, and what they mean."""

import itertools

import headspan as hs
import numpy as np
import oracle
import pytest
from bits import all_bits, make_arguments
from cases import DTYPES, HEADS, normals
from pattern_cases import SEEDS, SIZES, check_case, draw_case, named_case

pytestmark = pytest.mark.numerical

INF = np.inf
STEPS = np.cumsum(np.resize([0, 0.25, 1, 2.5, 0, 0, 1], 130))
TABLE = np.cos(np.arange(30.0))
EVERY_OTHER = np.where(np.arange(130) % 2, -INF, 0.25)
# name: (batch, heads, key_heads, queries, keys, head_dim), options
EDGES = {
    "key positions": ((1, 2, 1, 130, 130, 8), {"key_positions": STEPS, "span": [3.5, 40], "alibi_slopes": 0.125}),
    "key positions, fewer queries": ((1, 2, 1, 40, 130, 8), {"key_positions": STEPS, "span": [3.5, 40], "ramp": 2.5}),
    "query positions": ((1, 2, 1, 130, 70, 8), {"query_positions": STEPS - 9, "span": [3.5, 40], "causal": False}),
    "query positions, fewer queries": ((1, 2, 1, 3, 130, 8), {"query_positions": [-1, 4.5, 200], "span": [3.5, 400]}),
    "one query": ((2, 2, 1, 1, 300, 8), {"query_positions": [[50.5], [299]], "span": [3.5, 40]}),
    "both": ((1, 2, 1, 70, 130, 8), {"query_positions": STEPS[:70] + 8, "key_positions": STEPS, "span": 5.25}),
    "more queries, both": ((1, 1, 1, 130, 7, 8), {"query_positions": STEPS, "key_positions": STEPS[:7], "span": 4}),
    "a batch of different positions": (
        (2, 2, 1, 130, 130, 8), {"key_positions": np.stack([STEPS, np.arange(130)]), "span": [3, 40], "causal": False},
    ),
    "a batch at one place, its keys at others": (
        (2, 2, 1, 130, 130, 8), {"query_positions": STEPS, "key_positions": np.stack([STEPS, STEPS + 3.25]), "span": 9},
    ),
    "by distance, queries in line and keys not": (
        (1, 2, 1, 130, 130, 8), {"query_positions": np.arange(130), "key_positions": np.arange(130) // 3,
                                 "distance_bias": np.linspace(-1, 1, 50)},
    ),
    "by distance, keys in line and queries not": (
        (1, 2, 1, 130, 130, 8), {"query_positions": np.arange(130) // 2, "distance_bias": np.linspace(-1, 1, 90)},
    ),
    "one place": ((1, 1, 1, 70, 70, 8), {"key_positions": np.full(70, 2.5), "span": 0, "ramp": 0}),
    "one place, without self": ((1, 1, 1, 70, 70, 8), {"key_positions": np.full(70, 2.5), "include_self": False}),
    "repeated, without self": (
        (1, 2, 1, 90, 90, 8), {"key_positions": np.arange(90) // 4, "include_self": False, "span": [2, 9], "ramp": 3},
    ),
    # The queries stand one after another, and their keys do not.
    "a bias by distance, keys at halves": (
        (1, 2, 1, 70, 90, 8),
        {"query_positions": np.arange(70) - 20, "key_positions": np.arange(90) + 0.5, "distance_bias": TABLE},
    ),
    "a bias by distance, keys at halves, both directions": (
        (1, 2, 1, 70, 90, 8),
        {"query_positions": np.arange(70) - 20, "key_positions": np.arange(90) / 2 - 10, "distance_bias": TABLE,
         "causal": False},
    ),
    "a bias by distance, keys two apart": (
        (1, 2, 1, 70, 90, 8),
        {"query_positions": np.arange(70) - 20, "key_positions": np.arange(90) * 2 - 100, "distance_bias": TABLE},
    ),
    "a bias by distance, one query": (
        (1, 2, 1, 1, 90, 8), {"query_positions": [50], "key_positions": STEPS[:90], "distance_bias": TABLE},
    ),
    "gaps beyond the span": (
        (1, 1, 1, 90, 90, 8), {"key_positions": np.arange(90) * 100.25, "span": 50, "include_self": False},
    ),
    "all queries before all keys": ((1, 1, 1, 90, 90, 8), {"query_positions": STEPS[:90] - 500}),
    "all queries behind all keys": ((1, 1, 1, 90, 90, 8), {"query_positions": STEPS[:90] + 500, "span": 450}),
    "far": ((1, 2, 1, 130, 130, 8), {"key_positions": 1e9 + STEPS, "span": [3.25, 40], "alibi_slopes": 0.1}),
    "far, the other way": ((1, 2, 1, 130, 130, 8), {"key_positions": STEPS - 1e9, "span": [3.25, 40], "causal": False}),
    "far whole numbers": (
        (1, 1, 1, 70, 130, 8), {"key_positions": 2**40 + np.arange(130), "span": 9, "include_self": False, "ramp": 1},
    ),
    "length 0": ((1, 2, 1, 70, 70, 8), {"key_stop": 0, "span": 9}),
    "every length": ((4, 2, 1, 70, 70, 8), {"key_stop": [0, 1, 64, 70], "span": [5, 50]}),
    "begin 0 and every key": ((2, 2, 1, 70, 70, 8), {"key_start": [0, 70], "span": [5, 50]}),
    "begin": ((3, 2, 1, 70, 130, 8), {"key_start": [65, 1, 129], "causal": False}),
    "begin and lengths": ((4, 2, 1, 130, 130, 8), {"key_start": [3, 64, 70, 9], "key_stop": [100, 64, 70, 10]}),
    "begin, in a band": ((2, 2, 1, 200, 200, 8), {"key_start": [70, 3], "span": [9, 40], "include_self": False}),
    "begin, few queries": ((3, 4, 2, 2, 5000, 8), {"key_start": [4999, 17, 1500], "alibi_slopes": 0.125}),
    "lengths, both directions": ((3, 2, 1, 70, 130, 8), {"key_stop": [65, 0, 129], "causal": False}),
    "length, more queries": ((2, 2, 1, 130, 70, 8), {"key_stop": [65, 3], "span": 7.5, "causal": True}),
    "decode at lengths": ((3, 4, 2, 1, 3000, 8), {"key_stop": [2999, 17, 1500], "span": 1e6, "causal": False}),
    "one segment": ((1, 2, 1, 70, 70, 8), {"segment_ids": np.full(70, -5), "span": 9}),
    "segments of one token": ((1, 2, 1, 70, 70, 8), {"segment_ids": np.arange(70)[::-1], "span": 9, "causal": False}),
    "one token each, without self": ((1, 1, 1, 70, 70, 8), {"segment_ids": np.arange(70), "include_self": False}),
    "segments": ((1, 2, 1, 130, 130, 8), {"segment_ids": np.arange(130) // 37, "causal": False, "span": [3, 90]}),
    "a segment that ends at the last lane of a group": (
        (1, 2, 1, 130, 130, 8), {"segment_ids": np.arange(130) // 63, "causal": False, "span": [3, 90]},
    ),
    "a segment that ends there, causal": ((1, 2, 1, 130, 130, 8), {"segment_ids": np.arange(130) // 63}),
    "the last key at the very span": (
        (1, 1, 1, 1, 64, 8), {"query_positions": [0.0], "span": 63, "ramp": 4, "causal": False},
    ),
    "segments in a batch": (
        (2, 2, 1, 130, 130, 8), {"segment_ids": np.arange(130) // [[64], [65]], "span": 50.5},
    ),
    "segments, the last queries": ((1, 2, 1, 40, 130, 8), {"segment_ids": np.arange(130) // 37, "causal": False}),
    "segments and positions within": (
        (1, 2, 1, 130, 130, 8), {"segment_ids": np.arange(130) // 37, "key_positions": STEPS, "span": 9},
    ),
    "no bias": ((1, 2, 1, 70, 70, 8), {"key_bias": np.zeros(70), "span": 9}),
    "every key removed": ((1, 2, 1, 70, 70, 8), {"key_bias": np.full(70, -INF), "causal": False}),
    "every key of a head removed": ((1, 2, 1, 70, 70, 8), {"key_bias": [[-INF] * 70, [0.5] * 70], "span": 9}),
    "every other key removed": ((2, 4, 2, 130, 130, 8), {"key_bias": EVERY_OTHER, "span": [1, 5, 40, 200], "ramp": 3}),
    "all but the first": ((1, 1, 1, 70, 70, 8), {"key_bias": np.where(np.arange(70) > 0, -INF, 2.0), "span": 30}),
    "a bias of whole numbers": ((1, 2, 1, 70, 70, 8), {"key_bias": np.arange(70) % 3, "span": 9}),
    "one bias for all heads": ((2, 2, 1, 70, 70, 8), {"key_bias": np.cos(np.arange(140.0)).reshape(2, 1, 70)}),
    "one bias for the batch": ((2, 2, 1, 70, 70, 8), {"key_bias": np.cos(np.arange(140.0)).reshape(1, 2, 70)}),
    "a bias at different temperatures": ((1, 2, 1, 70, 70, 8), {"key_bias": np.ones(70), "temperature": [0.5, 2.0]}),
    "decode with a bias": ((2, 4, 2, 1, 3000, 8), {"key_bias": np.cos(np.arange(12000)).reshape(4, 3000)}),
    "one key": ((1, 1, 1, 5, 1, 8), {"key_bias": [3.0], "key_stop": 1, "causal": False}),
}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "options"), EDGES.values(), ids=EDGES)
def test_edge(shape, options, dtype):
    check_case(named_case(shape, dtype, **options))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_case(seed, dtype):
    rng = np.random.default_rng([33, seed, DTYPES.index(dtype)])
    queries, keys = (int(size) for size in rng.choice(SIZES, 2))
    sizes = (int(rng.integers(1, 3)), *HEADS[rng.integers(3)], queries, queries if rng.random() < 0.5 else keys)
    ndim = int(rng.choice([4, 4, 3]))
    sizes = sizes if ndim == 4 else (1, *sizes[1:])
    check_case(draw_case(rng, dtype, None, sizes, ndim, int(rng.choice([3, 8, 16, 33])), share=0.5))


def bursts(rng, gap, tokens=130):
    """Five events within 10 units, then nothing for as long as the gap."""
    return np.sort(np.arange(tokens) // 5 * gap + rng.uniform(0, 10, tokens))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("exponent", range(16))
def test_distances_are_exact_at_every_scale(exponent, causal, dtype):
    """A distance is right to one rounding however far tokens stand apart, and wherever they all stand."""
    rng, scale = np.random.default_rng([34, exponent, causal]), 10.0**exponent
    shape, ramp = (1, 2, 1, 130, 130, 8), {"causal": causal, "ramp": 4}
    check_case(named_case(shape, dtype, key_positions=bursts(rng, scale), span=[2, 5], **ramp))
    check_case(named_case(shape, dtype, key_positions=scale + bursts(rng, 50), span=[2, 5], **ramp))
    check_case(named_case(shape, dtype, key_positions=bursts(rng, scale), alibi_slopes=[0.125, 0.5], causal=causal))
    spread = {"query_positions": np.sort(scale * rng.random(130)), "key_positions": np.sort(scale * rng.random(130))}
    check_case(named_case(shape, dtype, **spread, span=[scale / 9, scale / 3], **ramp | {"ramp": scale / 7}))
    slopes = np.array([1, 4]) / scale
    check_case(named_case((1, 2, 1, 3, 130, 8), dtype, key_positions=np.sort(scale * rng.random(130)),
                          alibi_slopes=slopes, causal=causal))  # fmt: skip


def close(one, two, name=""):
    np.testing.assert_allclose(one, two, rtol=0, atol=1e-11, err_msg=name)


FORMS = {
    "list": lambda a: a.tolist(),
    "tuple": lambda a: tuple(a.tolist()),
    "int32": lambda a: a.astype(np.int32),
    "uint8": lambda a: a.astype(np.uint8),
    "strided": lambda a: np.repeat(a, 2, axis=0)[::2],
    "backwards": lambda a: a[::-1].copy()[::-1],
    "read-only": lambda a: np.broadcast_to(a, (1, *a.shape))[0],
}
VALUES = {
    "key_positions": np.arange(70) // 3, "query_positions": np.arange(70) // 2, "segment_ids": np.arange(70) // 9,
    "key_ranges": np.stack([np.arange(70) // 2, np.arange(70) + 1], axis=-1), "prefix_lengths": np.array([9, 33]),
    "key_start": np.array([60, 3]), "key_stop": np.array([60, 3]), "key_bias": np.arange(70) % 4,
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("name", VALUES)
def test_forms(name, form):
    """Lists and arrays of any whole type, in any arrangement, give the same bits."""
    query, key, value = (normals(i, 2, 2, 70, 8) for i in range(3))
    expected = hs.attention(query, key, value, span=20, **{name: VALUES[name]})
    out = hs.attention(query, key, value, span=20, **{name: form(VALUES[name])})
    assert out.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_indices_as_positions(dtype):
    """Positions that equal the indices give the results without positions."""
    arrays, *grads = make_arguments((4, 2, 130, 200, 8), dtype)
    options = {"span": 20.25, "alibi_slopes": 0.125}
    plain = all_bits(arrays, *grads, **options)
    for positions in (
        {"key_positions": np.arange(200)},
        {"query_positions": np.arange(70, 200)},
        {"query_positions": np.arange(130) - 30.0, "key_positions": np.arange(200) - 100.0},
    ):
        for name, result in all_bits(arrays, *grads, **options, **positions).items():
            apart = 1e-11 if dtype == "float64" else 1e-4
            np.testing.assert_allclose(result, plain[name], rtol=apart, atol=apart, err_msg=name)


def test_segments_equal_separate_calls():
    bounds = [0, 1, 30, 95, 96, 160]
    arrays = [normals(i, 2, 2, 160, 8) for i in range(3)]
    ids = hs.segment_ids(bounds)
    for options in ({"span": 20.5}, {"causal": False, "alibi_slopes": 0.125}):
        out, lse = hs.attention(*arrays, segment_ids=ids, return_lse=True, **options)
        for first, last in itertools.pairwise(bounds):
            parts = [array[:, :, first:last] for array in arrays]
            expected, expected_lse = hs.attention(*parts, return_lse=True, **options)
            close(out[:, :, first:last], expected)
            close(lse[..., first:last], expected_lse)


def test_lengths_are_shorter_keys():
    query, key, value = normals(0, 3, 2, 40, 8), normals(1, 3, 2, 70, 8), normals(2, 3, 2, 70, 8)
    out = hs.attention(query, key, value, causal=False, key_stop=[70, 33, 1])
    for item, length in enumerate([70, 33, 1]):
        expected = hs.attention(query[item], key[item, :, :length], value[item, :, :length], causal=False)
        close(out[item], expected)


def test_padding_on_the_left_is_fewer_keys():
    """Queries of the padding see nothing, and the others what they see without padding."""
    query, key, value = (normals(i, 3, 2, 70, 8) for i in range(3))
    out, lse = hs.attention(query, key, value, span=9.5, key_start=[0, 33, 69], return_lse=True)
    for item, begin in enumerate([0, 33, 69]):
        expected = hs.attention(*(array[item, :, begin:] for array in (query, key, value)), span=9.5)
        close(out[item, :, begin:], expected)
        assert not out[item, :, :begin].any()
        assert np.isneginf(lse[item, :, :begin]).all()


def test_removed_keys_are_left_out():
    """The keys that are left keep their positions."""
    query, key, value = (normals(i, 2, 70, 8) for i in range(3))
    left = np.arange(70) % 5 < 3
    options = {"span": 9.5, "alibi_slopes": 0.125, "return_lse": True}
    removed = hs.attention(query, key, value, key_bias=np.where(left, 0, -INF), **options)
    places = {"query_positions": np.arange(70), "key_positions": np.flatnonzero(left)}
    fewer = hs.attention(query, key[:, left], value[:, left], **places, **options)
    for one, two in zip(removed, fewer, strict=True):
        close(one, two)


@pytest.mark.parametrize("poison", [np.nan, np.inf], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_keys_that_a_bias_removes_are_never_read(dtype, poison):
    query, key, value = (normals(i, 2, 130, 8).astype(dtype) for i in range(3))
    removed = np.arange(130) % 3 == 1

    def results(key, value):
        bias = np.where(removed, -INF, 0.25)
        (out, lse), vjp = hs.attention_vjp(query, key, value, key_bias=bias, causal=False, return_lse=True)
        return [out, lse, *(g for g in vjp(np.ones_like(out), np.ones_like(lse)) if g is not None)]

    dirty = (np.where(removed[:, None], poison, array).astype(dtype) for array in (key, value))
    for one, two in zip(results(key, value), results(*dirty), strict=True):
        np.testing.assert_array_equal(one, two)


def test_a_bias_is_one_more_number_of_every_key():
    """Scores q.k + b are those of (q, 1) and (k, b): so are the gradients."""
    query, key, value, grad_out = (normals(i, 2, 70, 8) for i in range(4))
    bias = normals(5, 2, 70)
    out, vjp = hs.attention_vjp(query, key, value, key_bias=bias, scale=0.5, span=20)
    wide = np.concatenate([query, np.ones((2, 70, 1))], -1), np.concatenate([key, 2 * bias[..., None]], -1)
    wide_out, wide_vjp = hs.attention_vjp(*wide, value, scale=0.5, span=20)
    close(out, wide_out)
    close(vjp(grad_out).key_bias, 2 * wide_vjp(grad_out).key[..., 8])
    close(vjp(grad_out).query, wide_vjp(grad_out).query[..., :8])


def test_parts_of_the_keys_merge_to_the_whole():
    query, key, value = (normals(i, 2, 70, 8) for i in range(3))
    part = np.arange(70) % 3 == 0
    halves = [
        hs.attention(query, key, value, key_bias=np.where(one, 0.5, -INF), span=30, return_lse=True)
        for one in (part, ~part)
    ]
    expected = hs.attention(query, key, value, key_bias=np.full(70, 0.5), span=30, return_lse=True)
    for one, two in zip(hs.merge_attention(*zip(*halves, strict=True)), expected, strict=True):
        close(one, two)


NOTHING = {
    "length 0": {"key_stop": 0},
    "removed": {"key_bias": np.full(70, -INF)},
    "empty ranges": {"key_ranges": [[5, 5]] * 70},
    "out of place": {"query_positions": np.arange(70) - 100},
    "alone": {"segment_ids": np.arange(70), "include_self": False},
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", NOTHING.values(), ids=NOTHING)
def test_rows_with_nothing(options, dtype):
    """Results are zeros and -inf, and no number is read: also if every key and value is NaN."""
    arrays, *grads = make_arguments((2, 1, 70, 70, 8), dtype)
    for poison in (0, np.nan):
        spoiled = {name: arrays[name] + arrays[name].dtype.type(poison) for name in ("key", "value")}
        results = all_bits(
            {**arrays, **spoiled}, *grads, **{"span": 9.5, "temperature": 2.0, "alibi_slopes": 0.5} | options
        )
        assert np.isneginf(results.pop("lse")).all()
        for name, result in results.items():
            assert not np.any(result), name


@pytest.mark.parametrize(
    "bounds", [[0, 3, 7], [0, 1], [0, 5, 6, 7, 100], (0, 2, 4), np.array([0, 9, 11], np.int32)], ids=str
)
def test_segments_from(bounds):
    ids = hs.segment_ids(bounds)
    assert ids.dtype.kind == "i"
    np.testing.assert_array_equal(ids, [i for i in range(len(bounds) - 1) for _ in range(bounds[i], bounds[i + 1])])


def test_segments_from_with_an_empty_sequence():
    _, counts = np.unique(hs.segment_ids([0, 3, 3, 7]), return_counts=True)
    assert counts.tolist() == [3, 4]


@pytest.mark.parametrize("dtype", DTYPES)
def test_importance_from(dtype):
    x, weight, bias = normals(0, 2, 5, 3, dtype=dtype), normals(1, 4, 3, dtype=dtype), normals(2, 4, dtype=dtype)
    expected = np.zeros((2, 4, 5))
    for b, h, t in np.ndindex(2, 4, 5):
        expected[b, h, t] = sum(float(x[b, t, c]) * float(weight[h, c]) for c in range(3)) + float(bias[h])
    (values, vjp), alone = hs.key_importance_vjp(x, weight, bias), hs.key_importance(x, weight, bias)
    assert values.dtype == alone.dtype == dtype
    np.testing.assert_array_equal(values, alone)
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-12 if dtype == "float64" else 1e-5)
    for gradient, argument in zip(vjp(np.ones((2, 4, 5), dtype)), (x, weight, bias), strict=True):
        assert gradient.dtype == dtype
        assert gradient.shape == argument.shape


def test_importance_from_vjp_by_central_differences():
    """Directly, and through attention with the values as key_bias."""
    arguments = [normals(0, 2, 5, 3), normals(1, 4, 3), normals(2, 4)]
    arrays, grad = [normals(i, 2, 4, 5, 3) for i in (3, 4, 5)], normals(6, 2, 4, 5)
    values, vjp = hs.key_importance_vjp(*arguments)
    out, attention_vjp = hs.attention_vjp(*arrays, key_bias=values, span=2.25)
    through = vjp(attention_vjp(out).key_bias)
    for i, (alone, deep) in enumerate(zip(vjp(grad), through, strict=True)):

        def importance(a, i=i):
            return hs.key_importance(*arguments[:i], a, *arguments[i + 1 :])

        def loss(a, importance=importance):
            return np.vdot(hs.attention(*arrays, key_bias=importance(a), span=2.25), out)

        expected = oracle.central_difference(lambda a, make=importance: np.vdot(make(a), grad), arguments[i])
        np.testing.assert_allclose(alone, expected, rtol=0, atol=1e-7)
        np.testing.assert_allclose(deep, oracle.central_difference(loss, arguments[i]), rtol=0, atol=1e-7)
