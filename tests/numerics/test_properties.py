"""What must hold without an oracle: central differences, metamorphic relations, any shapes."""

import headspan as hs
import hypothesis
import numpy as np
import oracle
import pytest
from cases import DTYPES, LAYOUTS, lay_out, normals
from headspan.ops.arguments.options import DIFFERENTIABLE
from hypothesis import strategies as st
from option_cases import OPTIONS, make_arrays
from tolerances import check_close, check_gradients

pytestmark = pytest.mark.numerical

CLOSE = {"rtol": 0, "atol": 1e-12}


def problem(heads=3, queries=70, keys=70, dim=8, seed=0):
    """query, key, value with the axes (heads, tokens, dim)."""
    return (
        normals([seed, 1], heads, queries, dim),
        normals([seed, 2], heads, keys, dim),
        normals([seed, 3], heads, keys, dim),
    )


def all_results(query, key, value, **options):
    """out, lse and the gradients that were asked for, as one dict."""
    (out, lse), vjp = hs.attention_vjp(query, key, value, return_lse=True, **options)
    gradients = vjp(normals(7, *out.shape), normals(8, *lse.shape))
    named = {k: v for k, v in gradients._asdict().items() if v is not None}
    return {"out": out, "lse": lse, **named}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_gradients_by_central_differences(options):
    """Through the public calls alone, every entry of every argument, within 1e-6."""
    arguments = dict(zip(oracle.ARRAYS, make_arrays(), strict=True)) | options
    (out, lse), vjp = hs.attention_vjp(**arguments, return_lse=True)
    grad_out, grad_lse = normals(3, *out.shape), normals(4, *lse.shape)
    gradients = vjp(grad_out, grad_lse)

    def loss(name, array):
        out, lse = hs.attention(**{**arguments, name: array}, return_lse=True)
        return (out * grad_out).sum() + np.where(np.isfinite(lse), lse * grad_lse, 0.0).sum()

    for name in (*oracle.ARRAYS, *DIFFERENTIABLE):
        if arguments.get(name) is not None:
            expected = oracle.central_difference(lambda a, name=name: loss(name, a), arguments[name])
            np.testing.assert_allclose(getattr(gradients, name), expected, rtol=0, atol=1e-6, err_msg=name)


def test_central_differences_cover_every_differentiable_option():
    assert {name for options in OPTIONS.values() for name in options} >= set(DIFFERENTIABLE)


def test_adjoint():
    """For fixed weights out is linear in value, and value's gradient is the adjoint."""
    query, key, value = problem(queries=131, keys=97)
    out, vjp = hs.attention_vjp(query, key, value, span=[3.5, 20, 90], causal=False)
    grad_out = normals(9, *out.shape)
    left, right = np.vdot(grad_out, out), np.vdot(vjp(grad_out).value, value)
    np.testing.assert_allclose(left, right, rtol=1e-12)


def test_gradients_are_linear_in_grad_out():
    query, key, value = problem()
    bias = normals(3, key.shape[-2])
    parameters = {"span": 9.5, "temperature": 0.8, "alibi_slopes": 0.1, "sinks": 0.5, "key_bias": bias}
    parameters |= {"persistent_key": normals(5, 4, key.shape[-1]), "persistent_value": normals(6, 4, value.shape[-1])}
    parameters |= {"distance_bias": bias[:9], "pair_bias": normals(4, query.shape[-2], key.shape[-2])}
    parameters |= {"block_gates": [[0.5, 0.2], [0.0, 2.0]], "gate_block_size": (key.shape[-2] + 1) // 2}
    out, vjp = hs.attention_vjp(query, key, value, **parameters)
    one, two = normals(1, *out.shape), normals(2, *out.shape)
    for a, b, both in zip(vjp(one), vjp(two), vjp(3 * one - 2 * two), strict=True):
        np.testing.assert_allclose(3 * a - 2 * b, both, rtol=0, atol=1e-10)


def test_heads_are_independent():
    arrays = problem()
    spans, order = np.array([2.5, 11.0, 60.0]), [2, 0, 1]
    straight = all_results(*arrays, span=spans)
    for head in range(3):
        alone = hs.attention(*(a[head] for a in arrays), span=spans[head])
        np.testing.assert_allclose(alone, straight["out"][head], **CLOSE)
    permuted = hs.attention(*(a[order] for a in arrays), span=spans[order])
    np.testing.assert_allclose(permuted, straight["out"][order], **CLOSE)


def test_batches_are_independent():
    query, key, value = (normals(i, 2, 3, 70, 8) for i in range(3))
    spans = normals(5, 2, 3) ** 2 * 10
    out = hs.attention(query, key, value, span=spans)
    for batch in range(2):
        alone = hs.attention(query[batch], key[batch], value[batch], span=spans[batch])
        np.testing.assert_allclose(alone, out[batch], **CLOSE)


@pytest.mark.parametrize("causal", [True, False])
def test_the_last_queries_alone(causal):
    """Positions are counted from the last key, so a suffix of the queries stays in place."""
    query, key, value = problem(queries=150, keys=150)
    options = {"span": [3.5, 20, 90], "causal": causal, "alibi_slopes": 0.05}
    expected = hs.attention(query, key, value, **options)
    for count in (1, 63, 64, 65, 149):
        part = hs.attention(query[:, -count:], key, value, **options)
        np.testing.assert_allclose(part, expected[:, -count:], **CLOSE)


def test_keys_before_every_reach_change_nothing():
    query, key, value = problem(queries=80, keys=80)
    more = normals(4, 3, 131, 8)
    long_key, long_value = (np.concatenate([more, a], axis=1) for a in (key, value))
    long = all_results(query, long_key, long_value, span=[1.5, 10, 23], ramp=8)
    short = all_results(query, long_key[:, 100:], long_value[:, 100:], span=[1.5, 10, 23], ramp=8)
    for name in ("out", "lse", "query", "span"):
        np.testing.assert_allclose(short[name], long[name], **CLOSE, err_msg=name)
    for name in ("key", "value"):
        assert np.all(long[name][:, :100] == 0)
        np.testing.assert_allclose(short[name], long[name][:, 100:], **CLOSE, err_msg=name)


@pytest.mark.parametrize("cut", [1, 63, 64, 65, 100])
def test_split_keys_and_merge(cut):
    """Queries in the second part see all of the first part and their own part causally."""
    query, key, value = problem(queries=140 - cut, keys=140)
    expected, expected_lse = hs.attention(query, key, value, return_lse=True)
    past = hs.attention(query, key[:, :cut], value[:, :cut], causal=False, return_lse=True)
    present = hs.attention(query, key[:, cut:], value[:, cut:], return_lse=True)
    out, lse = hs.merge_attention([past[0], present[0]], [past[1], present[1]])
    np.testing.assert_allclose(out, expected, **CLOSE)
    np.testing.assert_allclose(lse, expected_lse, **CLOSE)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("ramp", [0, 1, 32])
def test_a_span_of_the_whole_context_is_no_span(causal, ramp):
    arrays = problem()
    wide = all_results(*arrays, span=70, ramp=ramp, causal=causal)
    unlimited = all_results(*arrays, causal=causal)
    assert wide.pop("span") == 0
    for name in unlimited:
        np.testing.assert_allclose(wide[name], unlimited[name], **CLOSE, err_msg=name)


def test_a_constant_added_to_every_score():
    """One more component that is the same for every key moves lse and nothing else."""
    query, key, value = problem()
    ones, level = np.ones((3, 70, 1)), np.full((3, 70, 1), 40.0)
    options = {"span": [2.5, 11.0, 60.0], "scale": 0.3}
    plain = all_results(query, key, value, **options)
    moved = all_results(np.concatenate([query, ones], -1), np.concatenate([key, level], -1), value, **options)
    np.testing.assert_allclose(moved["lse"], plain["lse"] + 12.0, **CLOSE)
    for name in ("out", "value", "span"):
        np.testing.assert_allclose(moved[name], plain[name], rtol=0, atol=1e-11, err_msg=name)
    np.testing.assert_allclose(moved["query"][..., :8], plain["query"], rtol=0, atol=1e-11)


EQUAL_CALLS = {
    "temperature divides scale": ({"temperature": 2.5, "scale": 0.5}, {"scale": 0.2}),
    "default scale": ({}, {"scale": 8**-0.5}),
    "default temperature": ({}, {"temperature": 1.0}),
    "no slope": ({}, {"alibi_slopes": 0.0}),
    "token spans that are equal": ({"span": 9.5}, {"span": np.full((3, 70), 9.5)}),
    "head spans that are equal": ({"span": 9.5}, {"span": [9.5, 9.5, 9.5]}),
    "token temperatures that are equal": (
        {"temperature": [0.5, 1, 2]},
        {"temperature": np.repeat([[0.5], [1], [2]], 70, axis=1)},
    ),
    "hard window between integers": ({"span": 7.0, "ramp": 0}, {"span": 7.9, "ramp": 0}),
    "ramp of one at an integer is a hard window": ({"span": 7, "ramp": 1}, {"span": 7, "ramp": 0}),
}


@pytest.mark.parametrize(("one", "two"), EQUAL_CALLS.values(), ids=EQUAL_CALLS)
def test_equal_calls(one, two):
    one, two = all_results(*problem(), **one), all_results(*problem(), **two)
    for name in ("out", "lse", "query", "key", "value"):
        np.testing.assert_allclose(one[name], two[name], **CLOSE, err_msg=name)


def test_grouped_keys_are_repeated_keys():
    query, (_, key, value) = normals(0, 6, 70, 8), problem(heads=2)
    spans = np.arange(6) * 7.5
    grouped = all_results(query, key, value, span=spans)
    repeated = all_results(query, *(np.repeat(a, 3, axis=0) for a in (key, value)), span=spans)
    for name in ("key", "value"):
        repeated[name] = repeated[name].reshape(2, 3, 70, 8).sum(axis=1)
    for name in grouped:
        np.testing.assert_allclose(grouped[name], repeated[name], **CLOSE, err_msg=name)


@st.composite
def calls(draw):
    """Any small call: sizes, layouts, dtype and options drawn independently."""

    def size(most):
        return draw(st.integers(1, most))

    dtype = draw(st.sampled_from(DTYPES))
    groups, key_heads, dim, value_dim = size(3), size(2), size(20), size(20)
    batch, queries, keys = size(2), size(140), size(140)
    shapes = {
        "query": (batch, groups * key_heads, queries, dim),
        "key": (batch, key_heads, keys, dim),
        "value": (batch, key_heads, keys, value_dim),
    }
    arrays = {
        name: lay_out(normals([i, queries], *shape, dtype=dtype), draw(st.sampled_from(LAYOUTS)))
        for i, (name, shape) in enumerate(shapes.items())
    }
    quarters = st.integers(0, 4 * 150).map(lambda n: n / 4)
    options = {
        "span": draw(st.none() | st.lists(quarters, min_size=groups * key_heads,
                                          max_size=groups * key_heads)),
        "ramp": draw(st.sampled_from([0, 0.5, 1, 3.25, 32])),
        "causal": draw(st.booleans()),
        "include_self": draw(st.booleans()),
        "temperature": draw(st.none() | st.sampled_from([0.5, 1, 3])),
        "alibi_slopes": draw(st.none() | st.sampled_from([-0.125, 0, 0.25])),
    }  # fmt: skip
    return arrays | options


@hypothesis.settings(max_examples=150, deadline=None, derandomize=True, database=None)
@hypothesis.given(calls())
def test_any_call(call):
    dtype = call["query"].dtype
    (out, lse), vjp = hs.attention_vjp(**call, return_lse=True)
    expected, expected_lse = oracle.attention(**call)
    check_close("out", out, expected, dtype)
    check_close("lse", lse, expected_lse, dtype)
    grad_out, grad_lse = normals(1, *out.shape, dtype=dtype), normals(2, *lse.shape, dtype=dtype)
    expected = oracle.gradients(grad_out=grad_out, grad_lse=grad_lse, **call)
    check_gradients(vjp(grad_out, grad_lse), expected, call)
