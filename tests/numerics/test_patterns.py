"""Patterns against their dense definition: every kind, random compositions, named edges."""

import copy
import pickle

import headspan as hs
import numpy as np
import oracle
import pattern_oracle
import pytest
import scipy.sparse as sparse
from bits import all_bits, check_untouched, make_arguments, poisoned, spread_over_keys
from cases import DTYPES
from headspan.ops.arguments.request import Request
from pattern_cases import PATTERNS, check_case, make_composed_case, make_primitive_case, named_case
from pattern_oracle import PRIMITIVES, both, leaf, union
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
    actual = pattern.mask(queries, keys, heads=heads)
    assert actual.dtype == bool
    np.testing.assert_array_equal(actual, expected)
    if queries == keys:
        np.testing.assert_array_equal(pattern.mask(keys, heads=heads), expected)


def check_all(case):
    tokens = [case.arrays[name].shape[-2] for name in ("query", "key")]
    for tree in pattern_oracle.flat(case.tree):
        check_mask(tree, *tokens, *case.shares)
    check_case(case)


@pytest.mark.parametrize(("name", "queries", "keys", "dtype"), PRIMITIVE_CASES)
def test_primitive(name, queries, keys, dtype):
    check_all(make_primitive_case(name, queries, keys, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", range(PATTERNS))
def test_composition(seed, dtype):
    check_all(make_composed_case(seed, dtype))


GRID = leaf("Neighborhood", (6, 11), (3, 4))
BIGBIRD_SEEN = union(leaf("Blockwise", 10, 1, 1), leaf("Global", [0, 1]))
BIGBIRD = union(BIGBIRD_SEEN, leaf("Random", 3, 10, per_head=True, avoid=BIGBIRD_SEEN))
SQUARES = np.arange(49).reshape(7, 7) % 3 == 0
SHORT = {"causal": False, "span": 2.5, "ramp": 1, "alibi_slopes": 0.25}
# name: (batch, heads, key_heads, queries, keys, head_dim), pattern, options
EDGES = {
    "no limit to a global token's span": (
        (1, 4, 2, 130, 130, 8), union(leaf("Local", 20), leaf("Global", [0, 70])), {"span": [0, 2.5, 9, 40], "ramp": 2},
    ),
    "a span of nothing but globals": (
        (1, 1, 1, 70, 70, 8), leaf("Global", [3, 64]), {"span": 0, "ramp": 0, "include_self": False, "causal": False},
    ),
    "free though another part allowed it": (
        (1, 2, 1, 90, 90, 4), union(leaf("Full"), both(leaf("Global", 40), leaf("Local", 0))),
        {"span": [1.5, 3], "ramp": 2, "causal": False, "alibi_slopes": [0.05, 0]},
    ),
    "free though no global allowed it": (
        (1, 1, 1, 90, 90, 4), both(leaf("Strided", 3), union(leaf("Local", 30), leaf("Global", [60]))),
        {"span": 2, "ramp": 1},
    ),
    "global tokens in many places": ((1, 2, 2, 140, 140, 8), leaf("Global", list(range(0, 140, 2))), {"span": 5.5}),
    "every token is global": ((1, 1, 1, 70, 70, 8), leaf("Global", list(range(70))), {"span": 0, "ramp": 0}),
    "global in any order, twice": ((1, 1, 1, 70, 70, 8), leaf("Global", [60, 3, 60, 5]), {"span": 7}),
    "other keys removed in each head": (
        (1, 4, 2, 1000, 1000, 4), leaf("Blockwise", 50, back=1),
        {"key_bias": np.where(np.arange(4)[:, None] == np.arange(1000) // 7 % 5, -np.inf, 0.25)},
    ),
    "global tokens, keys in shares": ((1, 4, 2, 70, 2100, 4), union(leaf("Local", 30), leaf("Global", [5, 2090])), {}),
    "global tokens of few queries": ((1, 1, 1, 5, 200, 8), leaf("Global", [0, 197]), {"span": 7, "causal": False}),
    "disjoint parts": ((1, 1, 1, 70, 70, 8), both(leaf("Strided", 2, offset=0), leaf("Strided", 2, offset=1)), {}),
    "a dilation past the context": ((1, 1, 1, 70, 70, 8), leaf("Local", 5, 5, 100), {"causal": False}),
    "a stride past the context": ((1, 1, 1, 70, 70, 8), leaf("Strided", 100), {"causal": False}),
    "an offset past the context": ((1, 1, 1, 70, 70, 8), leaf("Strided", 100, offset=99), {"causal": False}),
    "a block past the context": ((1, 1, 1, 70, 70, 8), leaf("Blockwise", 1000), {}),
    "columns of the whole block": ((1, 1, 1, 70, 70, 8), leaf("Fixed", 9, 9), {}),
    "blocks ahead, causal": ((1, 1, 1, 70, 70, 8), leaf("Blockwise", 7, ahead=3), {"causal": True}),
    "every random block": ((1, 1, 1, 70, 70, 8), leaf("Random", 99, 8), {"causal": False}),
    "random blocks of one token": ((1, 1, 1, 130, 130, 8), leaf("Random", 3, 1, seed=9), {"causal": False}),
    "random blocks of each head": (
        (2, 4, 2, 130, 130, 8), union(leaf("Local", 9), leaf("Random", 2, 10, seed=3, per_head=True)), {"span": 40.5},
    ),
    "random blocks beside what is seen": ((1, 4, 2, 200, 200, 8), BIGBIRD, {"causal": False}),
    "random blocks beside what is seen, more queries": ((1, 2, 1, 170, 65, 8), BIGBIRD, {"causal": False}),
    "random blocks, none left": (
        (1, 2, 1, 70, 70, 8), union(leaf("Full"), leaf("Random", 2, 9, avoid=leaf("Strided", 3))), {"causal": False},
    ),
    "random blocks of more than a group": (
        (1, 2, 1, 500, 500, 8), leaf("Random", 1, 100, avoid=union(leaf("Local", 90), leaf("Global", [0, 499]))), {},
    ),
    "random blocks beside a grid": (
        (1, 2, 2, 66, 66, 8), union(GRID, leaf("Random", 1, 8, per_head=True, avoid=GRID)), {"causal": False},
    ),
    "blocks nobody sees": ((1, 1, 1, 70, 70, 8), leaf("Blocks", np.zeros((7, 7), dtype=bool), 10), {}),
    "rectangles, wide": (
        (1, 2, 1, 130, 130, 8), leaf("Blocks", np.arange(26 * 3).reshape(26, 3) % 4 == 0, (5, 60)), {"causal": False},
    ),
    "rectangles, tall": (
        (1, 2, 1, 70, 130, 8), leaf("Blocks", np.arange(3 * 130).reshape(3, 130) % 4 == 0, (60, 1)), {"causal": False},
    ),
    "before every key: blocks": ((1, 1, 1, 170, 65, 8), leaf("Blocks", SQUARES, 10), {"causal": False}),
    "before every key: random": ((1, 1, 1, 170, 65, 8), leaf("Random", 2, 7, seed=3), {"causal": False}),
    "before every key: blockwise": ((1, 1, 1, 170, 65, 8), leaf("Blockwise", 7, 1, 9), {"causal": False}),
    "before every key: global": ((1, 1, 1, 170, 65, 8), leaf("Global", [0, 64]), {"causal": False, "span": 3}),
    "before every key: strided": ((1, 1, 1, 170, 65, 8), leaf("Strided", 9), {"causal": False, "span": 30}),
    "heads in turn": (
        (2, 6, 3, 700, 700, 8), union(leaf("Local", 40, 40), leaf("Global", [0, 300, 301])),
        {"causal": False, "key_lengths": [700, 450]},
    ),
    "heads in turn, one span": (
        (1, 6, 6, 700, 700, 8), union(leaf("Local", 60), leaf("Strided", 64)), {"span": 50.25, "ramp": 4},
    ),
    "heads in turn, on a grid": (
        (1, 6, 2, 720, 720, 8), leaf("Neighborhood", (36, 20), (5, 7)), {"causal": False, "span": 2.5, "ramp": 1},
    ),
    "global tokens in parts": (
        (1, 2, 1, 1100, 4200, 4),
        [union(leaf("Local", 9), leaf("Global", [0, 3500])), leaf("Global", list(range(3400, 3500)))],
        {"span": 20.5, "causal": False, "temperature": [0.5, 2], "alibi_slopes": 0.01},
    ),
    "classes brought together": (
        (2, 4, 2, 700, 700, 8), leaf("Strided", 20),
        {"causal": False, "key_lengths": [700, 450], "key_bias": np.cos(np.arange(700.0)), "temperature": 2},
    ),
    "classes, one a head": ((1, 4, 2, 420, 420, 8), [leaf("Strided", 12), *[leaf("Strided", 9)] * 2, leaf("Full")], {}),
    "classes, more keys": ((1, 2, 1, 300, 650, 12), leaf("Strided", 7), {"include_self": False}),
    "classes, fewer keys": ((1, 2, 2, 650, 300, 12), leaf("Strided", 7), {"causal": False, "alibi_slopes": 0.01}),
    "classes after neighbours": (
        (1, 2, 1, 400, 430, 8), union(leaf("Local", 20, 9), leaf("Strided", 11)), {"causal": False},
    ),
    "classes of a dilated window": ((2, 2, 2, 400, 400, 8), leaf("Local", 50, 40, 10), {"causal": False}),
    "classes of different strides": ((1, 2, 1, 400, 400, 8), union(leaf("Strided", 7), leaf("Strided", 4)), {}),
    "decode: dilated": ((1, 2, 1, 1, 3000, 8), leaf("Local", 40, 0, 64), {}),
    "decode: strided": ((1, 2, 1, 1, 3000, 8), leaf("Strided", 100), {}),
    "decode: sinks": ((1, 2, 1, 1, 3000, 8), union(leaf("Local", 100), leaf("Global", [0, 1, 2, 3])), {"span": 50.5}),
    "grid": ((1, 2, 1, 66, 66, 8), GRID, {"causal": False, "span": [1.5, 3], "ramp": 1, "alibi_slopes": 0.25}),
    "grid, raster order": (
        (1, 2, 1, 66, 66, 8), GRID, {"span": [1.5, 3], "ramp": 1, "include_self": False, "causal": True},
    ),
    "grid, the last queries": ((1, 2, 1, 30, 66, 8), GRID, {"causal": False, "span": 2.25, "ramp": 1}),
    "grid and a window by index": (
        (1, 2, 1, 66, 66, 8), union(GRID, leaf("Local", 30, 30)), SHORT | {"span": [1.5, 3]},
    ),
    "grid beside a class token and registers": (
        (2, 2, 1, 69, 69, 8), leaf("Neighborhood", (6, 11), (3, 5), extra=(1, 2)),
        {"causal": False, "span": [0.5, 2.25], "ramp": 1.5, "temperature": [0.5, 2], "include_self": False},
    ),
    "grid beside a token, the last queries": (
        (1, 2, 1, 30, 67, 8), union(leaf("Neighborhood", (6, 11), 3), leaf("Global", 66)),
        {"causal": True, "span": 1.5, "ramp": 2},
    ),
    "frames of a film": (
        (1, 2, 1, 60, 60, 8), leaf("Neighborhood", (3, 4, 5), (2, 3, 3), causal=(True, False, False)), SHORT,
    ),
    "grid and global": (
        (1, 2, 1, 66, 66, 8), union(GRID, leaf("Global", [0, 40])), SHORT,
    ),
    "grid in blocks": ((1, 2, 1, 96, 96, 8), leaf("Neighborhood", (8, 12), 4, stride=4), SHORT),
    "grid in blocks of more than a group": (
        (2, 2, 1, 700, 700, 8), leaf("Neighborhood", (20, 35), (13, 17), stride=(10, 17)), {"causal": False, "span": 9},
    ),
    "grid, every two share": (
        (1, 2, 1, 30, 66, 8), union(leaf("Neighborhood", (6, 11), (3, 6), stride=(2, 5)), GRID), SHORT,
    ),
    "frames of a film, in pairs": (
        (1, 2, 1, 140, 140, 8),
        leaf("Neighborhood", (7, 4, 5), (3, 2, 4), (2, 1, 1), causal=(True, False, False), stride=(2, 2, 3)), SHORT,
    ),
    "grid of the whole window": ((1, 1, 1, 66, 66, 8), leaf("Neighborhood", (6, 11), (6, 11)), SHORT),
    "grid of one": ((1, 1, 1, 66, 66, 8), leaf("Neighborhood", (6, 11), 1), {"causal": False}),
    "grid dilated to the end": ((1, 1, 1, 66, 66, 8), leaf("Neighborhood", (6, 11), (3, 2), (2, 5)), {"causal": False}),
    "grid, one number for all axes": ((1, 1, 1, 60, 60, 8), leaf("Neighborhood", (3, 4, 5), 1, 2), {"causal": False}),
    "one a head": (
        (2, 4, 2, 97, 97, 8), [leaf("Full"), leaf("Local", 9), leaf("Global", 50), leaf("Strided", 5)],
        {"span": [3, 20, 0, 50.5], "ramp": 4},
    ),
    "one a head, of which some differ between heads": (
        (2, 2, 1, 65, 65, 8), [BIGBIRD, leaf("Blocks", np.stack([SQUARES, ~SQUARES]), 10, per_head=True)], SHORT,
    ),
    "one an item": (
        (3, 4, 2, 97, 97, 8), [[leaf("Local", 9)], [leaf("Strided", 5)], [leaf("Local", 9)]], {"span": 40.5, "ramp": 4},
    ),
    "one an item and head": (
        (2, 2, 1, 130, 130, 8),
        [[leaf("Full"), leaf("Global", [0, 99])], [union(leaf("Local", 9), leaf("Strided", 7)), leaf("Global", [50])]],
        {"span": [[3, 20], [9, 50.5]], "ramp": 4, "causal": False},
    ),
    "one an item, of one head": ((3, 1, 1, 70, 90, 8), [[leaf("Local", n)] for n in (3, 40, 80)], {"causal": False}),
    "global tokens of each item": (
        (3, 2, 1, 130, 130, 8), union(leaf("Local", 9, 9), leaf("Global", [[0], [], [7, 64, 129]])),
        {"causal": False, "span": 3.5, "ramp": 2},
    ),
    "global tokens of each item, keys in shares": (
        (2, 1, 1, 70, 4200, 4), union(leaf("Local", 30), leaf("Global", [[5, 4190], [4150]])), {},
    ),
    "global tokens of each item, in parts": (
        (2, 1, 1, 1100, 4200, 4), union(leaf("Local", 9), leaf("Global", [[0, 3500], list(range(3400, 3500))])),
        {"span": 20.5, "causal": False, "temperature": 0.5},
    ),
    "blocks of each item and head": (
        (2, 2, 1, 65, 65, 8),
        union(leaf("Local", 3), leaf("Blocks", np.stack([[SQUARES, ~SQUARES]] * 2), 10, per_head=True)), {"span": 30},
    ),
    "blocks of each item": ((2, 2, 1, 65, 65, 8), leaf("Blocks", np.stack([SQUARES, ~SQUARES]), 10), {"causal": False}),
    "classes of each item": (
        (2, 4, 2, 420, 420, 8), [[leaf("Strided", 12)], [leaf("Strided", 9)]], {"causal": False, "temperature": 2},
    ),
    "grids of each item": (
        (2, 2, 1, 66, 66, 8), [[GRID, leaf("Neighborhood", (22, 3), 3)], [leaf("Local", 9, 9)]], SHORT,
    ),
    "random blocks beside tokens of each item": (
        (2, 2, 1, 130, 130, 8), leaf("Random", 2, 10, per_head=True, avoid=leaf("Global", [[0], [3, 40]])),
        {"span": 60},
    ),
    "a grid for one head only": (
        (1, 2, 1, 66, 66, 8), [GRID, leaf("Local", 9, 9)], SHORT,
    ),
    "a grid for each head": (
        (1, 2, 2, 66, 66, 8), [GRID, leaf("Neighborhood", (22, 3), 3)], SHORT,
    ),
    "blocks of each head": (
        (1, 2, 1, 65, 65, 8), union(leaf("Local", 3), leaf("Blocks", np.stack([SQUARES, ~SQUARES]), 10, per_head=True)),
        {"span": 30},
    ),
}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "tree", "options"), EDGES.values(), ids=EDGES)
def test_edge(shape, tree, options, dtype):
    check_all(named_case(shape, dtype, tree, **options))


def test_no_batch_items():
    query = np.ones((0, 4, 2500, 8), np.float32)
    pattern = pattern_oracle.build(union(leaf("Local", 30), leaf("Global", [0, 5])))
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


LONGFORMER = union(leaf("Local", 40, 40), leaf("Global", [0, 300, 301]))
WIDE = leaf("Local", 700, 700)
BIT_CASES = {
    "one head": ((1, 1, 600, 600, 16), LONGFORMER, {"span": 30.25, "causal": False}),
    "one head, strided": ((1, 1, 600, 600, 16), union(leaf("Local", 24), leaf("Strided", 25)), {"span": 400.5}),
    "one head, random": ((1, 1, 600, 600, 16), union(leaf("Blockwise", 20, 1), leaf("Random", 3, 20)), {}),
    "one head, in parts": ((1, 1, 3, 9001, 16), union(leaf("Local", 999, 0, 9), leaf("Fixed", 64, 3)), {"span": 1e6}),
    "global tokens in parts": (
        (3, 3, 4200, 4200, 5), [LONGFORMER, leaf("Local", 9), union(LONGFORMER, leaf("Global", list(range(100))))],
        {"span": 20.5, "causal": False},
    ),
    "heads with other global tokens on one key head": (
        (3, 1, 1500, 1500, 16),
        [WIDE, union(WIDE, leaf("Global", list(range(1400, 1500)))), WIDE], {"span": 300, "causal": False},
    ),
    "heads in turn": ((6, 3, 1300, 1300, 16), LONGFORMER, {"causal": False}),
    "random blocks beside what is seen": ((3, 1, 500, 500, 16), BIGBIRD, {"causal": False, "span": 300}),
    "grid in blocks": (
        (3, 3, 600, 600, 7), leaf("Neighborhood", (20, 30), (9, 8), stride=(5, 8)),
        {"causal": False, "span": [1.5, 3, 99]},
    ),
    "classes": ((3, 3, 900, 900, 16), union(leaf("Local", 24), leaf("Strided", 20)), {"causal": False}),
    "classes of shared keys": ((6, 3, 700, 700, 16), leaf("Strided", 9), {"key_bias": np.cos(np.arange(700.0))}),
    "grid": ((3, 3, 437, 437, 7), leaf("Neighborhood", (19, 23), (7, 9)), {"causal": False, "span": [1.5, 3, 99]}),
    "one a head": (
        (3, 1, 331, 331, 13), [LONGFORMER, leaf("Full"), leaf("Strided", 7, offset=3)],
        {"span": [9, 33.25, 1e6], "causal": True},
    ),
    "one an item and head": (
        (2, 2, 2, 331, 331, 13),
        [[LONGFORMER, leaf("Full")], [union(leaf("Local", 24), leaf("Strided", 20)), leaf("Global", [[5], [9]])]],
        {"span": [9, 33.25], "causal": True},
    ),
    "biases and segments": (
        (7, 7, 257, 257, 7), leaf("Local", 90),
        {"key_bias": np.cos(np.arange(7 * 257.0)).reshape(7, 257), "segment_ids": np.arange(257) // 100,
         "key_lengths": 250},
    ),
    "bias of all heads": ((7, 1, 331, 331, 13), leaf("Random", 2, 30), {"key_bias": np.cos(np.arange(331.0))}),
    "positions": (
        (3, 3, 301, 301, 9), leaf("Local", 120), {"key_positions": np.arange(301) ** 1.5, "span": 300, "causal": False},
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
    """So what no row may see changes no bit at all."""
    rng = np.random.default_rng([5, len(name)])
    room = pattern_oracle.Room(132, 132, 4, None)
    tree = PRIMITIVES[name].draw(rng, room) if name in PRIMITIVES else pattern_oracle.draw_tree(rng, room, 4)
    arrays, *grads = make_arguments((4, 2, 132, 132, 8), dtype)
    span = np.floor(rng.uniform(0, 90, (1, 4, 132)))
    bias = np.where(rng.random((1, 4, 132)) < 0.1, -np.inf, 0.5)
    options = {"span": span, "ramp": 5, "causal": len(name) % 2 == 0, "key_bias": bias, "key_lengths": 125}
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
    sizes = {"tokens": queries, "key_tokens": keys, "heads": heads, "head_dim": dim, "batch": batch}
    cost = hs.cost(**sizes, **options, pattern=pattern_oracle.build(tree))
    assert cost.pairs == counted.sum()
    np.testing.assert_array_equal(cost.head_pairs, counted)
    if not isinstance(tree, list):
        same = pattern_oracle.build(tree).cost(**sizes, **options)
        assert same.pairs == cost.pairs
        np.testing.assert_array_equal(same.head_pairs, counted)


def some_trees():
    room = pattern_oracle.Room(65, 65, 3, (5, 13), items=2)
    alone = [row.draw(np.random.default_rng(3), room) for row in PRIMITIVES.values()]
    return alone + [pattern_oracle.draw_tree(np.random.default_rng(seed), room, 2 + seed % 4) for seed in range(12)]


@pytest.mark.parametrize("tree", some_trees(), ids=lambda tree: tree[0])
def test_repr_and_equality(tree):
    pattern, again = pattern_oracle.build(tree), pattern_oracle.build(tree)
    names = {}
    exec("from headspan.patterns import *", names)
    read = eval(repr(pattern), names)
    assert hs.patterns.Pattern.from_spec(pattern.to_spec()) == pattern
    assert pattern == again
    pattern.mask(65, heads=3)  # a copy takes nothing of the core along
    assert pattern == copy.deepcopy(pattern) == pickle.loads(pickle.dumps(pattern))
    assert read == pattern
    assert repr(read) == repr(pattern)
    np.testing.assert_array_equal(read.mask(65, heads=3), pattern_oracle.mask(tree, 65, 65, 2, 3))
    assert pattern != 3
    assert pattern != (pattern | again) & pattern_oracle.build(leaf("Local", 77))


def test_equal_patterns_of_items_and_heads_are_one_object():
    local, again, other = hs.patterns.Local(3), hs.patterns.Local(3), hs.patterns.Local(4)
    query = np.ones((2, 2, 8, 4))
    for given, count in (([[local, again], [again]], 1), ([[local], [other]], 4), ([local, other], 2), (local, 1)):
        patterns = Request(query, query, query, {"pattern": given}).patterns
        assert len(patterns) == count
        assert len({id(pattern) for pattern in patterns}) == min(count, 2)


DIFFERENT = [
    leaf("Full"), leaf("Local", 3), leaf("Local", 3, 1), leaf("Local", 3, 0, 2), leaf("Strided", 3),
    leaf("Strided", 3, offset=0), leaf("Fixed", 3, 1), leaf("Fixed", 3, 2), leaf("Blockwise", 3),
    leaf("Blockwise", 3, 1), leaf("Blockwise", 3, 0, 1), leaf("Global", 3), leaf("Global", [3, 4]),
    leaf("Global", [[3, 4]]), leaf("Global", [[3], [4]]),
    leaf("Blocks", SQUARES, 3), leaf("Blocks", ~SQUARES, 3), leaf("Blocks", SQUARES, 4),
    leaf("Blocks", np.stack([SQUARES] * 2), 3, per_head=True), leaf("Blocks", SQUARES, (9, 10)),
    leaf("Blocks", np.stack([SQUARES] * 2), 3), leaf("Blocks", np.stack([[SQUARES] * 2]), 3, per_head=True),
    leaf("Blocks", SQUARES, (10, 9)), leaf("Random", 3, 4), leaf("Random", 3, 4, seed=1),
    leaf("Random", 3, 4, per_head=True), leaf("Random", 3, 4, avoid=leaf("Local", 3)),
    leaf("Random", 3, 4, avoid=leaf("Local", 4)),
    leaf("Neighborhood", 3, 1), leaf("Neighborhood", (3, 1), 1), leaf("Neighborhood", 3, 1, 2),
    leaf("Neighborhood", 9, 3), leaf("Neighborhood", 9, 3, stride=2), leaf("Neighborhood", 9, 3, stride=3),
    union(leaf("Local", 3), leaf("Strided", 3)), both(leaf("Local", 3), leaf("Strided", 3)),
]  # fmt: skip


def test_different_patterns_differ():
    patterns = [pattern_oracle.build(tree) for tree in DIFFERENT]
    for i, one in enumerate(patterns):
        assert [j for j, other in enumerate(patterns) if one == other] == [i]


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil", "bsr", "dok", "dia"])
@pytest.mark.parametrize("kind", ["matrix", "array"])
def test_blocks_of_sparse_matrices(form, kind):
    """In whatever order they keep their numbers; a zero that is stored is none the less a zero."""
    mask = np.arange(25).reshape(5, 5) % 3 == 0
    given = getattr(sparse, f"{form}_{kind}")(mask.astype(float))
    zeros = sparse.csr_array(mask.astype(float))
    zeros.data[[0, 3]] = 0
    assert hs.patterns.Blocks(given, 3) == hs.patterns.Blocks(mask, 3)
    assert hs.patterns.Blocks(zeros, 3) == hs.patterns.Blocks(zeros.toarray() > 0, 3)
    assert zeros.nnz == mask.sum()  # as it was


def test_random_blocks_add_all_their_keys():
    """Beside what is seen already, with heads that differ, for every query but the global ones, who see all."""
    seen, both_ways = pattern_oracle.build(BIGBIRD_SEEN), pattern_oracle.build(BIGBIRD)
    before, after = seen.mask(200), both_ways.mask(200, heads=4)
    np.testing.assert_array_equal(after.sum(axis=2)[:, 2:], (before.sum(axis=1) + 30)[2:] * np.ones((4, 1)))
    assert after[:, :2].all()
    assert all((after[one] != after[other]).any() for one in range(4) for other in range(one))
    counted = both_ways.cost(tokens=200, heads=4, head_dim=8, causal=False)
    assert counted.head_pairs.tolist() == [before.sum() + 198 * 30] * 4


def test_random_blocks_are_those_of_every_version():
    mask = hs.patterns.Random(2, 4, seed=7).mask(24)[::4, ::4]
    assert [np.flatnonzero(row).tolist() for row in mask] == [[2, 3], [0, 5], [2, 4], [0, 3], [3, 5], [0, 5]]


def test_random_blocks_keep_clear_of_what_differs_between_heads():
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
