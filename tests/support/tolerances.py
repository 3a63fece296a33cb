"""How far the package may be from the oracle: one entry for each quantity and dtype, no default.

A bound is the entry times the scale of the quantity: 1 for `out` and weights; the larger of 1 and the
value itself for `lse`; the larger of 1 and the largest sum of absolute terms for a gradient,
whose terms may cancel.
"""

import numpy as np

TOLERANCES = {
    ("out", "float64"): 1e-11,
    ("lse", "float64"): 1e-11,
    ("query", "float64"): 1e-11,
    ("key", "float64"): 1e-11,
    ("value", "float64"): 1e-11,
    ("span", "float64"): 1e-11,
    ("temperature", "float64"): 1e-11,
    ("alibi_slopes", "float64"): 1e-11,
    ("sinks", "float64"): 1e-11,
    ("persistent_key", "float64"): 1e-11,
    ("persistent_value", "float64"): 1e-11,
    ("distance_bias", "float64"): 1e-11,
    ("pair_bias", "float64"): 1e-11,
    ("block_gates", "float64"): 1e-11,
    ("key_bias", "float64"): 1e-11,
    ("weights", "float64"): 1e-11,
    ("out", "float32"): 3e-5,
    ("lse", "float32"): 3e-5,
    ("query", "float32"): 5e-6,
    ("key", "float32"): 5e-6,
    ("value", "float32"): 5e-6,
    ("span", "float32"): 5e-6,
    ("temperature", "float32"): 5e-6,
    ("alibi_slopes", "float32"): 5e-6,
    ("sinks", "float32"): 5e-6,
    ("persistent_key", "float32"): 5e-6,
    ("persistent_value", "float32"): 5e-6,
    ("distance_bias", "float32"): 5e-6,
    ("pair_bias", "float32"): 5e-6,
    ("block_gates", "float32"): 5e-6,
    ("key_bias", "float32"): 5e-6,
    ("weights", "float32"): 3e-5,
}


def scale_of(name, expected, mass):
    if name in ("out", "weights"):
        return 1.0
    if name == "lse":
        return np.maximum(1.0, np.abs(np.where(np.isfinite(expected), expected, 0.0)))
    return max(1.0, np.max(mass, initial=0.0))


def check_close(name, actual, expected, dtype, mass=None):
    """Check the shape, dtype, infinities and values of one result."""
    actual = np.asarray(actual)
    assert actual.shape == np.shape(expected), name
    assert actual.dtype == dtype, name
    finite = np.isfinite(expected)
    unequal = np.where(finite, 0.0, expected) != np.where(finite, 0.0, actual)
    assert not np.any(unequal), f"{name}: the infinities differ"
    error = np.abs(np.where(finite, actual, 0.0) - np.where(finite, expected, 0.0))
    share = np.max(error / scale_of(name, expected, mass), initial=0.0)
    assert share <= TOLERANCES[name, str(np.dtype(dtype))], f"{name}: off by {share:.3g}"


def gradient_dtype(argument, dtype):
    """A gradient has the type of its argument, or that of the query if the argument consists of integers."""
    argument_dtype = np.asarray(argument).dtype
    return argument_dtype if argument_dtype.kind == "f" else np.dtype(dtype)


def check_gradients(gradients, expected, arguments):
    """Check every gradient of the oracle's dict, and that every other one is None."""
    dtype = arguments["query"].dtype
    for name in gradients._fields:
        actual = getattr(gradients, name)
        if name not in expected:
            assert actual is None, f"{name} was not given and has a gradient"
            continue
        assert actual is not None, f"{name} was given and has no gradient"
        assert actual.dtype == gradient_dtype(arguments[name], dtype), name
        coarser = min(dtype, actual.dtype)  # it was computed in one type and is returned in the other
        value, mass = expected[name]
        check_close(name, actual.astype(coarser), value, coarser, mass)
