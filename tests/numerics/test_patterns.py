"""Patterns against their dense definition: every kind, random compositions, named edges."""

import copy
import pickle

import headspan as hs
import numpy as np
import oracle
import pattern_draws
import pattern_oracle
import pytest
import scipy.sparse as sparse
from bits import all_bits, check_untouched, make_arguments, poisoned, spread_over_keys
from cases import DTYPES
from headspan.ops.execution.request import Request
from pattern_cases import SEEDS, check_case, make_composed_case, make_primitive_case, named_case
from pattern_draws import PRIMITIVES
from pattern_edges import BIGBIRD, BIGBIRD_SEEN, EDGES, SQUARES
from pattern_oracle import both, leaf, union
from tolerances import check_close, check_gradients

pytestmark = pytest.mark.numerical

# (queries, keys): around the tiles; 1000 where it is cheap.
SIZES = [(1, 1), (63, 63), (64, 64), (65, 65), (257, 257), (1, 257), (64, 257), (257, 63), (65, 1), (1000, 1000)]
PRIMITIVE_CASES = [
    pytest.param(name, *sizes, dtype, id=f"{name}-{sizes[0]}-{sizes[1]}-{dtype}")
    for name, row in PRIMITIVES.items()
    for sizes in SIZES
    for dtype in DTYPES
    if (row.kind != "Neighborhood" or sizes[0] <= sizes[1]) and (sizes[0] < 1000 or dtype == "float32")
]


def check_mask(tree, queries, keys, batch, heads):
    pattern, expected = pattern_oracle.build(tree), pattern_oracle.mask(tree, queries, keys, batch, heads)
    actual = pattern.mask(queries, keys, num_heads=heads)
    assert actual.dtype == bool
    np.testing.assert_array_equal(actual, expected)
    if queries == keys:
        np.testing.assert_array_equal(pattern.mask(keys, num_heads=heads), expected)


def check_all(case):
    tokens = [case.arrays[name].shape[-2] for name in ("query", "key")]
    for tree in pattern_oracle.flat(case.tree):
        check_mask(tree, *tokens, *case.shares)
    check_case(case)


@pytest.mark.parametrize(("name", "queries", "keys", "dtype"), PRIMITIVE_CASES)
def test_primitive(name, queries, keys, dtype):
    check_all(make_primitive_case(name, queries, keys, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", SEEDS)
def test_composition(seed, dtype):
    check_all(make_composed_case(seed, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "tree", "options"), EDGES.values(), ids=EDGES)
def test_edge(shape, tree, options, dtype):
    check_all(named_case(shape, dtype, tree, **options))


def test_no_batch_items():
    query = np.ones((0, 4, 2500, 8), np.float32)
    pattern = pattern_oracle.build(union(leaf("Window", 31), leaf("Global", [0, 5])))
    out, vjp = hs.attention_vjp(query, query, query, pattern=pattern, causal=False, span=40, temperature=2)
    assert out.shape == vjp(out).query.shape == query.shape


OF_ITEMS = [name for name in EDGES if "item" in name]


@pytest.mark.parametrize("name", [*range(12), *OF_ITEMS])
def test_reference(name):
    """The package's own dense definition, for four axes and equally many heads."""
    if isinstance(name, int):
        case = make_composed_case(name, "float64")
    else:
        shape, tree, options = EDGES[name]
        case = named_case(shape, "float64", tree, **options)
    arrays, options = oracle.with_all_axes(case.arrays, case.options)
    limits = {name: value for name, value in case.dense.items() if name not in case.arguments}
    expected, _ = oracle.attention(*arrays, **options, **limits)
    out = hs.reference.attention(*arrays, **options, pattern=pattern_oracle.build(case.tree))
    assert out.shape == expected.shape
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-12)


@pytest.fixture
def threads():
    """Restores the number of threads that a test changes."""
    before = hs.get_num_threads()
    yield
    hs.set_num_threads(before)


LONGFORMER = union(leaf("Window", 41, 40), leaf("Global", [0, 300, 301]))
WIDE = leaf("Window", 701, 700)
BIT_CASES = {
    "one head": ((1, 1, 600, 600, 16), LONGFORMER, {"span": 30.25, "causal": False}),
    "one head, strided": ((1, 1, 600, 600, 16), union(leaf("Window", 25), leaf("Strided", 25)), {"span": 400.5}),
    "one head, random": ((1, 1, 600, 600, 16), union(leaf("Blockwise", 20, 1), leaf("Random", 3, 20)), {}),
    "one head, in parts": ((1, 1, 3, 9001, 16), union(leaf("Window", 1000, 0, 9), leaf("Fixed", 64, 3)), {"span": 1e6}),
    "global tokens in parts": (
        (3, 3, 4200, 4200, 5), [LONGFORMER, leaf("Window", 10), union(LONGFORMER, leaf("Global", list(range(100))))],
        {"span": 20.5, "causal": False},
    ),
    "heads with other global tokens on one key head": (
        (3, 1, 1500, 1500, 16),
        [WIDE, union(WIDE, leaf("Global", list(range(1400, 1500)))), WIDE], {"span": 300, "causal": False},
    ),
    "heads in turn": ((6, 3, 1300, 1300, 16), LONGFORMER, {"causal": False}),
    "random blocks that avoid what is seen": ((3, 1, 500, 500, 16), BIGBIRD, {"causal": False, "span": 300}),
    "grid in blocks": (
        (3, 3, 600, 600, 7), leaf("Neighborhood", (20, 30), (9, 8), stride=(5, 8)),
        {"causal": False, "span": [1.5, 3, 99]},
    ),
    "classes": ((3, 3, 900, 900, 16), union(leaf("Window", 25), leaf("Strided", 20)), {"causal": False}),
    "classes of shared keys": ((6, 3, 700, 700, 16), leaf("Strided", 9), {"key_bias": np.cos(np.arange(700.0))}),
    "grid": ((3, 3, 437, 437, 7), leaf("Neighborhood", (19, 23), (7, 9)), {"causal": False, "span": [1.5, 3, 99]}),
    "one a head": (
        (3, 1, 331, 331, 13), [LONGFORMER, leaf("Full"), leaf("Strided", 7, offset=3)],
        {"span": [9, 33.25, 1e6], "causal": True},
    ),
    "one an item and head": (
        (2, 2, 2, 331, 331, 13),
        [[LONGFORMER, leaf("Full")], [union(leaf("Window", 25), leaf("Strided", 20)), leaf("Global", [[5], [9]])]],
        {"span": [9, 33.25], "causal": True},
    ),
    "biases and segments": (
        (7, 7, 257, 257, 7), leaf("Window", 91),
        {"key_bias": np.cos(np.arange(7 * 257.0)).reshape(7, 257), "segment_ids": np.arange(257) // 100,
         "key_stop": 250},
    ),
    "bias of all heads": ((7, 1, 331, 331, 13), leaf("Random", 2, 30), {"key_bias": np.cos(np.arange(331.0))}),
    "positions": (
        (3, 3, 301, 301, 9), leaf("Window", 121), {"key_positions": np.arange(301) ** 1.5, "span": 300,
                                                   "causal": False},
    ),
}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "tree", "options"), BIT_CASES.values(), ids=BIT_CASES)
def test_bits_do_not_depend_on_threads(threads, shape, tree, options, dtype):
    arrays, grad_out, grad_lse = make_arguments(shape, dtype)
    options = {"temperature": 0.75, "alibi_slopes": 0.01, "pattern": pattern_oracle.build(tree)} | options
    hs.set_num_threads(1)
    expected = all_bits(arrays, grad_out, grad_lse, **options)
    for count in (1, 2, 3, 4):
        hs.set_num_threads(count)
        for name, bits in all_bits(arrays, grad_out, grad_lse, **options).items():
            assert bits.tobytes() == expected[name].tobytes(), f"{name}, {count} threads"


@pytest.mark.parametrize("poison", [np.nan, np.inf], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*PRIMITIVES, "composed"])
def test_poisoned_keys_reach_only_the_rows_that_see_them(name, dtype, poison):
    """A key that no row may see changes no bit at all."""
    rng = np.random.default_rng([5, len(name)])
    room = pattern_draws.Room(132, 132, 4, None)
    tree = PRIMITIVES[name].draw(rng, room) if name in PRIMITIVES else pattern_draws.draw_tree(rng, room, 4)
    arrays, *grads = make_arguments((4, 2, 132, 132, 8), dtype)
    span = np.floor(rng.uniform(0, 90, (1, 4, 132)))
    bias = np.where(rng.random((1, 4, 132)) < 0.1, -np.inf, 0.5)
    options = {"span": span, "ramp": 5, "causal": len(name) % 2 == 0, "key_bias": bias, "key_stop": 125}
    options["segment_ids"] = np.arange(132) // 70
    reach = oracle.dense(*arrays.values(), **options, **pattern_oracle.limits(tree, 132, 132, 1, 4)).mask > 0
    bad = rng.random((1, 2, 132)) < 0.05
    bad |= ~spread_over_keys(np.ones((1, 4, 132), dtype=bool), reach, 2)
    seen = (reach & np.repeat(bad, 2, axis=1)[:, :, None, :]).any(axis=3)
    assert bad.any()
    assert not seen.all()
    options["pattern"] = pattern_oracle.build(tree)
    clean = all_bits(arrays, *grads, **options)
    dirty = {name: poisoned(arrays[name], bad, poison) for name in ("key", "value")}
    dirty = all_bits({**arrays, **dirty}, *grads, **options)
    met = spread_over_keys(seen, reach, 2)
    affected = dict.fromkeys(("out", "lse", "query", "span"), seen) | dict.fromkeys(("key", "value"), met)
    check_untouched(clean, dirty, {**affected, "key_bias": (reach & seen[..., None]).any(axis=2)})


COSTS = {name: (shape, tree, options) for name, (shape, tree, options) in EDGES.items() if shape[4] < 1000}


@pytest.mark.parametrize(("shape", "tree", "options"), COSTS.values(), ids=COSTS)
def test_cost(shape, tree, options):
    batch, heads, _, queries, keys, dim = shape
    options = {name: value for name, value in options.items() if name in ("span", "ramp", "causal")}
    mask, _, _ = oracle.reach(
        queries, keys, 4, np.float64, **options, **pattern_oracle.limits(tree, queries, keys, batch, heads)
    )
    counted = np.broadcast_to(mask > 0, (batch, heads, queries, keys)).sum(axis=(0, 2, 3))
    sizes = {"tokens": queries, "key_tokens": keys, "num_heads": heads, "head_dim": dim, "batch": batch}
    cost = hs.cost(**sizes, **options, pattern=pattern_oracle.build(tree))
    assert cost.pairs == counted.sum()
    np.testing.assert_array_equal(cost.head_pairs, counted)


def some_trees():
    room = pattern_draws.Room(65, 65, 3, (5, 13), items=2)
    alone = [row.draw(np.random.default_rng(3), room) for row in PRIMITIVES.values()]
    return alone + [pattern_draws.draw_tree(np.random.default_rng(seed), room, 2 + seed % 4) for seed in range(12)]


@pytest.mark.parametrize("tree", some_trees(), ids=lambda tree: tree[0])
def test_repr_and_equality(tree):
    pattern, again = pattern_oracle.build(tree), pattern_oracle.build(tree)
    names = {}
    exec("from headspan.patterns import *", names)
    read = eval(repr(pattern), names)
    assert hs.patterns.Pattern.from_spec(pattern.to_spec()) == pattern
    assert pattern == again
    pattern.mask(65, num_heads=3)  # a copy takes nothing of the core along
    assert pattern == copy.deepcopy(pattern) == pickle.loads(pickle.dumps(pattern))
    assert read == pattern
    assert repr(read) == repr(pattern)
    np.testing.assert_array_equal(read.mask(65, num_heads=3), pattern_oracle.mask(tree, 65, 65, 2, 3))
    assert pattern != 3
    assert pattern != (pattern | again) & pattern_oracle.build(leaf("Window", 78))


def test_equal_patterns_of_items_and_heads_are_one_object():
    local, again, other = hs.patterns.Window(4), hs.patterns.Window(4), hs.patterns.Window(5)
    query = np.ones((2, 2, 8, 4))
    for option, count in (([[local, again], [again]], 1), ([[local], [other]], 4), ([local, other], 2), (local, 1)):
        patterns = Request(query, query, query, {"pattern": option}).patterns
        assert len(patterns) == count
        assert len({id(pattern) for pattern in patterns}) == min(count, 2)


DIFFERENT = [
    leaf("Full"), leaf("Window", 4), leaf("Window", 4, 1), leaf("Window", 4, 0, 2), leaf("Strided", 3),
    leaf("Strided", 3, offset=0), leaf("Fixed", 3, 1), leaf("Fixed", 3, 2), leaf("Blockwise", 3),
    leaf("Blockwise", 3, 1), leaf("Blockwise", 3, 0, 1), leaf("Global", 3), leaf("Global", [3, 4]),
    leaf("Global", [[3, 4]]), leaf("Global", [[3], [4]]),
    leaf("Blocks", SQUARES, 3), leaf("Blocks", ~SQUARES, 3), leaf("Blocks", SQUARES, 4),
    leaf("Blocks", np.stack([SQUARES] * 2), 3, per_head=True), leaf("Blocks", SQUARES, (9, 10)),
    leaf("Blocks", np.stack([SQUARES] * 2), 3), leaf("Blocks", np.stack([[SQUARES] * 2]), 3, per_head=True),
    leaf("Blocks", SQUARES, (10, 9)), leaf("Random", 3, 4), leaf("Random", 3, 4, seed=1),
    leaf("Random", 3, 4, per_head=True), leaf("Random", 3, 4, avoid=leaf("Window", 4)),
    leaf("Random", 3, 4, avoid=leaf("Window", 5)),
    leaf("Neighborhood", 3, 1), leaf("Neighborhood", (3, 1), 1), leaf("Neighborhood", 3, 1, 2),
    leaf("Neighborhood", 9, 3), leaf("Neighborhood", 9, 3, stride=2), leaf("Neighborhood", 9, 3, stride=3),
    union(leaf("Window", 4), leaf("Strided", 3)), both(leaf("Window", 4), leaf("Strided", 3)),
]  # fmt: skip


def test_different_patterns_differ():
    patterns = [pattern_oracle.build(tree) for tree in DIFFERENT]
    for i, one in enumerate(patterns):
        assert [j for j, other in enumerate(patterns) if one == other] == [i]


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil", "bsr", "dok", "dia"])
@pytest.mark.parametrize("kind", ["matrix", "array"])
def test_blocks_of_sparse_matrices(form, kind):
    """The format does not matter, and a stored zero is a zero."""
    mask = np.arange(25).reshape(5, 5) % 3 == 0
    matrix = getattr(sparse, f"{form}_{kind}")(mask.astype(float))
    zeros = sparse.csr_array(mask.astype(float))
    zeros.data[[0, 3]] = 0
    assert hs.patterns.Blocks(matrix, 3) == hs.patterns.Blocks(mask, 3)
    assert hs.patterns.Blocks(zeros, 3) == hs.patterns.Blocks(zeros.toarray() > 0, 3)
    assert zeros.nnz == mask.sum()  # as it was


def test_random_blocks_add_all_their_keys():
    """Every query adds its blocks to the keys seen before, except global ones, which see all; heads differ."""
    seen, both_ways = pattern_oracle.build(BIGBIRD_SEEN), pattern_oracle.build(BIGBIRD)
    before, after = seen.mask(200), both_ways.mask(200, num_heads=4)
    np.testing.assert_array_equal(after.sum(axis=2)[:, 2:], (before.sum(axis=1) + 30)[2:] * np.ones((4, 1)))
    assert after[:, :2].all()
    assert all((after[one] != after[other]).any() for one in range(4) for other in range(one))
    counted = hs.cost(pattern=both_ways, tokens=200, num_heads=4, head_dim=8, causal=False)
    assert counted.head_pairs.tolist() == [before.sum() + 198 * 30] * 4


def test_random_blocks_are_the_same_in_every_version():
    mask = hs.patterns.Random(2, 4, seed=7).mask(24)[::4, ::4]
    assert [np.flatnonzero(row).tolist() for row in mask] == [[2, 3], [0, 5], [2, 4], [0, 3], [3, 5], [0, 5]]


def test_random_blocks_avoid_patterns_that_differ_between_heads():
    chosen = np.stack([SQUARES, ~SQUARES])
    seen = hs.patterns.Blocks(chosen, 10, per_head=True)
    pattern = hs.patterns.Random(2, 10, seed=5, avoid=seen)
    assert pattern.heads == 2
    drawn = pattern.mask(70)
    assert not (drawn & seen.mask(70)).any()
    assert (drawn.sum(axis=2) == 20).all()


def test_blocks_of_equal_sides_are_squares():
    assert hs.patterns.Blocks(SQUARES, (4, 4)) == hs.patterns.Blocks(SQUARES, 4)


def test_blocks_of_two_rows():
    """A pair of lists of bool is a mask, one of integers says where the blocks are."""
    rows = ([True, False], [True, True])
    for same in (np.array(rows), ([0, 1, 3], [0, 0, 1])):
        assert hs.patterns.Blocks(rows, 3) == hs.patterns.Blocks(same, 3)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("grid", "table"), [((9, 13), (5, 7)), ((9, 13), (2, 17, 25)), ((3, 5, 8), (2, 3, 3, 5))])
def test_distance_bias_on_a_grid(grid, table, dtype):
    """A table by offset along each axis, narrower than the window and as wide as the grid, shared and one a head."""
    tokens = int(np.prod(grid))
    at = np.stack(np.unravel_index(np.arange(tokens), grid))
    offsets = tuple(at[:, None, :] - at[:, :, None])
    tree = leaf("Neighborhood", grid, 3)
    rng = np.random.default_rng(len(table))
    case = named_case((2, 2, 1, tokens, tokens, 8), dtype, tree, causal=False, span=1.5, ramp=1.0)
    case.options["distance_bias"] = rng.standard_normal(table).astype(dtype)
    dense = case.dense | {"offsets": offsets}
    out, vjp = hs.attention_vjp(**case.arguments)
    check_close("out", out, oracle.dense(**dense).out, dtype)
    expected = oracle.gradients(**dense, grad_out=case.grad_out, grad_lse=case.grad_lse)
    check_gradients(vjp(case.grad_out, case.grad_lse), expected, case.arguments)
    reference = hs.reference.attention(**case.arguments)
    assert np.abs(out - reference).max() < (1e-11 if dtype == "float64" else 3e-5)
