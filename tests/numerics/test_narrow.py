"""16-bit floats: computed as float32 numbers, with rounded results."""

import headspan as hs
import numpy as np
import pytest
from cases import normals
from headspan.ops.execution.functional import backward, forward
from headspan.ops.execution.request import Request

ml_dtypes = pytest.importorskip("ml_dtypes")
TYPES = [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]
OPTIONS = {
    "plain": {},
    "spans": {"span": [3.5, 20, 60, 9], "temperature": [0.7, 1, 1.5, 1], "sinks": 0.5},
    "a pattern": {"pattern": lambda: hs.patterns.Window(21), "softcap": 3.0, "alibi_slopes": 0.1},
}


def problem(dtype, heads=4, key_heads=2, tokens=90):
    shapes = ((2, heads, tokens, 16), (2, key_heads, tokens, 16), (2, key_heads, tokens, 8), (2, heads, tokens, 8))
    return [normals(i, *shape, dtype=np.float32).astype(dtype) for i, shape in enumerate(shapes)]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_results_are_those_of_float32_rounded(dtype, options):
    *arrays, grad_out = problem(dtype)
    bias = normals(7, 90, 90, dtype=np.float32).astype(dtype)
    memory = {f"persistent_{name}": normals(8, 3, dim).astype(dtype) for name, dim in (("key", 16), ("value", 8))}
    options = {name: o() if callable(o) else o for name, o in options.items()}  # a pattern is made in the test
    options |= {"pair_bias": bias, **memory}
    wide = {name: o.astype(np.float32) if hasattr(o, "dtype") else o for name, o in options.items()}
    (out, lse), vjp = hs.attention_vjp(*arrays, return_lse=True, **options)
    (expected, expected_lse), wide_vjp = hs.attention_vjp(
        *(a.astype(np.float32) for a in arrays), return_lse=True, **wide
    )
    assert out.dtype == dtype
    assert np.array_equal(out, expected.astype(dtype))
    assert lse.dtype == np.float32
    assert np.array_equal(lse, expected_lse)
    gradients, wanted = vjp(grad_out)._asdict(), wide_vjp(grad_out.astype(np.float32))._asdict()
    for name in ("query", "key", "value"):
        assert gradients[name].dtype == dtype
        assert np.array_equal(gradients[name], wanted[name].astype(dtype))
    for name in gradients.keys() - {"query", "key", "value"}:
        assert (gradients[name] is None) == (wanted[name] is None)
        if gradients[name] is not None:
            was_narrow = name in ("pair_bias", "persistent_key", "persistent_value")
            rounded = wanted[name].astype(dtype) if was_narrow else wanted[name]
            assert gradients[name].dtype == rounded.dtype, name
            assert np.array_equal(gradients[name], rounded), name
    weights = hs.attention_weights(arrays[0], arrays[1], **options)
    assert np.array_equal(weights, hs.attention_weights(*(a.astype(np.float32) for a in arrays[:2]), **wide))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_layouts_axes_and_arrays_for_results(dtype):
    *arrays, grad_out = problem(dtype)
    expected = hs.attention(*arrays)
    swapped = [np.ascontiguousarray(a.swapaxes(1, 2)).swapaxes(1, 2) for a in arrays]
    backwards = [np.ascontiguousarray(a[..., ::-1])[..., ::-1] for a in arrays]
    for views in (swapped, backwards):
        assert np.array_equal(hs.attention(*views), expected)
    assert np.array_equal(hs.attention(*(a[0, 0] for a in arrays)), expected[0, 0])
    request = Request(*arrays, {})
    out = np.zeros((2, 90, 4, 8), dtype).swapaxes(1, 2)
    result, _, saved = forward(request, out=out)
    assert result is out
    assert np.array_equal(out, expected)
    into = {"key": np.zeros((2, 90, 2, 16), dtype).swapaxes(1, 2)}
    gradients = backward(request, saved, grad_out, needs=("key", "value"), into=into)
    assert gradients["key"] is into["key"]
    assert np.array_equal(gradients["key"], hs.attention_vjp(*arrays)[1](grad_out).key)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_every_number_is_widened_and_rounded(dtype):
    every = np.arange(2**16, dtype=np.uint16).view(dtype).reshape(64, -1)
    from headspan.ops.execution import narrow

    wide = narrow.widened(every)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(wide, every.astype(np.float32))
        back = narrow.narrowed(wide, dtype)
        np.testing.assert_array_equal(back.astype(np.float32), wide)
    rng = np.random.default_rng(0)
    numbers = (rng.standard_normal(10**5) * 10.0 ** rng.uniform(-12, 6, 10**5)).astype(np.float32)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(narrow.narrowed(numbers, dtype), numbers.astype(dtype))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_wrong_types(dtype):
    query, key, value, grad_out = problem(dtype)
    with pytest.raises(TypeError, match="key is float32"):
        hs.attention(query, key.astype(np.float32), value)
    with pytest.raises(TypeError, match="grad_out"):
        hs.attention_vjp(query, key, value)[1](grad_out.astype(np.float32))
    with pytest.raises(TypeError, match="out must be"):
        forward(Request(query, key, value, {}), out=np.zeros((2, 4, 90, 8), np.float32))


def test_no_worse_than_rounding_the_result():
    """Against float64 on the same numbers, the error is the rounding of the result and of float32."""
    for dtype, step in zip(TYPES, (2.0**-11, 2.0**-8), strict=True):
        *arrays, _ = problem(dtype, tokens=300)
        expected = hs.reference.attention(*(a.astype(np.float64) for a in arrays))
        error = np.abs(hs.attention(*arrays).astype(np.float64) - expected)
        assert (error <= step * np.abs(expected) + 3e-6).all()
