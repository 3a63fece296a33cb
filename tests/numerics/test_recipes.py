"""The functions of docs/howto/recipes.md give what their definitions do as dense matrices."""

import numpy as np
import pytest
from headspan.patterns import Blocks, Window
from helpers import ROOT, examples


@pytest.fixture(scope="module")
def recipes():
    namespace = {}
    exec(examples(ROOT / "docs" / "howto" / "recipes.md"), namespace)
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
def test_with_persistent(recipes, qkv, queries):
    """A window and a span limit tokens, but not persistent keys."""
    q, k, v = qkv
    q = q[:, :, -queries:]
    memory = np.random.default_rng(1).standard_normal((2, 2, 3, 5, 8))
    together = [np.concatenate([m, a], axis=2) for m, a in zip(memory, (k, v), strict=True)]
    at, key = np.arange(30 - queries, 30)[:, None], np.arange(30)
    for window, span in ((7, None), (21, 9)):
        near = (key <= at) & (at - key <= (window - 1 if span is None else min(window - 1, span)))
        allowed = np.hstack([np.ones((queries, 5), bool), near])
        ours = recipes["with_persistent"](q, k, v, *memory, window, span=span, ramp=0)
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
    np.testing.assert_allclose(recipes["compressed"](q, k, v, 4, 6), dense(q, *together, allowed), atol=1e-11)


def dense_with_factors(q, k, v, factors, grad_out):
    """Softmax of exponentials with a factor each: out, and the gradients of q, k, v and the factors."""
    scale = q.shape[-1] ** -0.5
    exponentials = np.exp(scale * q @ k.swapaxes(-1, -2))
    total = (factors * exponentials).sum(axis=-1, keepdims=True)
    weights = factors * exponentials / total
    out = weights @ v
    by_weight = grad_out @ v.swapaxes(-1, -2) - (grad_out * out).sum(axis=-1, keepdims=True)
    by_score = scale * weights * by_weight
    by_value = weights.swapaxes(-1, -2) @ grad_out
    return out, (by_score @ k, by_score.swapaxes(-1, -2) @ q, by_value, exponentials / total * by_weight)


@pytest.mark.parametrize("queries", [30, 11])
@pytest.mark.parametrize("overlapping", [False, True])
def test_window_and_gates(recipes, qkv, overlapping, queries):
    """Some gates are closed, among them all of the last block of queries; pairs of both parts count twice."""
    q, k, v = qkv
    q, grad_out = q[:, :, -queries:], np.random.default_rng(1).standard_normal((2, 3, queries, 8))
    gates = np.random.default_rng(2).uniform(0.1, 1, (3, 8, 8))
    gates[:, -1] = 0
    gates[np.random.default_rng(3).random(gates.shape) < 0.3] = 0
    if overlapping:
        far = {"pattern": Blocks(gates > 0, 4, per_head=True), "block_gates": gates, "gate_block_size": 4}
        out, vjp = recipes["together"](q, k, v, {"pattern": Window(6)}, far)
        near, far = vjp(grad_out)
        gradients = [*(a + b for a, b in zip(near[:3], far[:3], strict=True)), far.block_gates]
    else:
        out, vjp = recipes["window_and_gates"](q, k, v, gates, 4, 6)
        gradients = vjp(grad_out)
    at, key = np.arange(30 - queries, 30)[:, None], np.arange(30)
    near, past = (key <= at) & (at - key <= 5), (key <= at) & (overlapping | (at - key > 5))
    blocks = at // 4, key // 4
    expected, (*of_arrays, of_factors) = dense_with_factors(q, k, v, near + past * gates[:, *blocks], grad_out)
    of_gates = np.zeros_like(gates)
    np.add.at(of_gates, (slice(None), *np.broadcast_arrays(*blocks)), (of_factors * past).sum(axis=0))
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-11)
    for ours, theirs in zip(gradients, [*of_arrays, np.where(gates > 0, of_gates, 0)], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-10)
