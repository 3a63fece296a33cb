"""Pairs that a bias of -inf or a gate of 0 removes are left out like masked ones, whatever their rows hold."""

import headspan as hs
import numpy as np
import oracle
import pytest
from cases import DTYPES, normals
from headspan.patterns import Global, Window

pytestmark = pytest.mark.numerical
TOKENS, KEYS = 70, 150
POISONED = (3, 40, 101)  # keys; the second is removed for some queries, the others for all
EMPTY = 20  # a query that has no pair left


def removed_pairs():
    removed = np.random.default_rng(0).random((TOKENS, KEYS)) < 0.3
    removed[EMPTY], removed[:, POISONED[0]], removed[:, POISONED[2]] = True, True, True
    removed[:35, POISONED[1]] = True
    return removed


def by_bias(dtype):
    return {"pair_bias": np.where(removed_pairs(), -np.inf, normals(9, TOKENS, KEYS)).astype(dtype)}


def by_gates(dtype):
    """Gates of single keys, so that some are removed for all queries, and of ten queries each."""
    gates = np.random.default_rng(1).uniform(0.2, 1, (2, KEYS // 10, KEYS))
    gates[np.random.default_rng(2).random(gates.shape) < 0.3] = 0
    gates[:, :, [POISONED[0], POISONED[2]]] = 0
    gates[:, :12, POISONED[1]], gates[:, (EMPTY + KEYS - TOKENS) // 10] = 0, 0
    return {"block_gates": gates.astype(dtype), "gate_block_size": (10, 1)}


def by_both(dtype):
    """A pair that one of them removes is removed, even where the other is infinite or NaN."""
    options = by_bias(dtype) | by_gates(dtype)
    options["pair_bias"][:, POISONED[2]] = np.nan  # closed by the gates
    return options


KINDS = {"bias": by_bias, "gates": by_gates, "both": by_both}
MORE = {
    "alone": {},
    "soft spans": {"span": np.linspace(5, 200, TOKENS).reshape(1, 1, -1), "ramp": 24, "alibi_slopes": [0.05, -0.01]},
    "other options": {
        "span": [30.5, 90.25], "ramp": 16, "temperature": [0.7, 1.5], "softcap": 3.0, "sinks": [0.5, -1.0],
        "distance_bias": np.linspace(-1, 1, 12), "persistent_key": normals(7, 3, 8),
        "persistent_value": normals(8, 3, 5),
        "key_bias": np.where(np.arange(KEYS) % 11, np.linspace(-1, 1, KEYS), -np.inf), "dropout": 0.2, "seed": 5,
    },
    "a pattern": {"causal": False},
}  # fmt: skip


def problem(kind, more, dtype):
    arrays = [normals(i, 1, heads, n, dim, dtype=dtype) for i, (heads, n, dim) in enumerate(
        [(2, TOKENS, 8), (1, KEYS, 8), (1, KEYS, 5), (2, TOKENS, 5)])]  # fmt: skip
    floats = {name: np.asarray(option, dtype) for name, option in MORE[more].items() if name.startswith("persistent")}
    pattern = {"pattern": Window(41) | Global([0, 100])} if more == "a pattern" else {}
    return *arrays, {**MORE[more], **floats, **KINDS[kind](dtype), **pattern}


def results(query, key, value, grad_out, options):
    (out, lse), vjp = hs.attention_vjp(query, key, value, return_lse=True, **options)
    gradients = {name: array for name, array in vjp(grad_out, grad_out[..., 0])._asdict().items() if array is not None}
    weights = hs.attention_weights(query, key, **options)
    return {
        "out": out,
        "lse": lse,
        "weights": weights,
        **{f"gradient of {name}": gradient for name, gradient in gradients.items()},
    }


def poisoned(array, keys, poison):
    array = array.copy()
    array[:, :, list(keys)] = poison
    return array


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("more", MORE)
@pytest.mark.parametrize("kind", KINDS)
def test_keys_that_no_query_sees_change_nothing(kind, more, poison, dtype):
    query, key, value, grad_out, options = problem(kind, more, dtype)
    before = results(query, key, value, grad_out, options)
    unseen = POISONED[::2]
    after = results(query, poisoned(key, unseen, poison), poisoned(value, unseen, poison), grad_out, options)
    for name, result in before.items():
        np.testing.assert_array_equal(after[name], result, err_msg=name)
        assert np.isfinite(result).all() or name == "lse", name
    assert (before["out"][:, :, EMPTY] == 0).all() or "persistent_key" in options
    assert (before["gradient of query"][:, :, EMPTY] == 0).all() or "persistent_key" in options
    assert np.isneginf(before["lse"][:, :, EMPTY]).all() or "persistent_key" in options


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("more", [name for name in MORE if name != "a pattern"])
@pytest.mark.parametrize("kind", ["bias", "gates"])
@pytest.mark.parametrize("name", ["query", "key", "value"])
def test_nan_reaches_the_pairs_that_see_it(name, kind, more, dtype):
    """NaN and all other numbers are those of the oracle, which leaves out pairs that are not seen."""
    query, key, value, grad_out, options = problem(kind, more, dtype)
    arrays = {"query": query, "key": key, "value": value}
    arrays[name] = poisoned(arrays[name], (EMPTY, 50) if name == "query" else POISONED, np.nan)
    ours = results(*arrays.values(), grad_out, options)
    with np.errstate(invalid="ignore"):
        dense = oracle.with_persistent_columns(**arrays, **options)
        gradients = oracle.gradients(**arrays, grad_out=grad_out, grad_lse=grad_out[..., 0], matrices=dense, **options)
        reference = hs.reference.attention(**arrays, **options)
    expected = {"out": dense.out, "lse": dense.lse, "weights": dense.weights[..., :KEYS]}
    expected |= {f"gradient of {name}": gradient.value for name, gradient in gradients.items()}
    assert ours.keys() == expected.keys()
    assert np.isnan(ours["out"]).any()
    for result, right in expected.items():
        np.testing.assert_array_equal(np.isnan(ours[result]), np.isnan(right), err_msg=result)
        scale = np.abs(right, where=np.isfinite(right), out=np.ones(right.shape)).max()
        tolerance = (3e-5 if dtype == "float32" else 1e-12) * scale
        np.testing.assert_allclose(ours[result], right, rtol=0, atol=tolerance, err_msg=result)
    np.testing.assert_allclose(reference, dense.out, rtol=0, atol=1e-6 if dtype == "float32" else 1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["bias", "gates"])
def test_threads(kind, dtype):
    """Any number of threads gives the same bits, with NaN and with keys that are removed for all queries."""
    tokens, rng = 500, np.random.default_rng(0)
    query, key, value, grad_out = (normals(i, 1, 4, tokens, 32, dtype=dtype) for i in range(4))
    if kind == "bias":
        bias = np.where(rng.random((tokens, tokens)) < 0.3, -np.inf, normals(5, tokens, tokens)).astype(dtype)
        bias[:, 64:192], bias[:, 300] = -np.inf, np.where(np.arange(tokens) < 400, -np.inf, 0)
        options = {"pair_bias": bias}
    else:
        gates = np.where(rng.random((50, 500)) < 0.3, 0, rng.uniform(0.2, 1, (50, 500))).astype(dtype)
        gates[:, 64:192], gates[:40, 300] = 0, 0
        options = {"block_gates": gates, "gate_block_size": (10, 1)}
    key[:, :, 64:192], value[:, :, [100, 300]] = np.nan, np.inf
    before = hs.get_num_threads()
    try:
        runs = []
        for threads in (1, 2, 3):
            hs.set_num_threads(threads)
            runs.append(results(query, key, value, grad_out, options))
    finally:
        hs.set_num_threads(before)
    for other in runs[1:]:
        for name, result in runs[0].items():
            np.testing.assert_array_equal(other[name], result, err_msg=name)
    assert np.isfinite(runs[0]["out"][:, :, :400]).all()
    assert not np.isfinite(runs[0]["out"][:, :, 400:]).all()
