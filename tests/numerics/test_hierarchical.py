"""Hierarchical attention against its definition, key by key."""

import headspan as hs
import numpy as np
import pytest
from cases import DTYPES, normals
from hierarchy_oracle import means_of


def defined(query, key, value, side, scale=None, sink=None):
    """Outputs and log-sum-exps of one head, in float64."""
    query, key, value = (np.asarray(x, np.float64) for x in (query, key, value))
    tokens, scale = len(key), query.shape[-1] ** -0.5 if scale is None else scale
    out, lse = np.zeros((len(query), value.shape[1])), np.zeros(len(query))
    sums = [np.cumsum(np.vstack([np.zeros_like(x[:1]), x]), axis=0) for x in (key, value)]
    for i, q in enumerate(query):
        first, size = np.array(means_of(i + tokens - len(query), side)).T
        keys, values = ((x[first + size] - x[first]) / size[:, None] for x in sums)
        weights = np.exp(scale * keys @ q) * size
        total = weights.sum() + (0 if sink is None else np.exp(sink))
        out[i], lse[i] = weights @ values / total, np.log(total)
    return out, lse


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("tokens", "queries"), [(1, 1), (7, 7), (64, 64), (333, 333), (300, 41)])
@pytest.mark.parametrize("side", [1, 4, 7, 16, 400])
def test_values_are_those_of_the_definition(side, tokens, queries, dtype):
    query = normals(0, 2, 4, queries, 8, dtype=dtype)
    key, value = (normals(i, 2, 2, tokens, n, dtype=dtype) for i, n in ((1, 8), (2, 5)))
    options = {"scale": 0.5, "sinks": [0.5, -1, 0, 2]}
    out, lse = hs.sparse.hierarchical_attention(query, key, value, block_size=side, return_lse=True, **options)
    tolerance = 1e-11 if dtype == "float64" else 3e-5
    for batch, head in np.ndindex(2, 4):
        arrays = query[batch, head], key[batch, head // 2], value[batch, head // 2]
        expected = defined(*arrays, side, scale=0.5, sink=options["sinks"][head])
        np.testing.assert_allclose(out[batch, head], expected[0], rtol=0, atol=tolerance)
        np.testing.assert_allclose(lse[batch, head], expected[1], rtol=0, atol=tolerance)


def test_every_token_is_in_one_group():
    for query in (0, 1, 5, 63, 64, 200, 332):
        seen = np.zeros(333, int)
        for first, size in means_of(query, 4):
            seen[first : first + size] += 1
        assert list(seen) == [1] * (query + 1) + [0] * (332 - query)


@pytest.mark.parametrize("side", [1, 7, 16])
def test_gradients_are_those_of_the_values(side):
    query, key, value = normals(0, 2, 41, 6), normals(1, 1, 90, 6), normals(2, 1, 90, 5)
    grad_out, grad_lse = normals(3, 2, 41, 5), normals(4, 2, 41)

    def loss(*arrays, **options):
        out, lse = hs.sparse.hierarchical_attention(*arrays, block_size=side, return_lse=True, **options)
        return np.vdot(out, grad_out) + np.vdot(lse, grad_lse)

    arrays, sinks = [query, key, value], np.array([0.5, -1.0])
    _, vjp = hs.sparse.hierarchical_attention_vjp(*arrays, block_size=side, sinks=sinks, return_lse=True)
    gradients = vjp(grad_out, grad_lse)
    assert gradients.key_bias is None
    for which, gradient in enumerate(gradients[:3]):
        assert gradient.shape == arrays[which].shape
        for index in [(0, 0, 0), (0, -1, -1), *np.random.default_rng(side).integers(0, (1, 41, 5), (12, 3))]:
            moved = [[x.copy() for x in arrays] for _ in range(2)]
            for sign, shifted in zip((1, -1), moved, strict=True):
                shifted[which][tuple(index)] += sign * 1e-5
            ahead, behind = (loss(*shifted, sinks=sinks) for shifted in moved)
            np.testing.assert_allclose(gradient[tuple(index)], (ahead - behind) / 2e-5, rtol=0, atol=1e-7)
    ahead, behind = (loss(*arrays, sinks=sinks + np.array([sign * 1e-5, 0])) for sign in (1, -1))
    np.testing.assert_allclose(gradients.sinks[0], (ahead - behind) / 2e-5, rtol=0, atol=1e-7)


def test_equal_keys_of_a_group_are_exact():
    query, value = normals(0, 2, 500, 8), normals(1, 2, 500, 8)
    key = np.repeat(normals(2, 2, 1, 8), 500, axis=1)
    out = hs.sparse.hierarchical_attention(query, key, value, block_size=8)
    np.testing.assert_allclose(out, hs.attention(query, key, value), rtol=0, atol=1e-12)


def test_a_changed_future_changes_nothing_before_it():
    query, key, value = (normals(i, 2, 300, 8, dtype="float32") for i in range(3))
    before = hs.sparse.hierarchical_attention(query, key, value, block_size=8)
    for array in (query, key, value):
        array[:, 150:] *= -3
    after = hs.sparse.hierarchical_attention(query, key, value, block_size=8)
    assert after[:, :150].tobytes() == before[:, :150].tobytes()
    assert (after[:, 150:] != before[:, 150:]).any()


@pytest.mark.parametrize(("tokens", "queries"), [(1, 1), (7, 7), (333, 333), (300, 41), (300, 1)])
@pytest.mark.parametrize("side", [1, 4, 7, 400])
def test_cost_counts_the_groups_that_queries_see(side, tokens, queries):
    counted = sum(len(means_of(query, side)) for query in range(tokens - queries, tokens))
    cost = hs.sparse.hierarchical_cost(
        tokens=queries, num_heads=3, head_dim=8, key_tokens=tokens, block_size=side, batch=2
    )
    assert list(cost.head_pairs) == [2 * counted] * 3
    assert (cost.pairs, cost.forward_flops, cost.backward_flops) == (6 * counted, 192 * counted, 480 * counted)
    assert cost.dense_flops == hs.cost(tokens=queries, num_heads=3, head_dim=8, key_tokens=tokens, batch=2).dense_flops


def test_pairs_grow_as_the_logarithm():
    """Twice as many tokens add a level to the pairs of a query: one or two stretches of means."""
    pairs = [
        hs.sparse.hierarchical_cost(tokens=1, key_tokens=64 * 2**i, num_heads=1, head_dim=8).pairs for i in range(4, 14)
    ]
    assert all(64 <= more <= 128 for more in np.diff(pairs))


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ("block_size", {"block_size": 0}), ("block_size", {"block_size": 2.5}), ("query", {"query": np.ones((9, 3))}),
        ("query", {"query": np.ones(3)}), ("same number of tokens", {"value": np.ones((7, 3))}),
        ("key", {"key": "near"}),
        ("query", {"query": np.ones((0, 3))}),
    ],
    ids=str,
)  # fmt: skip
def test_bad_calls(words, wrong):
    arguments = {"query": np.ones((8, 3)), "key": np.ones((8, 3)), "value": np.ones((8, 3))} | wrong
    with pytest.raises((TypeError, ValueError), match=words) as caught:
        hs.sparse.hierarchical_attention(**arguments)
    assert "\n" not in str(caught.value)
