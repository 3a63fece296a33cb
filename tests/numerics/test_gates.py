"""Factors of blocks: their gradients, closed gates and wrong arguments.

The random cases of attention check their values.
"""

import headspan as hs
import numpy as np
import pytest
from cases import DTYPES, normals


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("block", [(64, 64), (16, 40), (100, 7)], ids=str)
def test_closed_gates_are_blocks_left_out(block, dtype):
    """Results are the same with and without the pattern, gradients are 0, and the pattern skips the keys."""
    query, key, value = (normals(i, 2, 4, 300, 16, dtype=dtype) for i in range(3))
    gates = np.random.default_rng(3).uniform(0.2, 1, (4, -(-300 // block[0]), -(-300 // block[1])))
    gates[np.random.default_rng(4).random(gates.shape) < 0.4] = 0
    options = {"block_gates": gates, "gate_block_size": block, "span": 90.5}
    pattern = hs.patterns.Blocks(gates > 0, block, per_head=True)
    out, vjp = hs.attention_vjp(query, key, value, **options)
    left, left_vjp = hs.attention_vjp(query, key, value, pattern=pattern, **options)
    tolerance = 1e-11 if dtype == "float64" else 3e-5
    np.testing.assert_allclose(out, left, rtol=0, atol=tolerance)
    np.testing.assert_allclose(out, hs.reference.attention(query, key, value, **options), rtol=0, atol=tolerance)
    gradient, wanted = vjp(np.ones_like(out)).block_gates, left_vjp(np.ones_like(out)).block_gates
    np.testing.assert_allclose(gradient, wanted, rtol=0, atol=100 * tolerance)
    assert not gradient[gates == 0].any()
    closed = np.ones((4, 300), bool)
    for head, _, column in np.argwhere(gates > 0):
        closed[head, column * block[1] : (column + 1) * block[1]] = False
    key[:, closed], value[:, closed] = np.nan, np.inf
    assert np.array_equal(hs.attention(query, key, value, pattern=pattern, **options), left)


def test_sides_of_blocks_are_given_in_any_form():
    arrays = [normals(i, 2, 40, 8) for i in range(3)]
    gates = np.random.default_rng(0).uniform(0.1, 1, (5, 2))
    expected = hs.attention(*arrays, block_gates=gates, gate_block_size=(8, 24))
    for form in ([8, 24], np.array([8, 24], np.int16), (np.int64(8), 24)):
        assert np.array_equal(hs.attention(*arrays, block_gates=gates, gate_block_size=form), expected)
        assert hs.patterns.Blocks(gates > 0, form) == hs.patterns.Blocks(gates > 0, (8, 24))
        assert hs.sparse.learned_blocks(gates, form, tokens=40)["gate_block_size"] == (8, 24)
    assert hs.patterns.Blocks(np.eye(3, dtype=bool), np.array(16)).block_size == 16


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ("gate_block_size", {"gate_block_size": None}), ("gate_block_size", {"gate_block_size": 2.5}),
        ("gate_block_size", {"gate_block_size": 0}),
        ("gate_block_size", {"gate_block_size": (1, 2, 3)}), ("negative", {"block_gates": -np.ones((3, 3))}),
        ("shape", {"block_gates": np.ones((3, 2))}), ("shape", {"block_gates": np.ones((3, 3, 3))}),
        ("finite", {"block_gates": np.full((3, 3), np.nan)}), ("recur", {"segment_ids": np.arange(40) % 3}),
        ("queries", {"queries": 41}),
    ],
    ids=str,
)  # fmt: skip
def test_gates_that_do_not_fit(words, wrong):
    options = {"block_gates": np.ones((3, 3)), "gate_block_size": 16, "causal": False} | wrong
    query = normals(0, 2, options.pop("queries", 40), 8)
    with pytest.raises((TypeError, ValueError), match=words) as caught:
        hs.attention(query, normals(1, 2, 40, 8), normals(2, 2, 40, 8), **options)
    assert "\n" not in str(caught.value)


FORMS = {
    "squares": ((3, 3), 16, False),
    "of each head": ((2, 3, 3), 16, False),
    "of all heads": ((1, 3, 3), 16, False),
    "rectangles": ((2, 5, 2), (8, 24), False),
    "tied": ((3,), 16, True),
    "tied, of each head": ((2, 3), 16, True),
}


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("shape", "block", "tied"), FORMS.values(), ids=FORMS)
def test_gradients_of_learned_blocks_are_those_of_the_loss(shape, block, tied, causal):
    query, key, value, weight = (normals(i, 3, 2, 40, 8) for i in range(4))
    gates = np.random.default_rng(3).uniform(0.1, 0.9, shape)
    gates.flat[-1] = 0  # the farthest is closed

    def loss(gates):
        options = hs.sparse.learned_blocks(gates, block, tokens=40, tied=tied)
        return np.vdot(weight, hs.attention(query, key, value, causal=causal, **options))

    options, gates_vjp = hs.sparse.learned_blocks_vjp(gates, block, tokens=40, tied=tied)
    _, vjp = hs.attention_vjp(query, key, value, causal=causal, **options)
    gradient = gates_vjp(vjp(weight).block_gates).gates
    assert gradient.shape == gates.shape
    assert gradient.flat[-1] == 0
    for index in list(np.ndindex(shape))[:-1]:
        ahead, behind = gates.copy(), gates.copy()
        ahead[index] += 1e-6
        behind[index] -= 1e-6
        np.testing.assert_allclose(gradient[index], (loss(ahead) - loss(behind)) / 2e-6, rtol=0, atol=1e-7)


def test_closed_blocks_cost_nothing_and_diagonal_blocks_are_open():
    gates = np.zeros((2, 4, 4))
    gates[1, 3, 0] = 5.0
    options, vjp = hs.sparse.learned_blocks_vjp(gates, 25, tokens=100)
    assert list(options["block_gates"][1, 3]) == [1, 0, 0, 1]
    pairs = hs.cost(tokens=100, num_heads=2, head_dim=8, causal=False, **options).head_pairs
    assert list(pairs) == [4 * 25 * 25, 5 * 25 * 25]
    assert list(np.flatnonzero(vjp(np.ones((2, 4, 4))).gates)) == [16 + 12]


@pytest.mark.unsanitized
@pytest.mark.parametrize("weight", [0.003, 0.03])
@pytest.mark.parametrize("seed", range(5))
def test_a_planted_pattern_is_found(seed, weight):
    """The diagonal and two random blocks of each row, from the outputs of attention over these alone."""
    rng = np.random.default_rng(seed)
    blocks, size = 8, 8
    planted = np.eye(blocks, dtype=bool)
    for row in range(blocks):
        planted[row, rng.choice(np.flatnonzero(~planted[row]), 2, replace=False)] = True
    gates, mean, square = np.ones((blocks, blocks)), 0.0, 0.0
    for step in range(1, 181):
        query, key, value = rng.standard_normal((3, 4, 1, blocks * size, 16))
        wanted = hs.attention(query, key, value, pattern=hs.patterns.Blocks(planted, size), causal=False)
        options, gates_vjp = hs.sparse.learned_blocks_vjp(gates, size, tokens=blocks * size)
        out, vjp = hs.attention_vjp(query, key, value, causal=False, **options)
        gradient = (
            gates_vjp(vjp(2 * (out - wanted) / out.size).block_gates).gates
            + hs.span_penalty_vjp(gates, weight)[1]().span
        )
        mean, square = 0.9 * mean + 0.1 * gradient, 0.99 * square + 0.01 * gradient**2
        move = (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.99**step)) + 1e-8)
        gates = np.where(gates > 0, np.clip(gates - 0.03 * move, 0, 1), 0)
    assert np.array_equal(options["block_gates"][0] > 0, planted)


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ("gates must be of shape", {"gates": np.ones((3, 2))}), ("gates must be finite", {"gates": [[np.nan] * 3] * 3}),
        ("gates must be real", {"gates": "open"}), ("block_size", {"block_size": 0}), ("tokens", {"tokens": 0}),
        ("must be square", {"block_size": (16, 8), "tied": True}), ("tied", {"tied": 1}),
        (r"shape \(3,\) or", {"tied": True, "gates": np.ones(4)}),
    ],
    ids=str,
)  # fmt: skip
def test_wrong_arguments_of_learned_blocks(words, wrong):
    arguments = {"gates": np.ones((3, 3)), "block_size": 16, "tokens": 40} | wrong
    with pytest.raises((TypeError, ValueError), match=words) as caught:
        hs.sparse.learned_blocks(arguments.pop("gates"), arguments.pop("block_size"), **arguments)
    assert "\n" not in str(caught.value)
