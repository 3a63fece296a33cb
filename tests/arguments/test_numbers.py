"""Numbers at the edge of their type: what fits is exact, what does not is refused, and nothing wraps around."""

from fractions import Fraction

import headspan as hs
import numpy as np
import pytest
from bad_values import check_sentence
from cases import DTYPES, normals
from tolerances import check_close


def arrays(dtype, *shape):
    return [normals(i, *shape, dtype=dtype) for i in range(3)]


LEAST = {
    "for some": lambda least: np.where(np.arange(70) % 3, 0.5, least),
    "for the first": lambda least: np.where(np.arange(70) < 9, least, 0.5),
    "for all": lambda least: np.full(70, least),
    "for all but the removed": lambda least: np.where(np.arange(70) % 3, -np.inf, least),
    "the largest": lambda least: np.where(np.arange(70) % 3, 0.5, -least),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("make", LEAST.values(), ids=LEAST)
def test_key_bias_may_be_the_least_number(make, dtype):
    """As masks are often written; such keys count where there are no others."""
    query, key, value = arrays(dtype, 2, 70, 8)
    bias = make(np.finfo(dtype).min).astype(dtype)
    (out, lse), vjp = hs.attention_vjp(query, key, value, key_bias=bias, span=40, return_lse=True)
    wide = [array.astype(float) for array in (query, key, value)]
    with np.errstate(over="ignore"):  # the plain definition has no room to subtract the largest from the least
        expected = hs.reference.attention(*wide, key_bias=bias, span=40)
    check_close("out", out, expected, dtype)
    assert not np.isnan(lse).any()
    for gradient in vjp(np.ones_like(out)):
        assert gradient is None or np.isfinite(gradient).all()


TOO_LARGE = {
    "scale": {"scale": 1e39},
    "scale / temperature": {"scale": 1e30, "temperature": 1e-9},
    "alibi_slopes": {"alibi_slopes": [1.0, -1e38]},
    "alibi_slopes * distance": {"alibi_slopes": 1.0, "key_positions": np.arange(20) * 1e38},
    "temperature": {"temperature": 1e39},
    "key_bias": {"key_bias": np.full(20, -1e39)},
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_factors_must_fit_into_the_type(name):
    query, key, value = arrays("float32", 2, 20, 8)
    with pytest.raises(ValueError, match="must fit into float32") as caught:
        hs.attention(query, key, value, **TOO_LARGE[name])
    check_sentence(caught.value, name)
    if name != "alibi_slopes * distance":
        wide = hs.attention(*(a.astype(float) for a in (query, key, value)), **TOO_LARGE[name])
        assert np.isfinite(wide).all()


@pytest.mark.parametrize("first", [0, 10**18, -(10**18), 2**63 - 100])
@pytest.mark.parametrize("kind", [np.int64, np.uint64])
def test_positions_of_any_magnitude(first, kind):
    """Times in nanoseconds: only differences count."""
    if first < 0 and kind is np.uint64:
        return
    query, key, value = arrays("float64", 2, 20, 8)
    steps = np.cumsum(np.arange(20) % 3)
    places = {"query_positions": steps[-5:] + 1, "key_positions": steps}
    far = {name: at.astype(kind) + kind(first) for name, at in places.items()}
    for options in ({"span": 2.5, "ramp": 4}, {"alibi_slopes": 0.5, "include_self": False}):
        near = hs.attention(query[:, -5:], key, value, **places, **options)
        assert hs.attention(query[:, -5:], key, value, **far, **options).tobytes() == near.tobytes()


def test_positions_of_small_integers():
    query, key, value = arrays("float64", 2, 20, 8)
    small = {
        "query_positions": np.arange(230, 250, dtype=np.uint8),
        "key_positions": np.arange(-128, -108, dtype=np.int8),
    }
    plain = {name: at.astype(float) for name, at in small.items()}
    assert hs.attention(query, key, value, **small).tobytes() == hs.attention(query, key, value, **plain).tobytes()


@pytest.mark.parametrize("last", [2**54, 2**63 + 5])
def test_positions_too_far_apart(last):
    with pytest.raises(ValueError, match="positions") as caught:
        hs.attention(*arrays("float64", 2, 20, 8), key_positions=np.array([0] * 19 + [last], np.uint64))
    check_sentence(caught.value, "positions")


@pytest.mark.parametrize("span", [10**30, Fraction(7, 2), np.longdouble(3.5)], ids=str)
def test_spans_of_any_kind_of_number(span):
    query, key, value = arrays("float64", 2, 20, 8)
    expected = hs.attention(query, key, value, span=float(span))
    assert hs.attention(query, key, value, span=span).tobytes() == expected.tobytes()


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint8])
def test_cost_counts_beyond_the_integers_it_is_given(kind):
    sizes = {"tokens": 200, "num_heads": 100, "head_dim": 250, "batch": 200}
    cost, expected = hs.cost(**{name: kind(n) for name, n in sizes.items()}), hs.cost(**sizes)
    assert cost[:4] == expected[:4] == (402_000_000, 402_000_000_000, 1_005_000_000_000, 800_000_000_000)
    assert all(type(n) is int for n in cost[:4])
    assert list(cost.head_pairs) == [200 * 20100] * 100


@pytest.mark.parametrize("kind", [np.int8, np.int16, np.int64, np.float32, np.longdouble])
def test_soft_mask_of_any_type(kind):
    distance = np.array([-128, -9, 9, 127], kind)
    mask = hs.soft_mask(distance, kind(8), ramp=4)
    assert mask.dtype == np.float64
    np.testing.assert_array_equal(mask, [0, 0.75, 0.75, 0])


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.uint32, np.uint64])
def test_segments_of_unsigned_integers(kind):
    np.testing.assert_array_equal(hs.segment_ids(np.array([0, 2, 2, 5], kind)), [0, 0, 2, 2, 2])
    with pytest.raises(ValueError, match="cumulative_lengths must ascend"):
        hs.segment_ids(np.array([0, 5, 3], kind))


@pytest.mark.parametrize("dtype", DTYPES)
def test_span_penalty_goes_with_spans_of_its_type(dtype):
    x, weight, bias = normals(0, 2, 5, 3, dtype=dtype), normals(1, 4, 3, dtype=dtype), normals(2, 4, dtype=dtype)
    span, vjp = hs.dynamic_span_vjp(x, weight, bias, 50)
    gradient = hs.span_penalty_vjp(span, 0.1)[1]().span
    assert gradient.dtype == dtype
    assert vjp(gradient)[0].dtype == dtype


def test_limit_must_fit_into_the_type():
    with pytest.raises(ValueError, match="max_span must fit into float32"):
        hs.dynamic_span(*(np.ones(shape, np.float32) for shape in ((1, 3, 2), (4, 2), 4)), max_span=1e300)


@pytest.mark.parametrize("value", [1e-50, 1e-42])
def test_a_temperature_that_float32_cannot_divide_by_is_refused(value):
    with pytest.raises(ValueError, match="temperature must be greater than 0"):
        hs.attention(*arrays("float32", 2, 20, 8), temperature=value)


@pytest.mark.parametrize("name", ["max_span", "temperature_range"])
def test_hybrid_limits_fit_the_type_of_x(name):
    parameters = hs.hybrid.hybrid_parameters(6, 3, dtype=np.float32)
    with pytest.raises(ValueError, match=f"{name} must fit into float32"):
        hs.hybrid.hybrid_attention(
            np.ones((2, 5, 6), np.float32), parameters, **({"num_heads": 3, "max_span": 1.0} | {name: 1e300})
        )


def test_soft_mask_takes_the_absolute_distance():
    np.testing.assert_array_equal(hs.soft_mask([-7, -4, -3], 2, 4), hs.soft_mask([7, 4, 3], 2, 4))
    np.testing.assert_array_equal(hs.soft_mask([-3, -2], 2, 0), [0, 1])


def test_span_penalty_sums_in_double():
    assert hs.span_penalty(np.array([1, 2**25], np.float32), 1) == (2**25 + 1) / 2


def test_the_only_key_at_the_very_end_of_the_ramp():
    """In float32 nothing is left of its mask, but it is the only one."""
    query, key, value = arrays("float32", 70, 8)
    out = hs.attention(query, key, value, span=0, ramp=1 + 1e-9, include_self=False)
    check_close("out", out[1:], value[:-1], "float32")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("queries", [1, 5, 70])
def test_scores_far_beyond_what_an_exponential_holds(queries, dtype):
    """All pairs score the same, so it changes nothing how much; nor does it in lanes that hold no query."""
    query, key, value = np.ones((queries, 4), dtype), np.ones((64, 4), dtype), normals(0, 64, 3, dtype=dtype)
    grad_out = normals(1, queries, 3, dtype=dtype)
    large, none = (
        hs.attention_vjp(query, key, value, key_bias=np.full(64, score, dtype), scale=score, causal=False)
        for score in (1000.0, 0.0)
    )
    assert large[0].tobytes() == none[0].tobytes()
    for name in ("value", "key_bias"):
        assert getattr(large[1](grad_out), name).tobytes() == getattr(none[1](grad_out), name).tobytes(), name
