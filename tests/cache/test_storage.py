"""Keys and values in fewer bytes: how numbers are rounded, and that results are attention over the rounded ones."""

import headspan as hs
import numpy as np
import pytest
from cases import normals
from storage_oracle import rounded

pytestmark = pytest.mark.numerical

STORED = ("float16", "bfloat16", "int8")
BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1}
SPECIAL = [0.0, -0.0, 1.0, -1.0, 65504, 65519.99, 65520, -65520, 1e-7, 2**-24, 2**-25, 2**-25 * 1.0001, 6.1e-5, 1e38]


def kept(array, dtype):
    """Return values as a cache stores them: each through a query that sees only one token."""
    batch, heads, tokens, dim = array.shape
    cache = hs.SpanCache(batch, heads, 1, value_dim=dim, span=[0] * heads, ramp=0, dtype=dtype, slack=tokens)
    cache.append(np.zeros((batch, heads, tokens, 1), np.float32), array)
    return cache.attend(np.zeros((batch, heads, tokens, 1), np.float32))


@pytest.mark.parametrize("dtype", STORED)
@pytest.mark.parametrize("dim", [1, 3, 8, 64, 77])
def test_numbers_are_rounded_to_nearest(dtype, dim):
    rng = np.random.default_rng(dim)
    array = (rng.standard_normal((1, 2, 100, dim)) * 10.0 ** rng.uniform(-9, 4, (1, 2, 100, dim))).astype(np.float32)
    np.testing.assert_array_equal(kept(array, dtype), rounded(array, dtype))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_numbers_at_the_edges(dtype):
    array = np.array(SPECIAL, np.float32).reshape(1, 1, -1, 1)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(kept(array, dtype), rounded(array, dtype))


def test_every_float16_is_kept_as_it_is():
    array = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32)
    array = array[np.isfinite(array)].reshape(1, 1, -1, 64)
    np.testing.assert_array_equal(kept(array, "float16"), array)


@pytest.mark.parametrize("dtype", STORED)
@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_values_that_are_not_finite_reach_the_queries_that_see_them(dtype, poison):
    array = normals(0, 1, 1, 20, 8, dtype=np.float32)
    array[0, 0, 7, 3] = poison
    finite = np.isfinite(kept(array, dtype)).all(axis=-1)[0, 0]
    assert list(np.flatnonzero(~finite)) == [7]


@pytest.mark.parametrize("dtype", STORED)
@pytest.mark.parametrize("size", [1, 5, 80])
@pytest.mark.parametrize("heads", [(2, 2), (16, 2), (4, 1)], ids=str)
def test_attention_over_rounded_keys_and_values(dtype, size, heads):
    """Even the newest tokens are rounded, so that a token does not change after the call that adds it."""
    (heads, key_heads), tokens = heads, 240
    query, key, value = (
        normals(i, 2, n, tokens, 24, dtype=np.float32) for i, n in enumerate((heads, *[key_heads] * 2))
    )
    spans = np.linspace(3, 90, heads).round()
    cache = hs.SpanCache(2, key_heads, 24, span=spans, ramp=8, first_tokens=3, dtype=dtype)
    pattern = hs.patterns.Full() | hs.patterns.Global(range(3))
    cache.append(key[:, :, :80], value[:, :, :80])
    key, value = rounded(key, dtype), rounded(value, dtype)
    exact = [normals(i, 2, key_heads, tokens, 24, dtype=np.float32) for i in (1, 2)]
    for first in range(80, tokens, size):
        new = slice(first, first + size)
        out = cache.attend(query[:, :, new], exact[0][:, :, new], exact[1][:, :, new])
        seen = slice(first + size)
        dense = hs.attention(query[:, :, new], key[:, :, seen], value[:, :, seen], span=spans, ramp=8, pattern=pattern)
        if dtype == "int8":  # with few queries, scales are applied to products and weights
            np.testing.assert_allclose(out, dense, rtol=0, atol=2e-6)
        else:
            assert np.array_equal(out, dense)


@pytest.mark.parametrize("dtype", STORED)
def test_memory_and_state(dtype):
    sizes = {"batch": 2, "num_key_heads": 3, "head_dim": 64, "span": [10, 20, 30], "ramp": 1}
    cache, float32 = hs.SpanCache(**sizes, dtype=dtype), hs.SpanCache(**sizes)
    key = normals(0, 2, 3, 50, 64, dtype=np.float32)
    cache.append(key, key)
    scales = 2 * 2 * 4 * sum(each + 1 for each in sizes["span"]) if dtype == "int8" else 0
    assert cache.nbytes == float32.nbytes * BYTES[dtype] / 4 + scales
    other = hs.SpanCache.from_state_dict(cache.state_dict())
    query = normals(1, 2, 3, 1, 64, dtype=np.float32)
    assert np.array_equal(other.attend(query), cache.attend(query))


def test_an_unknown_type():
    with pytest.raises(TypeError, match="bfloat16"):
        hs.SpanCache(1, 1, 8, dtype="float8")


@pytest.mark.parametrize("dtype", ["float32", *STORED])
@pytest.mark.parametrize("options", [{"sinks": 0}, {"sinks": 4}, {"pattern": "a window"}], ids=str)
def test_the_cost_of_a_token_is_what_the_cache_holds(dtype, options):
    spans, sinks = [5, 10, 20, 30, 40, 7], options.get("sinks", 0)
    pattern = hs.patterns.Window(13) if "pattern" in options else None
    cache = hs.SpanCache(2, 3, 64, span=spans, ramp=2, pattern=pattern, first_tokens=sinks, dtype=dtype)
    allowed = hs.patterns.Full() | hs.patterns.Global(range(sinks)) if sinks else pattern
    sizes = {"tokens": 5000, "num_heads": 6, "head_dim": 64, "batch": 2, "span": spans, "ramp": 2, "pattern": allowed}
    token = hs.cost(**sizes, decode=True, num_key_heads=3, dtype=dtype)
    assert token.cache_bytes == cache.nbytes
    assert token.read_bytes == token.cache_bytes  # every row that is kept is seen
    reaches = np.minimum(np.add(spans, 1), 10**9 if pattern is None else 12)
    assert list(token.head_pairs) == list(2 * (reaches + 1 + sinks))


def test_a_short_text_costs_only_its_tokens():
    token = hs.cost(tokens=10, num_heads=2, head_dim=8, span=[3, 100], ramp=1, decode=True)
    assert list(token.head_pairs) == [4, 10]
    assert token.read_bytes == token.cache_bytes == (4 + 10) * 2 * 8 * 4
    cost = hs.cost(tokens=10, num_heads=2, head_dim=8)
    assert cost.read_bytes is None
    assert cost.cache_bytes is None


@pytest.mark.parametrize(
    "wrong",
    [{"num_key_heads": 4}, {"dtype": "float8"}, {"key_tokens": 3}, {"decode": 1}, {"num_key_heads": 0}],
    ids=str,
)
def test_a_wrong_cost_of_a_token(wrong):
    with pytest.raises((TypeError, ValueError)):
        hs.cost(**{"tokens": 10, "num_heads": 6, "head_dim": 8, "decode": True} | wrong)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("dtype", ["float32", *STORED])
def test_16_bit_floats_are_read_exactly(dtype, name):
    input_dtype = np.dtype(name if name == "float16" else pytest.importorskip("ml_dtypes").bfloat16)
    query, key, value = (
        normals(i, 2, heads, 90, 8, dtype=np.float32).astype(input_dtype) for i, heads in enumerate((4, 2, 2))
    )
    caches = [hs.SpanCache(2, 2, 8, span=[3, 9, 30, 50], ramp=4, dtype=dtype) for _ in range(2)]
    for first, last in ((0, 70), (70, 71), (71, 90)):
        new = [array[:, :, first:last] for array in (query, key, value)]
        out, lse = caches[0].attend(*new, return_lse=True)
        wide, wide_lse = caches[1].attend(*(array.astype(np.float32) for array in new), return_lse=True)
        assert out.dtype == input_dtype
        assert np.array_equal(out, wide.astype(input_dtype))
        assert np.array_equal(lse, wide_lse)
    with pytest.raises(TypeError, match="float64"):
        hs.SpanCache(2, 2, 8, dtype="float64").append(key, value)
