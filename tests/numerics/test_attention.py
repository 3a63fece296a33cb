"""`attention` and `attention_vjp` against the oracle, over random cases and named edges."""

import headspan as hs
import numpy as np
import oracle
import pytest
from cases import DTYPES, HEAD_DIMS, LAYOUTS, SEEDS, lay_out, make_case, normals
from tolerances import check_close, check_gradients

pytestmark = pytest.mark.numerical


def check_case(query, key, value, grad_out, grad_lse, **options):
    """Values and every gradient of one call."""
    dtype = query.dtype
    dense = oracle.with_persistent_columns(query, key, value, **options)
    (out, lse), vjp = hs.attention_vjp(query, key, value, return_lse=True, **options)
    check_close("out", out, dense.out.reshape(grad_out.shape), dtype)
    check_close("lse", lse, dense.lse.reshape(query.shape[:-1]), dtype)
    expected = oracle.gradients(query, key, value, grad_out, grad_lse, matrices=dense, **options)
    arguments = {"query": query, "key": key, "value": value, **options}
    check_gradients(vjp(grad_out, grad_lse), expected, arguments)
    # The forward call alone takes the same path and must give the same bits.
    plain = hs.attention(query, key, value, **options)
    assert plain.tobytes() == out.tobytes()
    alone, alone_lse = hs.attention(query, key, value, return_lse=True, **options)
    assert alone.tobytes() == out.tobytes()
    assert alone_lse.tobytes() == lse.tobytes()


def check_sizes(shape, dtype="float64", seed=0, **options):
    """A case given as (heads, key_heads, queries, keys, head_dim, value_dim)."""
    heads, key_heads, queries, keys, dim, value_dim = shape
    query = normals([seed, 1], 1, heads, queries, dim, dtype=dtype)
    key = normals([seed, 2], 1, key_heads, keys, dim, dtype=dtype)
    value = normals([seed, 3], 1, key_heads, keys, value_dim, dtype=dtype)
    grad_out = normals([seed, 4], 1, heads, queries, value_dim, dtype=dtype)
    grad_lse = normals([seed, 5], 1, heads, queries, dtype=dtype)
    check_case(query, key, value, grad_out, grad_lse, **options)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_random_case(dtype, seed):
    case = make_case(seed, dtype)
    check_case(**case.arguments, grad_out=case.grad_out, grad_lse=case.grad_lse)


EDGES = {
    "one pair": ((1, 1, 1, 1, 1, 1), {}),
    "one query": ((2, 1, 1, 200, 8, 8), {"span": 30.25}),
    "one key": ((2, 2, 200, 1, 8, 8), {"causal": False, "span": 50.5}),
    "one key, causal": ((2, 2, 200, 1, 8, 8), {"causal": True}),
    "grouped decode": ((16, 2, 1, 3000, 16, 16), {"span": np.r_[np.arange(8) * 9.5, np.full(8, 1e6)]}),
    "grouped decode in parts": ((32, 1, 1, 5000, 24, 8), {"sinks": np.linspace(-2, 2, 32), "softcap": 3.0}),
    "grouped, several tokens": ((24, 4, 10, 700, 16, 16), {"alibi_slopes": np.linspace(0, 0.4, 24), "causal": False}),
    "grouped, span per token": ((8, 2, 16, 300, 8, 8), {"span": np.linspace(0, 250, 128).reshape(1, 8, 16)}),
    "decode with all terms": ((4, 2, 1, 5000, 16, 16), {"alibi_slopes": 0.01, "softcap": 1.5, "sinks": [0, 3, 1, -9]}),
    "by distance, T5's buckets": (
        (2, 1, 200, 230, 8, 8),
        {"distance_bias": normals(9, 2, 32), "distance_buckets": hs.t5_buckets(32), "causal": False},
    ),
    "by distance, decoded": ((4, 2, 1, 5000, 16, 16), {"distance_bias": normals(9, 4, 700), "softcap": 1.5}),
    "by distance, a span for each token": (
        (2, 1, 200, 230, 8, 8),
        {"span": normals(9, 1, 2, 200) ** 2 * 40, "distance_bias": normals(8, 50)},
    ),
    "sinks and no key": ((2, 2, 70, 70, 4, 4), {"span": 0, "ramp": 0, "include_self": False, "sinks": 0.5}),
    "decode": ((4, 2, 1, 3000, 16, 16), {"alibi_slopes": 0.01}),
    "one query, keys in parts": ((2, 1, 1, 5000, 20, 70), {"span": [9.5, 4100.5]}),
    "two queries before most keys, in parts": ((1, 1, 2, 4500, 7, 7), {"causal": False, "include_self": False}),
    "three queries, keys in parts": ((1, 1, 3, 4200, 300, 5), {"temperature": 0.5, "alibi_slopes": 0.01}),
    "sixteen queries, keys in parts": ((1, 1, 16, 4200, 9, 17), {"causal": False, "span": 1500.5}),
    "four queries, most in no part": ((1, 1, 4, 9000, 5, 5), {"span": 3.5, "ramp": 0}),
    "a span for each token, in no order": ((2, 1, 200, 230, 8, 8), {"span": normals(9, 1, 2, 200) ** 2 * 40}),
    "spans of tokens, some beyond all numbers of keys": (
        (1, 1, 70, 70, 8, 8),
        {"span": np.where(np.arange(70) % 3, 9.5, 1e30)[None, None]},
    ),
    "queries before every key": ((1, 1, 130, 65, 4, 4), {"span": 7, "causal": True}),
    "queries before every key, both directions": (
        (1, 1, 130, 65, 4, 4),
        {"span": 7.25, "causal": False},
    ),
    "no key at all": ((2, 2, 70, 70, 4, 4), {"span": 0, "ramp": 0, "include_self": False}),
    "ramp of one reaches nothing": ((1, 1, 70, 70, 4, 4), {"span": 0, "ramp": 1}),
    "only the self pair": ((2, 2, 70, 70, 4, 4), {"span": 0, "ramp": 0}),
    "only the previous token": (
        (2, 2, 70, 70, 4, 4),
        {"span": 1, "ramp": 0, "include_self": False},
    ),
    "only the neighbours": (
        (2, 2, 70, 70, 4, 4),
        {"span": 1, "ramp": 0, "include_self": False, "causal": False},
    ),
    "only a sliver of the mask": (
        (1, 1, 70, 70, 4, 4),
        {"span": 0, "ramp": 1.001, "include_self": False},
    ),
    "integer span on the corner": ((2, 2, 129, 129, 8, 8), {"span": [16, 64], "ramp": 32}),
    "ramp wider than the context": ((2, 2, 65, 65, 8, 8), {"span": 3.5, "ramp": 1000}),
    "tiny ramp": ((2, 2, 65, 65, 8, 8), {"span": 10.0005, "ramp": 1e-3}),
    "span far beyond the context": ((2, 2, 65, 65, 8, 8), {"span": 1e18}),
    "mixed reach": ((4, 1, 300, 300, 8, 8), {"span": [0, 5.5, 100.25, 1e6]}),
    "zero scale": ((2, 2, 65, 65, 8, 8), {"scale": 0.0, "span": 20.5}),
    "negative scale": ((2, 2, 65, 65, 8, 8), {"scale": -0.5}),
    "wide value": ((2, 2, 65, 66, 3, 200), {"span": 20.5}),
    "narrow value": ((2, 2, 65, 66, 200, 1), {"span": 20.5}),
    "many heads on one key head": ((16, 1, 67, 67, 8, 8), {"span": np.arange(16.0) * 4 + 0.25}),
    "slopes of both signs": (
        (4, 4, 130, 130, 8, 8),
        {"alibi_slopes": [0.5, -0.1, 0.0, 1e-3], "causal": False},
    ),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "options"), EDGES.values(), ids=EDGES)
def test_edge(shape, options, dtype):
    check_sizes(shape, dtype, **options)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", HEAD_DIMS)
def test_head_dim(dim, dtype):
    check_sizes((2, 1, 66, 70, dim, dim), dtype, span=[5.5, 40], temperature=[0.75, 1.5])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lead", [(), (4,), (2, 1), (2, 4)])
def test_a_number_for_every_pair(lead, dtype):
    shapes = ((2, 4, 130, 8), (2, 2, 200, 8), (2, 2, 200, 8))
    arrays = [normals(i, *shape, dtype=dtype) for i, shape in enumerate(shapes)]
    bias = normals(4, *lead, 130, 200, dtype=dtype)
    bias[..., ::7, ::3] = -np.inf
    bias = lay_out(bias, "interleaved" if bias.ndim < 4 else "transposed")
    options = {"pair_bias": bias, "span": 40.5, "causal": False, "sinks": 0.5}
    check_case(*arrays, normals(5, 2, 4, 130, 8, dtype=dtype), normals(6, 2, 4, 130, dtype=dtype), **options)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layout_changes_no_bit(layout, dtype):
    """Strides say where numbers are, not what they are: also in the gradients."""
    arrays = [normals(i, 2, 3, 67, 17, dtype=dtype) for i in range(4)]
    other = [lay_out(array, layout) for array in arrays]
    options = {"span": [3.5, 20, 60], "alibi_slopes": 0.1}
    out, vjp = hs.attention_vjp(*arrays[:3], **options)
    other_out, other_vjp = hs.attention_vjp(*other[:3], **options)
    assert out.tobytes() == other_out.tobytes()
    for name, one, two in zip(hs.Gradients._fields, vjp(arrays[3]), other_vjp(other[3]), strict=True):
        assert (one is None and two is None) or one.tobytes() == two.tobytes(), name


FORMS = {
    "number": lambda a: float(a.flat[0]),
    "integer": lambda a: int(a.flat[0]),
    "list": lambda a: a.tolist(),
    "tuple": lambda a: tuple(a.tolist()),
    "int32": lambda a: a.astype(np.int32),
    "uint8": lambda a: a.astype(np.uint8),
    "float32": lambda a: a.astype(np.float32),
    "float64": lambda a: a,
    "strided": lambda a: np.repeat(a, 2)[::2],
    "zero-dimensional": lambda a: np.array(a.flat[0]),
    "length one": lambda a: a[:1],
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_forms_of_parameters(form, dtype):
    """Numbers, lists and arrays of any real type mean the same; gradients have the given shape."""
    parameters = {name: form(np.array([2.0, 3.0])) for name in oracle.PARAMETERS}
    check_sizes((2, 2, 30, 30, 4, 4), dtype, ramp=8, **parameters)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("keys", [2**24 + 3, 2**31 + 7, 2**40 + 1])
def test_positions_beyond_what_the_dtype_counts(keys, dtype):
    """Float32 does not hold every whole number from 2**24 on; distances must stay exact."""
    zeros = np.zeros((1, 2), dtype)
    query, few = np.zeros((5, 2), dtype), np.zeros((200, 2), dtype)
    options = {"span": 3.5, "ramp": 4, "alibi_slopes": 0.5, "return_lse": True}
    many = np.broadcast_to(zeros, (keys, 2))
    _, far = hs.attention(query, many, many, **options)
    _, near = hs.attention(query, few, few, **options)
    np.testing.assert_array_equal(far, near)


@pytest.mark.parametrize("dtype", DTYPES)
def test_span_beyond_the_range_of_float32_is_unlimited(dtype):
    query, key, value = (normals(i, 2, 70, 8, dtype=dtype) for i in range(3))
    out, vjp = hs.attention_vjp(query, key, value, span=[1e300, 5.0])
    expected, _ = oracle.attention(query, key, value, span=[1e300, 5.0])
    check_close("out", out, expected, dtype)
    assert vjp(np.ones_like(out)).span[0] == 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("level", [-5e3, 5e3])
def test_large_scores(level, dtype):
    """Scores far beyond the range of exp, of either sign: only differences matter."""
    query, key, value = (normals(i, 2, 70, 8, dtype=dtype) for i in range(3))
    query = np.concatenate([query, np.ones_like(query)], -1)
    key = np.concatenate([key, np.full_like(key, level / 8)], -1)
    out, lse = hs.attention(query, key, value, scale=1.0, span=9.5, return_lse=True)
    expected, expected_lse = oracle.attention(query, key, value, scale=1.0, span=9.5)
    # The scores themselves are rounded at their magnitude.
    rounding = abs(level) * 16 * np.finfo(dtype).eps
    np.testing.assert_allclose(out, expected, rtol=0, atol=4 * rounding)
    np.testing.assert_allclose(lse, expected_lse, rtol=0, atol=4 * rounding)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1e15, -1e15])
def test_huge_score_outside_the_span_is_not_the_maximum(size, dtype):
    query, key, value, grad_out = (normals(i, 1, 70, 8, dtype=dtype) for i in range(4))
    options = {"span": 4, "ramp": 6}
    key[:, :30] = size
    query = np.abs(query)
    wanted_out, _ = oracle.attention(query, key, value, **options)
    wanted = oracle.gradients(query, key, value, grad_out, **options)
    out, vjp = hs.attention_vjp(query, key, value, **options)
    gradients = vjp(grad_out)
    check_close("out", out[:, 40:], wanted_out[:, 40:], dtype)  # row 40 reaches back to key 31
    for name, first in (("query", 40), ("key", 40), ("value", 40)):
        actual, expected = getattr(gradients, name)[:, first:], wanted[name].value[:, first:]
        check_close(name, actual, expected, dtype, np.abs(expected))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1e3, 1e6, 1e9, 1e15, -1e15])
def test_finite_inputs_give_finite_results(size, dtype):
    """Scores may be too large for exact differences; exp must still never overflow."""
    query, key, value = (normals(i, 1, 130, 8, dtype=dtype) for i in range(3))
    query = np.abs(query)
    key[:, :60] = size
    (out, lse), vjp = hs.attention_vjp(query, key, value, span=40.5, return_lse=True)
    gradients = vjp(np.ones_like(out), np.ones_like(lse))
    assert np.isfinite(out).all()
    assert np.isfinite(lse).all()
    for name in ("query", "key", "value", "span"):
        assert np.isfinite(getattr(gradients, name)).all(), name


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ramp", [0, 1e-20, 1e-7, 1e-3, 0.1])
def test_short_ramps_keep_the_pair_at_the_span(ramp, dtype):
    """Where x = z the mask is 1, however short the ramp, and long the span."""
    query, key, value = (normals(i, 1, 70, 8, dtype=dtype) for i in range(3))
    for far in (0, 10**6):
        places = {"query_positions": np.arange(70) + far, "key_positions": np.arange(70), "span": 20 + far}
        expected = hs.attention(query, key, value, ramp=0, **places)
        check_close("out", hs.attention(query, key, value, ramp=ramp, **places), expected, dtype)
        wanted = hs.reference.attention(*(a.astype(float) for a in (query, key, value)), ramp=ramp, **places)
        check_close("out", expected, wanted, dtype)


@pytest.mark.parametrize(("span", "ramp"), [(1500.3, 0.7), (190000.37, 2.3), (1900000.4, 31.7)])
def test_long_spans_keep_the_digits_of_the_mask(span, ramp):
    """In float32 few digits of R + z remain; m is the weight next to a key whose mask is 1."""
    distance = np.floor(span) + np.arange(1, max(2, int(ramp)))
    query, key = np.zeros((distance.size, 1), np.float32), np.zeros((distance.size + 1, 1), np.float32)
    weights = [hs.attention(
        query[:1], key[:2], np.array([[1], [0]], np.float32), span=np.float32(span), ramp=ramp,
        query_positions=[0], key_positions=[-x, 0],
    )[0, 0] for x in distance]  # fmt: skip
    m = hs.soft_mask(distance, np.float32(span), np.float32(ramp))
    np.testing.assert_allclose(weights, m / (1 + m), rtol=0, atol=3e-7)


NANS = {"float32": ["7fc00000", "7fc00001", "7fc00100", "ffc00001"],
        "float64": ["7ff8000000000000", "7ff8000000000001", "7ff00000000007a2"]}  # fmt: skip


@pytest.mark.parametrize(("dtype", "bits"), [(dtype, bits) for dtype in DTYPES for bits in NANS[dtype]])
def test_a_nan_of_any_bits_stays_one(dtype, bits):
    """Some NaNs carry a number, like the missing values of R; a query that sees one must return NaN."""
    query, key, value = (normals(i, 70, 8, dtype=dtype) for i in range(3))
    key[3, 5] = np.array(int(bits, 16), "u4" if dtype == "float32" else "u8").view(dtype)
    out, lse = hs.attention(query, key, value, span=4, ramp=0, return_lse=True)
    seen = np.isin(np.arange(70), np.arange(3, 8))
    np.testing.assert_array_equal(np.isnan(out).all(axis=1), seen)
    np.testing.assert_array_equal(np.isnan(out).any(axis=1), seen)
    np.testing.assert_array_equal(np.isnan(lse), seen)


def test_vjp_is_repeatable_and_takes_no_grad_lse_as_zero():
    query, key, value, grad_out = (normals(i, 2, 70, 8) for i in range(4))
    (out, lse), vjp = hs.attention_vjp(query, key, value, span=9.5, return_lse=True)
    first, again, zero = vjp(grad_out), vjp(grad_out), vjp(grad_out, np.zeros_like(lse))
    for name in ("query", "key", "value", "span"):
        one, two, three = (getattr(g, name) for g in (first, again, zero))
        assert np.asarray(one).tobytes() == np.asarray(two).tobytes(), name
        np.testing.assert_allclose(one, three, rtol=0, atol=1e-14)
    assert first.temperature is None
    assert first.alibi_slopes is None
    assert hs.attention(query, key, value, span=9.5).tobytes() == out.tobytes()


def test_vjp_keeps_what_it_needs():
    """Inputs without other references: lists, temporaries and views of them."""
    rng = np.random.default_rng(0)
    query, key, value = rng.standard_normal((3, 2, 70, 8))
    out, vjp = hs.attention_vjp(query.copy(), key[:, ::-1].copy()[:, ::-1], value + 0, span=9.5)
    expected_out, expected_vjp = hs.attention_vjp(query, key, value, span=9.5)
    for _ in range(20):  # other owners of the memory, if it was given back
        np.full(query.shape, np.nan)
        np.full((2, 70), np.nan)
    for one, two in zip(vjp(out)[:4], expected_vjp(expected_out)[:4], strict=True):
        assert one.tobytes() == two.tobytes()


def test_results_are_fresh_arrays():
    """Writing into a result touches neither the inputs nor a later gradient.

    The gradient needs `out` as it was, so that one result cannot be written to.
    """
    query, key, value, grad_out = (normals(i, 2, 30, 4) for i in range(4))
    copies = [array.copy() for array in (query, key, value)]
    out, vjp = hs.attention_vjp(query, key, value, span=3.5)
    before = vjp(grad_out)
    with pytest.raises(ValueError, match="read-only"):
        out[...] = np.nan
    hs.attention(query, key, value, span=3.5)[...] = np.nan
    for name in ("query", "key", "value"):
        bits = getattr(before, name).tobytes()
        getattr(before, name)[...] = np.nan
        assert getattr(vjp(grad_out), name).tobytes() == bits, name
    for array, copy in zip((query, key, value), copies, strict=True):
        assert array.tobytes() == copy.tobytes()


@pytest.mark.parametrize("seed", range(60))
def test_reference(seed):
    """The package's own dense definition, for four axes and equally many heads."""
    case = make_case(seed, "float64")
    arrays, options = oracle.with_all_axes(case.arrays, case.options)
    expected, _ = oracle.attention(*arrays, **options)
    out = hs.reference.attention(*arrays, **options)
    assert out.shape == expected.shape
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-12)


REFERENCE = {
    "no heads, a pattern": ((20, 4), (20, 4), lambda p: {"pattern": p.Window(4) | p.Global(0)}),
    "no heads, a grid": (
        (20, 4), (20, 4), lambda p: {"pattern": p.Neighborhood((4, 5), 3), "span": 0.5, "causal": True},
    ),
    "more queries than keys, positions": (
        (2, 20, 4), (2, 5, 4), lambda _: {"query_positions": np.arange(20), "key_positions": np.arange(5)},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("queries", "keys", "make"), REFERENCE.values(), ids=REFERENCE)
def test_reference_of_other_shapes(queries, keys, make):
    options = make(hs.patterns)
    arrays = [normals(i, *shape) for i, shape in enumerate((queries, keys, keys))]
    expected = hs.attention(*arrays, **options)
    np.testing.assert_allclose(hs.reference.attention(*arrays, **options), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"causal": False}, {"span": 200.0}], ids=str)
def test_float32_is_no_worse_than_dense_float32(options):
    query, key, value = (normals(seed, 1, 2, 1024, 64, dtype=np.float32) for seed in (1, 2, 3))
    expected = hs.reference.attention(*(x.astype(np.float64) for x in (query, key, value)), **options)
    scores = query @ key.swapaxes(-1, -2) / np.float32(8)
    distance = np.abs(oracle.signed_distance(1024, 1024))
    mask = oracle.soft_mask(distance, options.get("span", np.inf), 32).astype(np.float32)
    if options.get("causal", True):
        mask = np.tril(mask)
    weights = mask * np.exp(scores - np.where(mask > 0, scores, -np.inf).max(axis=-1, keepdims=True))
    dense = weights / weights.sum(axis=-1, keepdims=True) @ value
    error = np.square(hs.attention(query, key, value, **options) - expected).mean()
    assert error <= np.square(dense - expected).mean()


@pytest.mark.parametrize("ramp", [1, 4])
def test_the_gradient_of_a_whole_span_is_that_towards_shorter_ones(ramp):
    """Pairs lie on both kinks of the mask, whose one-sided derivatives differ; the documented one is returned."""
    query, key, value, grad_out = (normals(i, 2, 40, 8) for i in range(4))
    spans, step = np.array([3.0, 7.0]), 1e-6

    def losses(span):
        return (hs.attention(query, key, value, span=span, ramp=ramp) * grad_out).sum(axis=(1, 2))

    gradient = hs.attention_vjp(query, key, value, span=spans, ramp=ramp)[1](grad_out).span
    np.testing.assert_allclose(gradient, (losses(spans) - losses(spans - step)) / step, rtol=1e-4, atol=1e-5)
    longer = (losses(spans + step) - losses(spans)) / step
    assert np.all(np.abs(longer - gradient) > 1e-2)
