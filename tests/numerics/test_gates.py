"""Factors of blocks, where they close and where they are given wrongly; their numbers are in all random cases."""

import headspan as hs
import numpy as np
import pytest
from cases import DTYPES, normals


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("block", [(64, 64), (16, 40), (100, 7)], ids=str)
def test_closed_gates_are_blocks_left_out(block, dtype):
    """With the same numbers as without the pattern, and no gradient; and what lies there is not read with it."""
    query, key, value = (normals(i, 2, 4, 300, 16, dtype=dtype) for i in range(3))
    gates = np.random.default_rng(3).uniform(0.2, 1, (4, -(-300 // block[0]), -(-300 // block[1])))
    gates[np.random.default_rng(4).random(gates.shape) < 0.4] = 0
    options = {"block_gates": gates, "gate_block": block, "span": 90.5}
    pattern = hs.patterns.Blocks(gates > 0, block, per_head=True)
    out, vjp = hs.attention_vjp(query, key, value, **options)
    left, left_vjp = hs.attention_vjp(query, key, value, pattern=pattern, **options)
    tolerance = 1e-11 if dtype == "float64" else 3e-5
    np.testing.assert_allclose(out, left, rtol=0, atol=tolerance)
    np.testing.assert_allclose(out, hs.reference.attention(query, key, value, **options), rtol=0, atol=tolerance)
    found, wanted = vjp(np.ones_like(out)).block_gates, left_vjp(np.ones_like(out)).block_gates
    np.testing.assert_allclose(found, wanted, rtol=0, atol=100 * tolerance)
    assert not found[gates == 0].any()
    closed = np.ones((4, 300), bool)
    for head, _, column in np.argwhere(gates > 0):
        closed[head, column * block[1] : (column + 1) * block[1]] = False
    key[:, closed], value[:, closed] = np.nan, np.inf
    assert np.array_equal(hs.attention(query, key, value, pattern=pattern, **options), left)


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ("gate_block", {"gate_block": None}), ("gate_block", {"gate_block": 2.5}), ("gate_block", {"gate_block": 0}),
        ("gate_block", {"gate_block": (1, 2, 3)}), ("negative", {"block_gates": -np.ones((3, 3))}),
        ("shape", {"block_gates": np.ones((3, 2))}), ("shape", {"block_gates": np.ones((3, 3, 3))}),
        ("finite", {"block_gates": np.full((3, 3), np.nan)}), ("come back", {"segment_ids": np.arange(40) % 3}),
        ("queries", {"queries": 41}),
    ],
    ids=str,
)  # fmt: skip
def test_gates_that_do_not_fit(words, wrong):
    options = {"block_gates": np.ones((3, 3)), "gate_block": 16, "causal": False} | wrong
    query = normals(0, 2, options.pop("queries", 40), 8)
    with pytest.raises((TypeError, ValueError), match=words) as caught:
        hs.attention(query, normals(1, 2, 40, 8), normals(2, 2, 40, 8), **options)
    assert "\n" not in str(caught.value)
