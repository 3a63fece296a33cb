"""The window of jax.nn.dot_product_attention."""

import headspan as hs
import numpy as np
import pytest
from headspan.patterns import Window

jax = pytest.importorskip("jax", reason="needs jax: nox -s jax")


def inputs(queries, keys):
    rng = np.random.default_rng(0)
    return [rng.standard_normal((2, 3, count, 8), dtype=np.float32) for count in (queries, keys, keys)]


def theirs(q, k, v, **options):
    return jax.nn.dot_product_attention(*(a.swapaxes(1, 2) for a in (q, k, v)), **options).swapaxes(1, 2)


@pytest.mark.parametrize("window", [3, (3, 2), (0, 4)])
@pytest.mark.parametrize("causal", [False, True])
def test_jax_local_window_size(window, causal):
    before, after = window if isinstance(window, tuple) else (window, window)
    q, k, v = inputs(13, 13)
    ours = hs.attention(q, k, v, pattern=Window(before + 1, ahead=after), causal=causal)
    np.testing.assert_allclose(ours, theirs(q, k, v, local_window_size=window, is_causal=causal), atol=1e-5)


def test_jax_is_causal():
    """The causal mask begins at the top left, as in torch."""
    q, k, v = inputs(5, 13)
    ours = hs.attention(q, k, v, query_positions=np.arange(5))
    np.testing.assert_allclose(ours, theirs(q, k, v, is_causal=True), atol=1e-5)
