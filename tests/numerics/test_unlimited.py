"""A span of inf means no limit wherever a span is taken, and one number means all heads."""

import json
import math

import headspan as hs
import numpy as np
import pytest
from cases import normals
from headspan.patterns import Window

HEADS = [4.0, math.inf]
QUERY = normals(0, 1, 2, 30, 4)
FULL = hs.attention(QUERY, QUERY, QUERY, span=[4, 1000], ramp=3)


def cache_of(span, key_heads=2):
    return hs.SpanCache(1, key_heads, 4, span=span, ramp=3, dtype=QUERY.dtype)


def stream_of(span, key_heads=2):
    return hs.memory.StreamingAttention(
        1, key_heads, 4, slots=40, window=4, decay=0.9, span=span, ramp=3, dtype=QUERY.dtype
    )


def test_attention_its_gradient_and_its_cost_without_a_limit():
    np.testing.assert_array_equal(hs.attention(QUERY, QUERY, QUERY, span=HEADS, ramp=3), FULL)
    np.testing.assert_array_equal(hs.attention(QUERY, QUERY, QUERY, span=math.inf), hs.attention(QUERY, QUERY, QUERY))
    tokens = np.where(np.arange(30) < 7, math.inf, 2.0) * np.ones((1, 2, 1))
    finite = np.minimum(tokens, 1000)
    np.testing.assert_array_equal(
        hs.attention(QUERY, QUERY, QUERY, span=tokens), hs.attention(QUERY, QUERY, QUERY, span=finite)
    )
    gradient = hs.attention_vjp(QUERY, QUERY, QUERY, span=HEADS, ramp=3)[1](QUERY).span
    assert gradient[0] != 0
    assert gradient[1] == 0
    sizes = {"tokens": 30, "num_heads": 2, "head_dim": 4, "ramp": 3}
    for more in ({}, {"decode": True}, {"ranks": 3}):
        with_inf, long = (hs.cost(**sizes, **more, span=[4, far]) for far in (math.inf, 1e30))
        assert json.dumps(with_inf, default=str) == json.dumps(long, default=str)


@pytest.mark.parametrize("wrong", [math.nan, -math.inf, [1.0, math.nan], [1.0, -math.inf]])
def test_nan_and_minus_inf_are_no_spans(wrong):
    for call in (
        lambda: hs.attention(QUERY, QUERY, QUERY, span=wrong),
        lambda: cache_of(wrong),
        lambda: cache_of(None).attend(QUERY, QUERY, QUERY, span=wrong),
        lambda: stream_of(wrong),
        lambda: hs.soft_mask([1.0], wrong),
    ):
        with pytest.raises(ValueError, match="span must be finite"):
            call()


@pytest.mark.parametrize("make", [cache_of, stream_of])
def test_caches_and_streams_without_a_limit(make):
    cache = make(HEADS)
    np.testing.assert_array_equal(cache.span, HEADS)
    np.testing.assert_allclose(cache.attend(QUERY, QUERY, QUERY), FULL, rtol=1e-12)
    again = type(cache).from_state_dict(cache.state_dict())
    np.testing.assert_array_equal(again.span, HEADS)


@pytest.mark.parametrize("span", [5, 5.0, np.float32(5), math.inf])
@pytest.mark.parametrize("make", [cache_of, stream_of])
def test_one_number_is_the_span_of_all_heads_however_many_share_a_key(make, span):
    query = normals(1, 1, 6, 30, 4)
    expected = hs.attention(query, QUERY, QUERY, span=span, ramp=3)
    cache = make(span)
    assert cache.span.shape == ()
    assert cache.span == span
    outs = [cache.attend(*(x[:, :, part] for x in (query, QUERY, QUERY))) for part in (slice(0, 20), slice(20, 30))]
    np.testing.assert_allclose(np.concatenate(outs, axis=2), expected, rtol=1e-12)
    again = type(cache).from_state_dict(cache.state_dict())
    assert again.span == span
    one = normals(2, 1, 6, 1, 4)
    key = normals(3, 1, 2, 1, 4)
    np.testing.assert_array_equal(again.attend(one, key, key), cache.attend(one, key, key))


def test_a_number_shortens_all_heads_and_each_call_may_have_its_own_spans():
    query = normals(1, 1, 4, 30, 4)
    cache = cache_of(9)
    out = cache.attend(query, QUERY, QUERY, span=[2, 4, 6, 8])
    np.testing.assert_allclose(out, hs.attention(query, QUERY, QUERY, span=[2, 4, 6, 8], ramp=3), rtol=1e-12)
    clipped = cache.attend(query[:, :, -1:], span=[2, 4, 6, 80], clip=True)
    np.testing.assert_allclose(clipped, cache.attend(query[:, :, -1:], span=[2, 4, 6, 9]), rtol=1e-12)
    cache.span = [8, 7, 6, 5]
    cache.span = 5
    np.testing.assert_array_equal(cache.span, [5, 5, 5, 5])
    with pytest.raises(ValueError, match=r"that of head 0 would grow from 5 to 6$"):
        cache.span = 6
    with pytest.raises(ValueError, match=r"span must be a number or of shape \(4,\), not \(2,\)"):
        cache.span = [1, 2]


def test_a_stream_with_one_span_counts_its_cost_for_any_number_of_heads():
    stream, each = stream_of(5), stream_of([5] * 6)
    for one in (stream, each):
        one.append(QUERY, QUERY)
    assert json.dumps(stream.cost(6), default=str) == json.dumps(each.cost(6), default=str)
    far = hs.memory.StreamingAttention(1, 2, 4, slots=8, window=4, decay=0.9, span=20, dtype=QUERY.dtype)
    assert far.attend(normals(1, 1, 6, 30, 4), QUERY, QUERY).shape == (1, 6, 30, 4)


def test_the_soft_mask_and_pictures_without_a_limit():
    np.testing.assert_array_equal(hs.soft_mask([0, 9, 1e6], math.inf, ramp=4), [1, 1, 1])
    np.testing.assert_array_equal(hs.soft_mask([0, 9, 1e6], math.inf, ramp=0), [1, 1, 1])
    pytest.importorskip("matplotlib").use("agg")
    from matplotlib.figure import Figure

    def axes():
        return Figure().add_subplot()

    weights = hs.attention_weights(QUERY, QUERY)[0]
    spans = hs.plot.spans([HEADS, [2, 3]], ramp=3, ax=axes())
    top = spans.get_ylim()[1]
    assert top == 1.5 * (4 + 3)
    assert top in np.concatenate([line.get_ydata() for line in spans.lines])
    for ax in (
        hs.plot.span_history([0, 1], [[2, 3], HEADS], ax=axes()),
        hs.plot.dynamic_spans([[2, 3, math.inf]], ax=axes()),
    ):
        drawn = np.concatenate([line.get_ydata() for line in ax.lines])
        assert np.isfinite(drawn).all()
        assert drawn.max() == ax.get_ylim()[1]
    for ax in (
        spans,
        hs.plot.soft_mask(HEADS, ax=axes()),
        hs.plot.soft_mask(math.inf, ax=axes()),
        hs.plot.attention_map(weights[0], span=math.inf, ax=axes()),
        hs.plot.distance_profile(weights, span=HEADS, ax=axes()),
        hs.plot.pattern(Window(9), 30, span=math.inf, ax=axes()),
    ):
        ax.figure.canvas.draw()


def test_the_view_without_a_limit():
    pytest.importorskip("anywidget")
    view = hs.explore(QUERY[0], QUERY[0], span=HEADS)
    assert view.span == [4.0, 30.0]
    view.span = math.inf
    assert view.span == [30.0, 30.0]
