"""Every result of a call, to be compared bit by bit, and how far a poisoned number may reach in them."""

import headspan as hs
import numpy as np


def make_arguments(shape, dtype, seed=0):
    """Arrays of a shape (heads, key_heads, queries, keys, dim), after a number of batch items if it is not 1."""
    *batch, heads, key_heads, queries, keys, dim = shape
    rng = np.random.default_rng([seed, *shape])

    def draw(*s):
        return rng.standard_normal((*(batch or [1]), *s)).astype(dtype)

    arrays = {
        "query": draw(heads, queries, dim),
        "key": draw(key_heads, keys, dim),
        "value": draw(key_heads, keys, dim),
    }
    return arrays, draw(heads, queries, dim), draw(heads, queries)


def all_bits(arrays, grad_out, grad_lse, **options):
    """Every result as a dict of arrays."""
    (out, lse), vjp = hs.attention_vjp(**arrays, **options, return_lse=True)
    gradients = vjp(grad_out, grad_lse)._asdict().items()
    named = {name: np.asarray(gradient) for name, gradient in gradients if gradient is not None}
    return {"out": out, "lse": lse, **named}


def poisoned(array, rows, poison):
    """A copy whose rows (a boolean mask over all axes but the last of four) hold the poison."""
    array = array.copy()
    array[rows] = poison
    return array


def check_untouched(clean, dirty, affected):
    """Equal bits wherever `affected`, a mask of each result's rows, is False."""
    for name, rows in affected.items():
        before, after = np.asarray(clean[name]), np.asarray(dirty[name])
        assert before[~rows].tobytes() == after[~rows].tobytes(), name


def spread_over_keys(rows, reach, key_heads):
    """Which (batch, key head, key) are reached by one of the (batch, head, query) rows."""
    touched = (reach & rows[..., None]).any(axis=2)
    batch, heads, keys = touched.shape
    return touched.reshape(batch, key_heads, heads // key_heads, keys).any(axis=2)
