"""The functions of docs/recipes.md give what their definitions do as dense matrices."""

import numpy as np
import pytest
from helpers import ROOT, examples


@pytest.fixture(scope="module")
def recipes():
    namespace = {}
    exec(examples(ROOT / "docs" / "recipes.md"), namespace)
    return namespace


@pytest.fixture
def qkv():
    return np.random.default_rng(0).standard_normal((3, 2, 3, 30, 8))


def dense(q, k, v, allowed, added=0.0):
    scores = np.where(allowed, q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + added, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ v


def test_axial(recipes, qkv):
    row, column = np.divmod(np.arange(30), 6)
    same_row, same_column = row == row[:, None], column == column[:, None]
    allowed = same_row, same_column, same_row | same_column
    for ours, which in zip(recipes["axial"](*qkv, (5, 6)), allowed, strict=True):
        np.testing.assert_allclose(ours, dense(*qkv, which), atol=1e-11)


def test_forgetting(recipes, qkv):
    """Gates by the product of all between key and query; their gradient by central differences."""
    rng = np.random.default_rng(1)
    gates = rng.uniform(0.2, 1, (2, 3, 30))
    causal = np.tri(30, dtype=bool)

    def definition(log_gates):
        added = np.zeros((2, 3, 30, 30))
        for i in range(30):
            for j in range(i):
                added[:, :, i, j] = log_gates[:, :, j + 1 : i + 1].sum(axis=-1)
        return dense(*qkv, causal, added)

    out, gradient = recipes["forgetting"](*qkv, np.log(gates))
    np.testing.assert_allclose(out, definition(np.log(gates)), atol=1e-11)

    weight = rng.standard_normal(out.shape)
    direction = rng.standard_normal(gates.shape)
    ahead, behind = (definition(np.log(gates) + step * direction) for step in (1e-5, -1e-5))
    slope = np.sum((ahead - behind) * weight) / 2e-5
    np.testing.assert_allclose(np.sum(gradient(weight) * direction), slope, rtol=1e-7)


@pytest.mark.parametrize("queries", [30, 4])
def test_with_memory(recipes, qkv, queries):
    """A window and a span limit tokens and not the memories."""
    q, k, v = qkv
    q = q[:, :, -queries:]
    memory = np.random.default_rng(1).standard_normal((2, 2, 3, 5, 8))
    together = [np.concatenate([m, a], axis=2) for m, a in zip(memory, (k, v), strict=True)]
    at, key = np.arange(30 - queries, 30)[:, None], np.arange(30)
    for window, span in ((6, None), (20, 9)):
        near = (key <= at) & (at - key <= (window if span is None else min(window, span)))
        allowed = np.hstack([np.ones((queries, 5), bool), near])
        ours = recipes["with_memory"](q, k, v, *memory, window, span=span, ramp=0)
        np.testing.assert_allclose(ours, dense(q, *together, allowed), atol=1e-11)


@pytest.mark.parametrize("queries", [30, 4])
def test_compressed(recipes, qkv, queries):
    """Thirty tokens in blocks of four: the last two are in none."""
    q, k, v = qkv
    q = q[:, :, -queries:]
    means = [np.stack([a[:, :, 4 * b : 4 * b + 4].mean(axis=2) for b in range(7)], axis=2) for a in (k, v)]
    together = [np.concatenate([a, m], axis=2) for m, a in zip(means, (k, v), strict=True)]
    at, key = np.arange(30 - queries, 30)[:, None], np.arange(30)
    allowed = np.hstack([(key <= at) & (at - key <= 5), 4 * np.arange(7) + 3 <= at])
    np.testing.assert_allclose(recipes["compressed"](q, k, v, 4, 5), dense(q, *together, allowed), atol=1e-11)
