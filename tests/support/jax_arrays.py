"""Arguments of an attention as arrays of JAX. Files that import this are skipped where JAX is not installed."""

import headspan as hs
import numpy as np
import pytest
from headspan.ops.arguments.options import DIFFERENTIABLE
from option_cases import ARRAYS

jax = pytest.importorskip("jax", reason="needs jax: nox -s jax")
jax.config.update("jax_num_cpu_devices", 2)  # for shard_map; before anything is computed

LEARNED = (*ARRAYS, *DIFFERENTIABLE)


@pytest.fixture(autouse=True)
def _float64():
    """Enable float64, in files that import this."""
    with jax.enable_x64(True):
        yield


def split(arguments):
    """Split arguments into those that JAX may trace, as arrays of JAX, and the others."""
    arrays = {name: x for name, x in arguments.items() if isinstance(x, np.ndarray) or name in DIFFERENTIABLE}
    return {name: jax.numpy.asarray(x) for name, x in arrays.items()}, {
        name: x for name, x in arguments.items() if name not in arrays
    }


def same(ours, array):
    """Whether arrays have the same bits, type and shape."""
    ours, array = np.asarray(ours), np.asarray(array)
    return ours.dtype == array.dtype and ours.shape == array.shape and ours.tobytes() == array.tobytes()


def upstream_of(arguments, seed=1):
    """Gradients of both results; that of the log-sum-exp is 0 where a query sees nothing."""
    out, lse = hs.attention(**arguments, return_lse=True)
    rng = np.random.default_rng(seed)
    grad_lse = np.where(np.isfinite(lse), rng.standard_normal(lse.shape), 0)
    return rng.standard_normal(out.shape).astype(out.dtype), grad_lse.astype(lse.dtype)


def check_equal(attention, arguments):
    """Compare results and gradients with those of the NumPy functions."""
    traced, plain = split(arguments)
    learned = {name: x for name, x in traced.items() if name in LEARNED}
    grad_out, grad_lse = upstream_of(arguments)

    @jax.jit
    def both(learned, others, upstream):
        results, vjp = jax.vjp(lambda learned: attention(**learned, **others, **plain, return_lse=True), learned)
        return results, vjp(upstream)[0]

    others = {name: x for name, x in traced.items() if name not in learned}
    (out, lse), gradients = both(learned, others, (grad_out, grad_lse))
    (expected, expected_lse), vjp = hs.attention_vjp(**arguments, return_lse=True)
    assert same(out, expected)
    assert same(lse, expected_lse)
    expected_gradients = vjp(grad_out, grad_lse)
    for name, gradient in gradients.items():
        assert same(gradient, getattr(expected_gradients, name)), name
