"""The oracle against the formulas written as loops, and its gradients by central differences."""

import math

import headspan as hs
import numpy as np
import oracle
import pattern_draws
import pattern_oracle
import pytest
from cases import make_case
from option_cases import OPTIONS, make_arrays
from pattern_cases import make_composed_case
from tolerances import TOLERANCES

# What only the oracle takes: masks of pairs, which pairs no span limits, and another distance.
GRID = np.abs(np.arange(5)[:, None] % 3 - np.arange(7) % 3) + 0.0
MASKED = {
    "pairs": {"pattern_mask": np.arange(35).reshape(5, 7) % 3 > 0},
    "pairs per head": {"pattern_mask": np.arange(140).reshape(4, 5, 7) % 5 > 1, "span": 2.3, "ramp": 3},
    "some are free": {"free": np.arange(35).reshape(5, 7) % 4 == 0, "span": [0.4, 1.7, 2.6, 9.5], "ramp": 2.5},
    "free per head, and masked": {
        "free": np.arange(140).reshape(4, 5, 7) % 3 == 0, "pattern_mask": np.arange(35).reshape(5, 7) % 5 > 0,
        "span": 0.4, "ramp": 1.5, "causal": False,
    },
    "another distance": {"distance": GRID, "span": 0.6, "ramp": 2, "alibi_slopes": 0.3},
    "everything": {
        "distance": GRID, "free": GRID == 2, "pattern_mask": np.arange(35).reshape(5, 7) % 4 > 0, "causal": False,
        "span": 0.3, "ramp": 1.2, "alibi_slopes": 0.3, "key_stop": 6, "key_bias": np.linspace(-1, 1, 7),
        "segment_ids": [1, 1, 0, 0, 0, 0, 7], "temperature": 0.8, "include_self": False,
    },
}  # fmt: skip


def loop_row(query, key, value, position, span, ramp, causal, include_self, factor, slope):
    """out and lse of one query, one pair at a time."""
    terms = []
    for j in range(len(key)):
        x = position - j
        if (causal and x < 0) or (x == 0 and not include_self):
            continue
        x = abs(x)
        inside = 1.0 if x <= span else 0.0
        m = min(1.0, max(0.0, (ramp + span - x) / ramp)) if ramp else inside
        if m > 0:
            terms.append((m * math.exp(factor * float(query @ key[j]) - slope * x), value[j]))
    total = sum(weight for weight, _ in terms)
    if not terms:
        return np.zeros(value.shape[1]), -math.inf
    return sum(weight * row for weight, row in terms) / total, math.log(total)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("ramp", [0, 1.5, 4])
def test_forward_is_the_formula(causal, include_self, ramp):
    query, key, value = make_arrays()
    spans = np.random.default_rng(1).uniform(0, 4, (2, 4, 5))
    heat = np.random.default_rng(2).uniform(0.5, 2, (2, 4, 5))
    slopes = np.array([0.3, -0.1, 0.0, 1.0])
    out, lse = oracle.attention(
        query, key, value, span=spans, ramp=ramp, causal=causal, include_self=include_self,
        scale=0.9, temperature=heat, alibi_slopes=slopes,
    )  # fmt: skip
    for b, h, i in np.ndindex(2, 4, 5):
        row, row_lse = loop_row(
            query[b, h, i], key[b, h // 2], value[b, h // 2], i + 2, spans[b, h, i], ramp,
            causal, include_self, 0.9 / heat[b, h, i], slopes[h],
        )  # fmt: skip
        np.testing.assert_allclose(out[b, h, i], row, rtol=0, atol=1e-14)
        np.testing.assert_allclose(lse[b, h, i], row_lse, rtol=0, atol=1e-14)


def reference_row(case, b, h, i):
    """`loop_row` with every limit, written anew: pairs kept one by one."""
    query, key, value = make_arrays()
    option = {"span": 1.25, "ramp": 1.5, "causal": True, "include_self": True} | case
    index = i + 2
    here = option["query_positions"][b][i] if "query_positions" in option else option["key_positions"][index]
    slope, terms = 0.25, []
    for j in range(7):
        x = here - option["key_positions"][j]
        segments = option["segment_ids"][b]
        excluded = [
            option["causal"] and x < 0 and j >= option["prefix_lengths"][b],
            not option["include_self"] and x == 0,
            j >= option["key_stop"][b],
            not option["key_ranges"][i][0] <= j < option["key_ranges"][i][1],
            segments[index] != segments[j],
            not option["pattern_mask"][h][i][j],
            option["key_bias"][b][h][j] == -math.inf,
        ]
        x = option["distance"][i][j] if "distance" in option else abs(x)
        m = min(1.0, max(0.0, (option["ramp"] + option["span"] - x) / option["ramp"]))
        m = 1.0 if option["free"][i][j] else m
        if m > 0 and not any(excluded):
            score = float(query[b, h, i] @ key[b, h // 2, j]) - slope * x + option["key_bias"][b][h][j]
            terms.append((m * math.exp(score), value[b, h // 2, j]))
    total = sum(weight for weight, _ in terms)
    if not terms:
        return np.zeros(2), -math.inf
    return sum(weight * row for weight, row in terms) / total, math.log(total)


LIMITS = {
    "key_positions": [0, 0, 0.5, 1.5, 1.5, 3, 4.25],
    "key_stop": [7, 5],
    "key_ranges": [[0, 7], [1, 6], [0, 4], [4, 4], [2, 7]],
    "prefix_lengths": [3, 0],
    "segment_ids": [[3, 3, 3, 3, 3, 1, 1], [0, 0, 1, 1, 1, 1, 1]],
    "pattern_mask": np.arange(140).reshape(4, 5, 7) % 7 != 3,
    "free": np.arange(35).reshape(5, 7) % 6 == 1,
    "key_bias": np.where(np.arange(56) % 11 == 4, -np.inf, np.linspace(-1, 1, 56)).reshape(2, 4, 7),
}


@pytest.mark.parametrize(
    "more",
    [{}, {"causal": False}, {"include_self": False}, {"distance": GRID}, {"query_positions": [[0, 1, 2, 3, 4.25]] * 2}],
    ids=str,
)
def test_limits_are_the_formula(more):
    case = LIMITS | more
    options = {"span": 1.25, "ramp": 1.5, "scale": 1.0, "alibi_slopes": 0.25} | case
    out, lse = oracle.attention(*make_arrays(), **options)
    for b, h, i in np.ndindex(2, 4, 5):
        row, row_lse = reference_row(case, b, h, i)
        np.testing.assert_allclose(out[b, h, i], row, rtol=0, atol=1e-14)
        np.testing.assert_allclose(lse[b, h, i], row_lse, rtol=0, atol=1e-14)


@pytest.mark.parametrize("options", [*OPTIONS.values(), *MASKED.values()], ids=[*OPTIONS, *MASKED])
def test_gradients_by_central_differences(options):
    arguments = dict(zip(oracle.ARRAYS, make_arrays(), strict=True)) | options
    out, lse = oracle.attention(**arguments)
    rng = np.random.default_rng(3)
    grad_out, grad_lse = rng.standard_normal(out.shape), rng.standard_normal(lse.shape)
    gradients = oracle.gradients(grad_out=grad_out, grad_lse=grad_lse, **arguments)

    def loss(name, array):
        out, lse = oracle.attention(**{**arguments, name: array})
        return (out * grad_out).sum() + np.where(np.isfinite(lse), lse * grad_lse, 0.0).sum()

    for name in sorted({name for name, _ in TOLERANCES} - {"out", "lse", "weights"}):
        if arguments.get(name) is None:
            assert name not in gradients
            continue
        expected = oracle.central_difference(lambda a, name=name: loss(name, a), arguments[name])
        assert gradients[name].value.shape == np.shape(arguments[name])
        np.testing.assert_allclose(gradients[name].value, expected, rtol=0, atol=1e-7, err_msg=name)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_the_package_has_the_same_definition(options):
    arrays = make_arrays()
    ours = hs.reference.attention(*arrays, return_lse=True, **options)
    for one, two in zip(ours, oracle.attention(*arrays, **options), strict=True):
        np.testing.assert_allclose(one, two, rtol=0, atol=1e-12)


def test_span_gradient_at_the_corner_is_the_slope_above():
    """At x = z the definition counts the pair, so its gradient is that of a shrinking span."""
    query, key, value = make_arrays()
    arguments = {"query": query, "key": key, "value": value, "ramp": 3.0}
    grad_out = np.random.default_rng(3).standard_normal(oracle.attention(**arguments)[0].shape)
    below = [(oracle.attention(**arguments, span=2.0 - h)[0] * grad_out).sum() for h in (0, 1e-6)]
    gradient = oracle.gradients(**arguments, span=2.0, grad_out=grad_out)["span"]
    np.testing.assert_allclose(gradient.value, (below[0] - below[1]) / 1e-6, rtol=1e-4)


def test_rows_without_keys():
    """Five queries on two keys: the first three come before every key."""
    query, key, value = make_arrays()
    key, value = key[:, :, :2], value[:, :, :2]
    out, lse = oracle.attention(query, key, value)
    gradients = oracle.gradients(query, key, value, np.ones_like(out), np.ones_like(lse))
    assert np.all(out[:, :, :3] == 0)
    assert np.all(np.isneginf(lse[:, :, :3]))
    assert np.all(np.isfinite(lse[:, :, 3:]))
    assert np.all(gradients["query"].value[:, :, :3] == 0)


def test_cases_reach_every_corner():
    """The generator is only worth its name if the awkward corners do occur."""
    seen = set()
    for seed in range(400):
        case = make_case(seed, "float64")
        query, key = case.arrays["query"], case.arrays["key"]
        seen |= {f"ndim {query.ndim}", f"span {np.ndim(case.options.get('span'))}"}
        seen |= {f"given {name}" for name in case.options}
        seen.add("more queries" if query.shape[-2] > key.shape[-2] else "no more queries")
        seen |= {"broadcast" for a in case.arrays.values() if 0 in a.strides}
        seen |= {"unaligned" for a in case.arrays.values() if not a.flags.aligned}
        seen |= {"read-only" for a in case.arrays.values() if not a.flags.writeable}
        _, lse = oracle.attention(**case.arguments)
        seen |= {"no keys"} if np.isneginf(lse).any() else set()
    wanted = {f"given {name}" for name in oracle.OPTIONS}
    wanted |= {"ndim 2", "ndim 3", "ndim 4", "span 0", "span 1", "span 2", "span 3", "no keys"}
    wanted |= {"more queries", "broadcast", "unaligned", "read-only"}
    assert wanted <= seen


def test_composed_cases_reach_every_corner():
    seen = set()
    for seed in range(40):
        for dtype in ("float64", "float32"):
            case = make_composed_case(seed, dtype)
            query, key = case.arrays["query"], case.arrays["key"]
            trees = pattern_oracle.flat(case.tree)
            seen |= {one.kind for tree in trees for one in pattern_oracle.leaves_of(tree)}
            seen |= {f"given {name}" for name in case.options}
            if isinstance(case.tree, list):
                seen.add("one an item" if isinstance(case.tree[0], list) else "one a head")
            seen |= {"grouped"} if query.ndim > 2 and query.shape[-3] > key.shape[-3] else set()
            seen.add(("more queries", "equal", "more keys")[1 + np.sign(key.shape[-2] - query.shape[-2])])
            seen |= {"removed keys"} if np.isneginf(case.options.get("key_bias", 0)).any() else set()
            dense = case.dense
            reach = oracle.dense(**dense)
            seen |= {"some rows empty"} if np.isneginf(reach.lse).any() and reach.mask.any() else set()
            free = np.broadcast_to(dense["free"], reach.mask.shape)
            # A pair that is seen only because no span limits it.
            held = oracle.dense(**{**dense, "free": None}).mask
            seen |= {"free of the span"} if (free & (reach.mask > 0) & (held == 0)).any() else set()
    limits = ("key_stop", "key_ranges", "prefix_lengths", "segment_ids", "query_positions", "key_positions")
    wanted = {f"given {name}" for name in (*oracle.OPTIONS, "key_bias", *limits)}
    wanted |= {row.kind for row in pattern_draws.PRIMITIVES.values()}
    wanted |= {"one an item", "one a head", "grouped", "more queries", "equal", "more keys", "removed keys"}
    assert wanted | {"some rows empty", "free of the span"} <= seen
