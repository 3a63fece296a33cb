"""merge, weights, cost, soft_mask, span_penalty, dynamic_span and build_info."""

import headspan as hs
import limits_oracle
import numpy as np
import oracle
import pytest
from cases import DTYPES, make_case, normals
from headspan import _core
from headspan.ops.spans import farthest
from tolerances import check_close

CLOSE = {"rtol": 0, "atol": 1e-12}
SINGLE = {"float64": 1e-12, "float32": 2e-6}


def merge_oracle(outs, lses):
    outs, lses = (np.asarray(a, dtype=np.float64) for a in (outs, lses))
    top = oracle.row_maximum(np.moveaxis(lses, 0, -1))[..., 0]
    parts = np.exp(lses - top)
    total = parts.sum(axis=0)
    safe = np.where(total == 0, 1.0, total)
    out = (parts[..., None] * outs).sum(axis=0) / safe[..., None]
    return out, np.where(total == 0, -np.inf, top + np.log(safe))


MERGES = {"one part": 1, "two parts": 2, "five parts": 5}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(7,), (3, 7), (2, 3, 7)], ids=["one head", "heads", "batch"])
@pytest.mark.parametrize("parts", MERGES.values(), ids=MERGES)
def test_merge(parts, shape, dtype):
    outs = [normals([1, i], *shape, 5, dtype=dtype) for i in range(parts)]
    lses = [30 * normals([2, i], *shape, dtype=dtype) for i in range(parts)]
    lses[0][..., 0] = -np.inf
    for lse, out in zip(lses, outs, strict=True):  # one row that no part has a key for
        lse[..., 3], out[..., 3, :] = -np.inf, 0
    out, lse = hs.merge_attention(outs, lses)
    expected, expected_lse = merge_oracle(outs, lses)
    assert out.dtype == lse.dtype == dtype
    np.testing.assert_allclose(out, expected, rtol=0, atol=SINGLE[dtype])
    np.testing.assert_allclose(lse, expected_lse, rtol=SINGLE[dtype], atol=SINGLE[dtype])
    assert np.all(out[..., 3, :] == 0)
    assert np.all(np.isneginf(lse[..., 3]))


def test_merge_takes_tuples_and_arrays():
    outs, lses = normals(1, 2, 7, 5), normals(2, 2, 7)
    from_lists = hs.merge_attention(list(outs), list(lses))
    from_tuples = hs.merge_attention(tuple(outs), tuple(lses))
    for one, two in zip(from_lists, from_tuples, strict=True):
        np.testing.assert_array_equal(one, two)


def test_merge_vjp_by_central_differences():
    outs, lses = list(normals(1, 3, 2, 4, 3)), list(normals(2, 3, 2, 4))
    lses[0][0, 0] = -np.inf
    for lse in lses:
        lse[1, 1] = -np.inf
    (out, lse), vjp = hs.merge_attention_vjp(outs, lses)
    for one, two in zip((out, lse), hs.merge_attention(outs, lses), strict=True):
        np.testing.assert_array_equal(one, two)
    grad_out, grad_lse = normals(3, *out.shape), normals(4, *lse.shape)
    grad_outs, grad_lses = vjp(grad_out, grad_lse)

    def loss(name, part, array):
        arguments = {"outs": list(outs), "lses": list(lses)}
        arguments[name][part] = array
        out, lse = hs.merge_attention(**arguments)
        return (out * grad_out).sum() + np.where(np.isfinite(lse), lse * grad_lse, 0.0).sum()

    for part in range(3):
        for name, arrays, actual in (("outs", outs, grad_outs), ("lses", lses, grad_lses)):
            expected = oracle.central_difference(lambda a, n=name, p=part: loss(n, p, a), arrays[part])
            np.testing.assert_allclose(actual[part], expected, rtol=0, atol=1e-7, err_msg=name)
    assert np.all(grad_lses[0][0, 0] == 0)


def test_merge_vjp_takes_no_grad_lse_as_zero():
    outs, lses = list(normals(1, 3, 2, 4, 3)), list(normals(2, 3, 2, 4))
    (out, lse), vjp = hs.merge_attention_vjp(outs, lses)
    grad_out = normals(3, *out.shape)
    first = vjp(grad_out)
    out[...], lse[...] = np.nan, np.nan  # the caller's own
    for one, two in zip(first, vjp(grad_out, np.zeros_like(lse)), strict=True):
        for a, b in zip(one, two, strict=True):
            np.testing.assert_allclose(a, b, **CLOSE)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", range(40))
def test_weights(seed, dtype):
    case = make_case(1000 + seed, dtype)
    query, key = case.arrays["query"], case.arrays["key"]
    weights = hs.attention_weights(query, key, **case.options)
    expected = oracle.attention_weights(query, key, **case.options)
    check_close("out", weights, expected, dtype)
    assert np.all(weights[expected == 0] == 0)


SELECTIONS = {
    "everything": (None, None),
    "slices": (slice(3, 20), slice(None, 50, 3)),
    "backwards": (slice(None, None, -1), slice(60, 2, -7)),
    "open ends": (slice(-5, None), slice(-1000, 1000)),
    "any order": ([5, 0, 69, 5], [79, 3, 3, 40]),
    "negative": ([-1, -70], np.array([-80, -2, 1])),
    "arrays": (np.arange(9, dtype=np.uint8), np.arange(70, 80, dtype=np.int32)),
    "one row": ([68], None),
}


@pytest.mark.parametrize(("rows", "cols"), SELECTIONS.values(), ids=SELECTIONS)
@pytest.mark.parametrize("pool", [None, 1, 4, (3, 7), (1000, 2)], ids=str)
def test_weights_of_some_rows_and_columns(rows, cols, pool):
    """Weights are normalised over all keys; blocks are formed of the selected rows and columns."""
    query, key = normals(0, 2, 4, 70, 8), normals(1, 2, 2, 80, 8)
    options = {"span": [2.5, 9.25, 30, 500], "alibi_slopes": 0.05}
    weights = hs.attention_weights(query, key, rows=rows, cols=cols, pool=pool, **options)
    expected = oracle.attention_weights(query, key, **options)
    expected = expected[:, :, slice(None) if rows is None else rows]
    expected = expected[:, :, :, slice(None) if cols is None else cols]
    expected = expected if pool is None else pool_oracle(expected, pool)
    assert weights.shape == expected.shape
    np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("pool", [2**31, 2**62, 2**63 - 1, 2**70])
def test_one_block_of_any_size(pool):
    """A block larger than the map is the whole map, however large the number."""
    query = normals(0, 2, 3, 70, 8)
    weights = hs.attention_weights(query, query, pool=(pool, pool))
    np.testing.assert_allclose(weights, np.ones((2, 3, 1, 1)), **CLOSE)


def pool_oracle(weights, pool):
    """Mean over the queries and sum over the keys of every block."""
    down, across = (pool, pool) if isinstance(pool, int) else pool
    queries, keys = weights.shape[-2:]
    rows = [weights[..., i : i + down, :].mean(axis=-2) for i in range(0, queries, down)]
    weights = np.stack(rows, axis=-2)
    cols = [weights[..., j : j + across].sum(axis=-1) for j in range(0, keys, across)]
    return np.stack(cols, axis=-1)


COSTS = {
    "causal": {"tokens": 70, "num_heads": 3, "head_dim": 8},
    "span": {"tokens": 70, "num_heads": 3, "head_dim": 8, "span": [0, 5.5, 1000], "ramp": 4},
    "hard window": {"tokens": 70, "num_heads": 3, "head_dim": 8, "span": [0, 5.5, 7], "ramp": 0},
    "edges of the ramp": {"tokens": 70, "num_heads": 3, "head_dim": 8, "span": [1, 1.25, 0.75],
                          "ramp": 2.75},
    "both directions": {"tokens": 33, "num_heads": 2, "head_dim": 5, "span": 6, "causal": False},
    "more keys": {"tokens": 20, "key_tokens": 90, "num_heads": 2, "head_dim": 5, "span": [3, 60]},
    "more queries": {"tokens": 90, "key_tokens": 20, "num_heads": 2, "head_dim": 5, "span": [3, 60],
                     "causal": True},
    "more queries, both directions": {"tokens": 90, "key_tokens": 20, "num_heads": 2, "head_dim": 5,
                                      "span": [3, 60], "causal": False, "ramp": 7.5},
    "batch": {"tokens": 30, "num_heads": 2, "head_dim": 4, "batch": 3, "span": 4},
    "batch and heads": {"tokens": 30, "num_heads": 2, "head_dim": 4, "batch": 3,
                        "span": [[1, 2], [3, 4], [5, 6]]},
    "tokens": {"tokens": 30, "num_heads": 2, "head_dim": 4, "batch": 3, "ramp": 2,
               "span": np.arange(180.0).reshape(3, 2, 30) / 6},
    "one token": {"tokens": 1, "num_heads": 1, "head_dim": 1},
    "not itself": {"tokens": 30, "num_heads": 2, "head_dim": 4, "span": [0, 3], "include_self": False},
    "padding": {"tokens": 30, "num_heads": 2, "head_dim": 4, "batch": 2, "key_start": [3, 0], "key_stop": [30, 11]},
    "ranges": {"tokens": 9, "key_tokens": 30, "num_heads": 2, "head_dim": 4, "batch": 2, "span": [4, 20],
               "key_ranges": [[[i, 30 - i] for i in range(9)], [[20, 20 + i] for i in range(9)]], "causal": False},
    "prefixes": {"tokens": 30, "num_heads": 1, "head_dim": 4, "batch": 2, "prefix_lengths": [9, 30], "key_start": 2},
    "documents": {"tokens": 30, "num_heads": 1, "head_dim": 4, "batch": 2, "span": 6.5,
                  "segment_ids": np.repeat([[0, 1, 2], [4, 4, 4]], [10], axis=1)},
    "clusters": {"tokens": 30, "num_heads": 2, "head_dim": 4, "batch": 2, "span": [3, 20], "key_stop": [30, 17],
                 "segment_ids": [np.arange(30) % 3, np.arange(30) * 7 % 5]},
    "packed queries and keys": {"tokens": 9, "key_tokens": 30, "num_heads": 1, "head_dim": 4, "span": 6.5,
                                "query_segments": [0] * 4 + [1] * 5, "key_segments": [0] * 20 + [1] * 10},
    "positions": {"tokens": 20, "key_tokens": 30, "num_heads": 1, "head_dim": 4, "span": 9, "ramp": 2,
                  "query_positions": np.arange(20) * 1.5, "key_positions": np.arange(30) * 1.25, "causal": False},
    "keys removed": {"tokens": 30, "num_heads": 2, "head_dim": 4, "span": 9,
                     "key_bias": np.where(np.arange(60).reshape(2, 30) % 4, 0.5, -np.inf)},
    "options that remove no pair": {"tokens": 30, "num_heads": 2, "head_dim": 4, "scale": 2.0, "temperature": [1, 2],
                                "alibi_slopes": 0.5, "key_bias": np.zeros(30)},
}  # fmt: skip


@pytest.mark.parametrize("arguments", COSTS.values(), ids=COSTS)
def test_cost(arguments):
    sizes = {"batch": 1, "key_tokens": arguments["tokens"]} | arguments
    batch, heads, queries, keys = (sizes[n] for n in ("batch", "num_heads", "tokens", "key_tokens"))
    other = {
        "tokens",
        "key_tokens",
        "num_heads",
        "head_dim",
        "batch",
        "scale",
        "temperature",
        "alibi_slopes",
        "key_bias",
    }
    options = {n: sizes[n] for n in sizes if n not in other}
    mask, _, _ = oracle.reach(queries, keys, 4, np.float64, **limits_oracle.placed(options, keys))
    removed = np.isneginf(sizes.get("key_bias", np.zeros(keys)))[..., None, :]
    mask = np.where(removed, 0, mask)
    counted = np.broadcast_to(mask > 0, (batch, heads, queries, keys)).sum(axis=(0, 2, 3))
    cost = hs.cost(**arguments)
    assert cost.pairs == counted.sum()
    np.testing.assert_array_equal(cost.head_pairs, counted)
    assert cost.forward_flops == 4 * sizes["head_dim"] * counted.sum()
    assert cost.backward_flops == 10 * sizes["head_dim"] * counted.sum()
    assert cost.dense_flops == 4 * sizes["head_dim"] * batch * heads * queries * keys


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_score_terms_cost_no_pair(dtype):
    terms = {"softcap": 2.0, "sinks": [0, 1], "distance_bias": np.ones(9), "pair_bias": np.ones((70, 70), dtype)}
    sizes = {"tokens": 70, "num_heads": 2, "head_dim": 8, "span": [3.5, 20]}
    assert hs.cost(**sizes, **terms).pairs == hs.cost(**sizes).pairs


@pytest.mark.parametrize("batch", [1, 3])
def test_blocks_that_content_or_gates_leave_out_cost_nothing(batch):
    """The dense mask has the counts. Without a pattern, pairs with a gate of 0 are computed and counted."""
    rng = np.random.default_rng(0)
    query, key = rng.standard_normal((2, batch, 2, 70, 8))
    chosen = hs.sparse.selected_blocks(query, key, keep=2, block_size=(8, 4))
    gates = np.where(rng.random((2, 9, 9)) < 0.6, 0, 0.5)
    learned = hs.sparse.learned_blocks(gates, 8, tokens=70)
    sizes = {"tokens": 70, "num_heads": 2, "head_dim": 8, "batch": batch}
    for options, items in (({"pattern": chosen}, 1), (learned, batch)):
        seen = np.broadcast_to(options["pattern"].mask(70) & np.tri(70, dtype=bool), (batch // items, 2, 70, 70))
        np.testing.assert_array_equal(hs.cost(**sizes, **options).head_pairs, items * seen.sum(axis=(0, 2, 3)))
    del learned["pattern"]
    assert hs.cost(**sizes, **learned).pairs == hs.cost(**sizes).pairs


def test_memory_keys_cost_a_pair_for_each_query():
    sizes = {"tokens": 70, "num_heads": 2, "head_dim": 8, "batch": 3, "span": [3.5, 20]}
    memory = {"persistent_key": np.ones((2, 5, 8)), "persistent_value": np.ones((2, 5, 4))}
    assert list(hs.cost(**sizes, **memory).head_pairs) == list(hs.cost(**sizes).head_pairs + 3 * 70 * 5)
    assert hs.cost(**sizes, **memory).dense_flops == 4 * 8 * 3 * 2 * 70 * 75


def test_cost_of_a_long_context_is_exact():
    """The counts fit neither a 32-bit number nor a double."""
    tokens = 100_003
    cost = hs.cost(tokens=tokens, num_heads=3, head_dim=64, batch=2)
    assert cost.pairs == 6 * tokens * (tokens + 1) // 2
    assert cost.dense_flops == 4 * 64 * 6 * tokens**2
    assert list(cost.head_pairs) == [tokens * (tokens + 1)] * 3


@pytest.mark.parametrize("ramp", [0, 0.5, 1, 32])
def test_soft_mask(ramp):
    distance = np.arange(0, 50)
    for span in (0, 3, 3.25, 40.0):
        expected = oracle.soft_mask(distance, span, ramp)
        np.testing.assert_allclose(hs.soft_mask(distance, span, ramp), expected, **CLOSE)
    spans = np.array([[0.0], [3.5], [20.0]])
    table = hs.soft_mask(distance, spans, ramp)
    assert table.shape == (3, 50)
    np.testing.assert_allclose(table, oracle.soft_mask(distance, spans, ramp), **CLOSE)


def test_soft_mask_by_hand():
    """Span 2 and ramp 4: full up to 2, a quarter less for each step, nothing from 6 on."""
    np.testing.assert_array_equal(hs.soft_mask(np.arange(8), 2, 4), [1, 1, 1, 0.75, 0.5, 0.25, 0, 0])
    np.testing.assert_array_equal(hs.soft_mask(np.arange(4), 2, 0), [1, 1, 1, 0])


@pytest.mark.parametrize("ramp", [0, 0.5, 4])
def test_farthest_is_the_last_distance_whose_mask_is_above_zero(ramp):
    for span in (0, 0.25, 3, 3.5, 56.6):
        last = int(farthest(span, ramp))
        assert hs.soft_mask([last, last + 1], span, ramp).astype(bool).tolist() == [True, False]


@pytest.mark.parametrize("span", [4.0, [1.0, 2.0, 6.0], np.arange(12.0).reshape(3, 4)], ids=str)
def test_span_penalty(span):
    penalty, vjp = hs.span_penalty_vjp(span, 0.3)
    gradient = vjp().span
    assert hs.span_penalty(span, 0.3) == penalty
    assert np.array_equal(vjp(2.0).span, 2 * gradient)
    np.testing.assert_allclose(penalty, 0.3 * np.mean(span), **CLOSE)
    assert np.shape(gradient) == np.shape(span)
    np.testing.assert_allclose(gradient, np.full(np.shape(span), 0.3 / np.size(span)), **CLOSE)


def dynamic_problem(dtype=np.float64):
    x, weight, bias = normals(0, 2, 5, 3), normals(1, 4, 3), normals(2, 4)
    return [a.astype(dtype) for a in (x, weight, bias)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_dynamic_span(dtype):
    x, weight, bias = dynamic_problem(dtype)
    span = hs.dynamic_span(x, weight, bias, 50.0)
    expected = np.empty((2, 4, 5))
    for b, h, t in np.ndindex(2, 4, 5):
        expected[b, h, t] = 50 / (1 + np.exp(-(np.float64(x[b, t]) @ weight[h] + bias[h])))
    assert span.dtype == dtype
    np.testing.assert_allclose(span, expected, rtol={"float64": 1e-13, "float32": 2e-6}[dtype])
    again, vjp = hs.dynamic_span_vjp(x, weight, bias, 50.0)
    gradients = vjp(span)
    assert [g.dtype for g in gradients] == [dtype] * 3
    again[...] = 0  # the caller's own
    for one, two in zip(gradients, vjp(span), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("level", [-1e3, 1e3])
def test_dynamic_span_saturates_without_a_warning(level):
    x, weight, bias = dynamic_problem()
    span, vjp = hs.dynamic_span_vjp(x, weight, bias + level, 50.0)
    np.testing.assert_allclose(span, 50.0 if level > 0 else 0.0, rtol=0, atol=1e-12)
    assert all(np.all(np.abs(g) < 1e-12) for g in vjp(np.ones_like(span)))


def test_dynamic_span_vjp_by_central_differences():
    arrays = dynamic_problem()
    span, vjp = hs.dynamic_span_vjp(*arrays, 50.0)
    np.testing.assert_array_equal(span, hs.dynamic_span(*arrays, 50.0))
    grad_span = normals(5, *span.shape)
    for place, gradient in enumerate(vjp(grad_span)):

        def loss(array, place=place):
            arguments = [*arrays[:place], array, *arrays[place + 1 :]]
            return (hs.dynamic_span(*arguments, 50.0) * grad_span).sum()

        expected = oracle.central_difference(loss, arrays[place])
        assert gradient.shape == arrays[place].shape
        np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-6)


def test_threads():
    before = hs.get_num_threads()
    assert before >= 1
    hs.set_num_threads(3)
    assert hs.get_num_threads() == hs.build_info()["threads"] == 3
    hs.set_num_threads(before)
    assert hs.get_num_threads() == before


def test_build_info():
    info = hs.build_info()
    assert {"compiler", "isa", "isas", "threads", "openmp", "version"} <= set(info)
    assert info["isa"] == _core.isa()
    assert list(info["isas"]) == list(_core.variants())
    assert info["isa"] in info["isas"]
    assert "scalar" in info["isas"]
    assert info["version"] == hs.__version__
