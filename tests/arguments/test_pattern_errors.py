"""Bad patterns, positions, lengths, ranges, segments and biases: each gives one sentence that names it."""

import copy

import headspan as hs
import numpy as np
import pytest
import scipy.sparse as sparse
from bad_calls import INF, NAN, OBJECTS, check_sentence, ones, same

BOTH = (TypeError, ValueError)
EYE = np.eye(3, dtype=bool)
EARLY, LATE = np.arange(5.0), np.arange(6.0)

# Batch 2, heads 4 on 2 key heads, 5 queries on 6 keys, dim 3.
GOOD = {"query": ones(2, 4, 5, 3), "key": ones(2, 2, 6, 3), "value": ones(2, 2, 6, 3)}
MORE_QUERIES = {"query": ones(2, 4, 7, 3)}
WITHOUT_HEADS = {"query": ones(5, 3), "key": ones(6, 3), "value": ones(6, 3)}


# what is wrong: the error, one of these names is in it, and the call that makes the pattern
PATTERNS = {
    "a string": (TypeError, ["pattern"], lambda p: "local"),
    "a number": (TypeError, ["pattern"], lambda p: 3),
    "a class": (TypeError, ["pattern"], lambda p: p.Full),
    "a mask": (TypeError, ["pattern"], lambda p: np.ones((5, 6), dtype=bool)),
    "a list of strings": (TypeError, ["pattern"], lambda p: ["local"] * 4),
    "a list with None": (TypeError, ["pattern"], lambda p: [p.Full(), None, p.Full(), p.Full()]),
    "lists of other items": (ValueError, ["pattern", "item"], lambda p: [[p.Full()] * 4] * 3),
    "lists of other heads": (ValueError, ["pattern"], lambda p: [[p.Full()] * 3] * 2),
    "lists of none": (ValueError, ["pattern"], lambda p: [[], []]),
    "lists in lists": (TypeError, ["pattern"], lambda p: [[[p.Full()]]] * 2),
    "a list and a pattern": (TypeError, ["pattern"], lambda p: [p.Full(), [p.Full()]]),
    "global tokens of other items": (ValueError, ["pattern", "item"], lambda p: p.Global([[0], [1], [2]])),
    "other items, inside": (ValueError, ["pattern", "item"], lambda p: [p.Full()] * 3 + [p.Global([[0], [1], [2]])]),
    "items of two numbers": (ValueError, ["item"], lambda p: p.Global([[0], [1]]) | p.Global([[0], [1], [2]])),
    "blocks of other items": (ValueError, ["pattern", "item"], lambda p: p.Blocks(np.stack([EYE] * 3), 2)),
    "blocks of too many axes": (ValueError, ["mask", "Blocks"], lambda p: p.Blocks(np.ones((2, 4, 3, 3), bool), 2)),
    "items of other heads": (
        ValueError, ["mask", "Blocks"], lambda p: p.Blocks([[EYE], [EYE, EYE]], 2, per_head=True),
    ),
    "a list too short": (ValueError, ["pattern"], lambda p: [p.Full()] * 3),
    "a list too long": (ValueError, ["pattern"], lambda p: [p.Full()] * 5),
    "a list of one": (ValueError, ["pattern"], lambda p: [p.Full()]),
    "an empty list": (ValueError, ["pattern"], lambda p: []),
    "union with a number": (TypeError, ["pattern", "Local"], lambda p: p.Local(3) | 3),
    "intersection with a mask": (TypeError, ["pattern", "Local"], lambda p: p.Local(3) & [True]),
    "before negative": (ValueError, ["before"], lambda p: p.Local(-1)),
    "before not whole": (TypeError, ["before"], lambda p: p.Local(1.5)),
    "before a string": (TypeError, ["before"], lambda p: p.Local("3")),
    "before None": (TypeError, ["before"], lambda p: p.Local(None)),
    "after negative": (ValueError, ["after"], lambda p: p.Local(3, -1)),
    "after not whole": (TypeError, ["after"], lambda p: p.Local(3, 0.5)),
    "dilation zero": (ValueError, ["dilation"], lambda p: p.Local(3, dilation=0)),
    "dilation negative": (ValueError, ["dilation"], lambda p: p.Local(3, dilation=-2)),
    "dilation not whole": (TypeError, ["dilation"], lambda p: p.Local(3, dilation=2.0)),
    "stride zero": (ValueError, ["stride"], lambda p: p.Strided(0)),
    "stride negative": (ValueError, ["stride"], lambda p: p.Strided(-3)),
    "stride not whole": (TypeError, ["stride"], lambda p: p.Strided(2.5)),
    "offset negative": (ValueError, ["offset"], lambda p: p.Strided(3, offset=-1)),
    "offset of the stride": (ValueError, ["offset"], lambda p: p.Strided(3, offset=3)),
    "offset not whole": (TypeError, ["offset"], lambda p: p.Strided(3, offset=0.5)),
    "fixed block zero": (ValueError, ["block_size"], lambda p: p.Fixed(0, 1)),
    "fixed block not whole": (TypeError, ["block_size"], lambda p: p.Fixed(2.5, 1)),
    "columns zero": (ValueError, ["columns"], lambda p: p.Fixed(3, 0)),
    "columns beyond the block": (ValueError, ["columns"], lambda p: p.Fixed(3, 4)),
    "columns not whole": (TypeError, ["columns"], lambda p: p.Fixed(3, 1.5)),
    "blockwise block zero": (ValueError, ["block_size"], lambda p: p.Blockwise(0)),
    "blockwise block a string": (TypeError, ["block_size"], lambda p: p.Blockwise("2")),
    "back negative": (ValueError, ["back"], lambda p: p.Blockwise(2, back=-1)),
    "ahead negative": (ValueError, ["ahead"], lambda p: p.Blockwise(2, ahead=-1)),
    "ahead not whole": (TypeError, ["ahead"], lambda p: p.Blockwise(2, ahead=1.5)),
    "token negative": (ValueError, ["token"], lambda p: p.Global(-1)),
    "one token negative": (ValueError, ["token"], lambda p: p.Global([0, -2])),
    "token out of range": (ValueError, ["token", "Global"], lambda p: p.Global(6)),
    "one token out of range": (ValueError, ["token", "Global"], lambda p: p.Local(2) | p.Global([0, 17])),
    "tokens not whole": (TypeError, ["token"], lambda p: p.Global([0.5])),
    "tokens a string": (TypeError, ["token"], lambda p: p.Global("all")),
    "tokens an array of no axis, not whole": (TypeError, ["tokens of Global"], lambda p: p.Global(np.array(0.5))),
    "tokens of three axes": (BOTH, ["token"], lambda p: p.Global([[[0, 1]], [[2, 3]]])),
    "a token and a list": (TypeError, ["token"], lambda p: p.Global([0, [2, 3]])),
    "blocks of integers": (TypeError, ["mask", "Blocks"], lambda p: p.Blocks(EYE.astype(int), 2)),
    "blocks of floats": (TypeError, ["mask", "Blocks"], lambda p: p.Blocks(EYE.astype(float), 2)),
    "blocks not square": (ValueError, ["mask", "Blocks"], lambda p: p.Blocks(EYE[:2], 2)),
    "sparse blocks not square": (ValueError, ["mask", "Blocks"], lambda p: p.Blocks(sparse.csr_array(EYE[:2]), 2)),
    "blocks of one axis": (ValueError, ["mask", "Blocks"], lambda p: p.Blocks(EYE[0], 2)),
    "blocks for fewer tokens": (ValueError, ["mask", "Blocks"], lambda p: p.Blocks(EYE[:2, :2], 2)),
    "blocks for more tokens": (ValueError, ["mask", "Blocks"], lambda p: p.Blocks(np.eye(4, dtype=bool), 2)),
    "blocks for other tokens, inside": (ValueError, ["mask", "Blocks"], lambda p: p.Full() & p.Blocks(EYE, 1)),
    "block size zero": (ValueError, ["block_size"], lambda p: p.Blocks(EYE, 0)),
    "block size not whole": (TypeError, ["block_size"], lambda p: p.Blocks(EYE, 2.0)),
    "a block of no keys": (ValueError, ["block_size"], lambda p: p.Blocks(EYE, (2, 0))),
    "a block of three sides": (ValueError, ["block_size"], lambda p: p.Blocks(EYE, (2, 2, 2))),
    "a block of a letter": (TypeError, ["block_size"], lambda p: p.Blocks(EYE, "2")),
    "a block of half a key": (TypeError, ["block_size"], lambda p: p.Blocks(EYE, (2, 1.5))),
    "rectangles for no number of tokens": (ValueError, ["mask", "Blocks"], lambda p: p.Blocks(EYE, (2, 1))),
    "rectangles for fewer keys": (ValueError, ["mask", "Blocks"], lambda p: p.Blocks(EYE[:2, :1], (4, 5))),
    "rectangles turned round": (ValueError, ["mask", "Blocks"], lambda p: p.Blocks(EYE[:2], (2, 3))),
    "heads of other blocks": (ValueError, ["mask of Blocks"], lambda p: p.Blocks([EYE, EYE[:2, :2]], 2, per_head=True)),
    "no blocks": (ValueError, ["mask", "Blocks"], lambda p: p.Blocks(EYE[:0, :0], 2)),
    "blocks of other heads": (ValueError, ["head", "Blocks"], lambda p: p.Blocks(np.stack([EYE] * 3), 2, True)),
    "blocks of heads without heads": (ValueError, ["mask", "Blocks"], lambda p: p.Blocks(EYE, 2, per_head=True)),
    "blocks of heads unasked": (ValueError, ["mask", "Blocks"], lambda p: p.Blocks(np.stack([EYE] * 4), 2)),
    "blocks a number": (TypeError, ["mask", "Blocks"], lambda p: p.Blocks(3, 2)),
    "blocks of heads None": (TypeError, ["mask of Blocks"], lambda p: p.Blocks(None, 2, per_head=True)),
    "blocks of heads of no axis": (TypeError, ["mask of Blocks"], lambda p: p.Blocks(EYE[0, 0], 2, per_head=True)),
    "rows too few": (ValueError, ["indptr", "Blocks"], lambda p: p.Blocks(([0, 1, 2], [0, 1]), 2)),
    "rows that decrease": (ValueError, ["indptr", "Blocks"], lambda p: p.Blocks(([0, 2, 1, 2], [0, 1]), 2)),
    "rows that start late": (ValueError, ["indptr", "Blocks"], lambda p: p.Blocks(([1, 1, 2, 2], [0, 1]), 2)),
    "rows of more than there is": (ValueError, ["ind", "Blocks"], lambda p: p.Blocks(([0, 1, 2, 9], [0, 1]), 2)),
    "rows of floats": (TypeError, ["indptr", "Blocks"], lambda p: p.Blocks(([0.0, 1.5, 2, 2], [0, 1]), 2)),
    "columns out of range": (ValueError, ["indices", "Blocks"], lambda p: p.Blocks(([0, 1, 2, 2], [0, 3]), 2)),
    "negative columns": (ValueError, ["indices", "Blocks"], lambda p: p.Blocks(([0, 1, 2, 2], [0, -1]), 2)),
    "random none": (ValueError, ["blocks"], lambda p: p.Random(0, 2)),
    "random negative": (ValueError, ["blocks"], lambda p: p.Random(-1, 2)),
    "random not whole": (TypeError, ["blocks"], lambda p: p.Random(1.5, 2)),
    "random block zero": (ValueError, ["block_size"], lambda p: p.Random(1, 0)),
    "random seed not whole": (TypeError, ["seed"], lambda p: p.Random(1, 2, seed=0.5)),
    "random seed None": (TypeError, ["seed"], lambda p: p.Random(1, 2, seed=None)),
    "random per head a number": (TypeError, ["per_head"], lambda p: p.Random(1, 2, per_head=4)),
    "random beside a mask": (TypeError, ["avoid"], lambda p: p.Random(1, 2, avoid=EYE)),
    "random beside other tokens": (ValueError, ["token", "Global"], lambda p: p.Random(1, 2, avoid=p.Global(6))),
    "random beside other heads": (
        ValueError, ["head", "Blocks"], lambda p: p.Random(1, 2, avoid=p.Blocks(np.stack([EYE] * 3), 2, True)),
    ),
    "a grid of other size": (ValueError, ["shape", "Neighborhood"], lambda p: p.Neighborhood((2, 4), 1)),
    "a line of other length": (ValueError, ["shape", "Neighborhood"], lambda p: p.Neighborhood(5, 1)),
    "a grid of four axes": (ValueError, ["shape"], lambda p: p.Neighborhood((1, 2, 3, 1), 1)),
    "a grid of no axes": (ValueError, ["shape"], lambda p: p.Neighborhood((), 1)),
    "a grid with zero": (ValueError, ["shape"], lambda p: p.Neighborhood((0, 6), 1)),
    "a grid not whole": (TypeError, ["shape"], lambda p: p.Neighborhood((2.0, 3), 1)),
    "window zero": (ValueError, ["window"], lambda p: p.Neighborhood((2, 3), 0)),
    "window negative": (ValueError, ["window"], lambda p: p.Neighborhood((2, 3), (1, -1))),
    "window not whole": (TypeError, ["window"], lambda p: p.Neighborhood((2, 3), 1.5)),
    "window too wide": (ValueError, ["window"], lambda p: p.Neighborhood((2, 3), 3)),
    "window too wide, dilated": (ValueError, ["window", "dilation"], lambda p: p.Neighborhood((2, 3), (1, 2), (1, 2))),
    "window of other axes": (ValueError, ["window"], lambda p: p.Neighborhood((2, 3), (1, 1, 1))),
    "grid dilation zero": (ValueError, ["dilation"], lambda p: p.Neighborhood((2, 3), 1, 0)),
    "grid dilation of other axes": (ValueError, ["dilation"], lambda p: p.Neighborhood((2, 3), 1, (1, 1, 1))),
    "grid stride zero": (ValueError, ["stride"], lambda p: p.Neighborhood((2, 3), 1, stride=0)),
    "grid stride not whole": (TypeError, ["stride"], lambda p: p.Neighborhood((2, 3), 2, stride=1.5)),
    "grid stride of other axes": (ValueError, ["stride"], lambda p: p.Neighborhood((2, 3), 2, stride=(1, 1, 1))),
    "grid stride beyond the window": (ValueError, ["stride", "window"], lambda p: p.Neighborhood(6, 2, stride=3)),
    "two grids": (ValueError, ["Neighborhood"], lambda p: p.Neighborhood((2, 3), 1) | p.Neighborhood((3, 2), 1)),
    "two grids, deep": (
        ValueError, ["Neighborhood"],
        lambda p: (p.Local(1) | p.Neighborhood((2, 3), 1)) & (p.Full() | p.Neighborhood(6, 2)),
    ),
}  # fmt: skip


def check_names(error, names):
    check_sentence(error, "n")
    assert any(name.lower() in str(error).lower() for name in names), f"names none of {names}: {error}"


@pytest.mark.parametrize(("error", "names", "make"), PATTERNS.values(), ids=PATTERNS)
def test_bad_pattern(error, names, make):
    """When it is made, or at the latest when it meets the sizes."""
    with pytest.raises(error) as caught:
        hs.attention(**GOOD, pattern=make(hs.patterns))
    check_names(caught.value, names)
    with pytest.raises(error) as caught:
        hs.cost(tokens=5, key_tokens=6, heads=4, head_dim=3, pattern=make(hs.patterns))
    check_names(caught.value, names)


POSITIONS = [
    ("decreasing", ValueError, lambda good: good[::-1]),
    ("decreasing once", ValueError, lambda good: np.where(np.arange(len(good)) == 3, 0.5, good)),
    ("NaN", ValueError, lambda good: np.where(good == 2, NAN, good)),
    ("infinite", ValueError, lambda good: np.where(good == good[-1], INF, good)),
    ("one too few", ValueError, lambda good: good[:-1]),
    ("a number", ValueError, lambda good: 1.0),
    ("one for all", ValueError, lambda good: [1.0]),
    ("other batch", ValueError, lambda good: np.stack([good] * 3)),
    ("three axes", ValueError, lambda good: np.stack([[good] * 4] * 2)),
    ("decreasing in the second of a batch", ValueError, lambda good: np.stack([good, good[::-1]])),
    ("a string", TypeError, lambda good: "far"),
    ("complex", TypeError, lambda good: good * 1j),
    ("objects", TypeError, lambda good: np.array([None] * len(good))),
]
RANGES = [[0, 3], [0, 4], [1, 4], [2, 6], [2, 6]]
IDS = [0, 0, 1, 1, 1, 2]
COUNTS = [
    ("negative", ValueError, -1, {}),
    ("one negative", ValueError, [3, -1], {}),
    ("more than there are", ValueError, 7, {}),
    ("one more than there are", ValueError, np.array([6, 7]), {}),
    ("float", TypeError, 3.0, {}),
    ("floats", TypeError, [3.0, 2.5], {}),
    ("other batch", ValueError, [1, 2, 3], {}),
    ("two axes", ValueError, [[1], [2]], {}),
    ("one a head", ValueError, np.ones((2, 4), dtype=int), {}),
    ("one of a batch without a batch", ValueError, [1, 2], WITHOUT_HEADS),
    ("string", TypeError, "all", {}),
    ("objects", TypeError, np.array([1, None]), {}),
]


def ids_of(good):
    return [
        ("one too few", ValueError, good[:-1], {}),
        ("other batch", ValueError, [good] * 3, {}),
        ("a number", ValueError, 1, {}),
        ("one for all", ValueError, [1], {}),
        ("floats", TypeError, np.array(good) / 2, {}),
        ("beyond whole numbers of 64 bits", ValueError, np.array(good, dtype=np.uint64) + 2**63, {}),
        ("string", TypeError, "abc", {}),
        ("objects", TypeError, np.array([None] * len(good)), {}),
    ]


# argument: (what is wrong with it, the error, the value and what else is given)
LIMITS = {
    "query_positions": [(what, error, make(EARLY), {}) for what, error, make in POSITIONS],
    "key_positions": [(what, error, make(LATE), {}) for what, error, make in POSITIONS]
    + [
        ("alone, of more queries than keys", ValueError, LATE, MORE_QUERIES),
        ("decreasing within a segment", ValueError, [3, 2, 9, 9, 9, 9], {"segment_ids": IDS}),
        ("decreasing within a segment in pieces", ValueError, [3, 9, 2, 9, 9, 9], {"segment_ids": [0, 1, 0, 1, 1, 1]}),
    ],
    "key_begin": COUNTS,
    "key_lengths": COUNTS,
    "prefix_lengths": [
        *COUNTS,
        ("both ways", ValueError, 3, {"causal": False}),
        ("of documents", ValueError, 3, {"segment_ids": IDS}),
        ("of segments", ValueError, 3, {"query_segments": IDS[1:], "key_segments": IDS}),
    ],
    "key_ranges": [
        ("that end before they begin", ValueError, [[0, 3], [2, 3], [4, 3], [0, 6], [1, 1]], {}),
        ("one negative", ValueError, np.array(RANGES) - 1, {}),
        ("beyond the keys", ValueError, [[0, 7]] * 5, {}),
        ("floats", TypeError, np.array(RANGES) / 2, {}),
        ("one range", ValueError, [0, 3], {}),
        ("one for all", ValueError, [[0, 3]], {}),
        ("of the keys", ValueError, [[0, 3]] * 6, {}),
        ("three columns", ValueError, [[0, 3, 4]] * 5, {}),
        ("other batch", ValueError, [RANGES] * 3, {}),
        ("of heads", ValueError, np.zeros((2, 4, 5, 2), int), {}),
        ("a batch without a batch", ValueError, [RANGES], WITHOUT_HEADS),
        ("string", TypeError, "all", {}),
        ("objects", TypeError, np.array([[None, 1]] * 5), {}),
    ],
    "segment_ids": [
        *ids_of(IDS),
        ("of more queries than keys", ValueError, IDS, MORE_QUERIES),
        ("some come back within a pattern", ValueError, [0, 1, 0, 1, 0, 1], {"pattern": lambda p: p.Local(2)}),
        ("beside those of queries", ValueError, IDS, {"query_segments": IDS[1:]}),
        ("beside those of both", ValueError, IDS, {"query_segments": IDS[1:], "key_segments": IDS}),
    ],
    "query_segments": [
        *((what, error, value, {"key_segments": IDS}) for what, error, value, _ in ids_of(IDS[1:])),
        ("alone", ValueError, IDS[1:], {}),
        ("of the keys", ValueError, IDS, {"key_segments": IDS}),
        (
            "some come back within a pattern",
            ValueError,
            [0, 1, 0, 0, 0],
            {"key_segments": IDS, "pattern": lambda p: p.Local(2)},
        ),
        (
            "elsewhere on a grid",
            ValueError,
            [0, 0, 0, 0, 1],
            {"key_segments": IDS, "causal": True, "pattern": lambda p: p.Neighborhood((2, 3), 1)},
        ),
    ],
    "key_segments": [
        *((what, error, value, {"query_segments": IDS[1:]}) for what, error, value, _ in ids_of(IDS)),
        ("alone", ValueError, IDS, {}),
    ],
    "key_bias": [
        ("NaN", ValueError, [0, 0, NAN, 0, 0, 0], {}),
        ("infinite", ValueError, [0, 0, INF, 0, 0, 0], {}),
        ("infinite in a head", ValueError, np.where(np.arange(24).reshape(4, 6) == 20, INF, 0), {}),
        ("a number", ValueError, 0.5, {}),
        ("one for all keys", ValueError, [0.5], {}),
        ("one for each head", ValueError, ones(4, 1), {}),
        ("one too few", ValueError, ones(5), {}),
        ("other heads", ValueError, ones(3, 6), {}),
        ("heads of the keys", ValueError, ones(2, 6), {}),
        ("other batch", ValueError, ones(3, 4, 6), {}),
        ("one a pair", ValueError, ones(2, 4, 5, 6), {}),
        ("more axes than the query", ValueError, ones(1, 6), WITHOUT_HEADS),
        ("string", TypeError, "much", {}),
        ("complex", TypeError, ones(6) * 1j, {}),
        ("objects", TypeError, np.concatenate([OBJECTS] * 2), {}),
    ],
}
ROWS = [
    pytest.param(function, argument, error, {argument: value, **others}, id=f"{function.__name__}-{argument}-{what}")
    for function in (hs.attention, hs.attention_vjp, hs.attention_weights)
    for argument, rows in LIMITS.items()
    for what, error, value, others in rows
]


def call(function, arguments):
    names = ("query", "key") if function is hs.attention_weights else ("query", "key", "value")
    return function(**{name: value for name, value in arguments.items() if name in names or name not in GOOD})


@pytest.mark.parametrize(("function", "argument", "error", "arguments"), ROWS)
def test_bad_limit(function, argument, error, arguments):
    before = copy.deepcopy(GOOD)
    given = {name: value(hs.patterns) if name == "pattern" else value for name, value in arguments.items()}
    with pytest.raises(error) as caught:
        call(function, GOOD | given)
    check_sentence(caught.value, argument)
    assert all(same(GOOD[name], before[name]) for name in GOOD)


@pytest.mark.parametrize("function", [hs.attention, hs.attention_vjp, hs.attention_weights])
def test_the_calls_that_the_table_spoils_are_good(function):
    limits = {
        "query_positions": EARLY,
        "key_positions": LATE,
        "key_begin": 1,
        "key_lengths": 5,
        "key_ranges": RANGES,
        "prefix_lengths": [2, 3],
        "key_bias": ones(6),
    }
    call(function, {**GOOD, "segment_ids": IDS})
    call(function, {**GOOD, "query_segments": IDS[1:], "key_segments": IDS})
    for name, value in limits.items():
        call(function, {**GOOD, name: value})
    call(function, GOOD | limits)


@pytest.mark.parametrize("name", ["query_positions", "key_positions"])
def test_positions_do_not_go_with_a_grid(name):
    grid = hs.patterns.Neighborhood((2, 3), 1)
    given = {name: EARLY if name == "query_positions" else LATE}
    for pattern in (grid, grid | hs.patterns.Local(2), [hs.patterns.Full()] * 3 + [grid]):
        with pytest.raises(ValueError) as caught:
            hs.attention(**GOOD, **given, pattern=pattern)
        check_names(caught.value, [name, "positions"])


def test_a_grid_takes_no_more_queries_than_keys():
    pattern = hs.patterns.Local(2) | hs.patterns.Neighborhood((2, 3), 1)
    with pytest.raises(ValueError) as caught:
        hs.attention(**GOOD | MORE_QUERIES, pattern=pattern)
    check_names(caught.value, ["Neighborhood"])


MASKS = {
    "too large": (ValueError, ["tokens", "mask"], lambda p: p.Full().mask(2**13 + 1, 2**13)),
    "negative": (ValueError, ["tokens"], lambda p: p.Local(3).mask(-1)),
    "not whole": (TypeError, ["tokens"], lambda p: p.Local(3).mask(2.5)),
    "a token beyond": (ValueError, ["token", "Global"], lambda p: p.Global(7).mask(9, 7)),
    "another grid": (ValueError, ["shape", "Neighborhood"], lambda p: p.Neighborhood((2, 3), 1).mask(7)),
    "blocks of another size": (ValueError, ["mask", "Blocks"], lambda p: p.Blocks(EYE, 2).mask(9)),
}


@pytest.mark.parametrize(("error", "names", "make"), MASKS.values(), ids=MASKS)
def test_bad_mask(error, names, make):
    with pytest.raises(error) as caught:
        make(hs.patterns)
    check_names(caught.value, names)


X, WEIGHT, BIAS = ones(2, 5, 3), ones(4, 3), ones(4)
HELPERS = {
    "starts late": (ValueError, "cumulative_lengths", lambda: hs.segments_from([1, 3])),
    "decreases": (ValueError, "cumulative_lengths", lambda: hs.segments_from([0, 3, 2])),
    "empty": (ValueError, "cumulative_lengths", lambda: hs.segments_from([])),
    "floats": (TypeError, "cumulative_lengths", lambda: hs.segments_from([0, 2.5])),
    "two axes": (ValueError, "cumulative_lengths", lambda: hs.segments_from([[0, 2], [0, 3]])),
    "string": (TypeError, "cumulative_lengths", lambda: hs.segments_from("03")),
    "x of integers": (TypeError, "x", lambda: hs.importance_from(X.astype(int), WEIGHT, BIAS)),
    "x of two axes": (ValueError, "x", lambda: hs.importance_from(X[0], WEIGHT, BIAS)),
    "weight of other width": (ValueError, "weight", lambda: hs.importance_from(X, ones(4, 2), BIAS)),
    "weight of one axis": (ValueError, "weight", lambda: hs.importance_from_vjp(X, ones(3), BIAS)),
    "bias of other heads": (ValueError, "bias", lambda: hs.importance_from(X, WEIGHT, ones(3))),
    "bias of objects": (TypeError, "bias", lambda: hs.importance_from_vjp(X, WEIGHT, np.array([None] * 4))),
    "gradient of other shape": (ValueError, "grad", lambda: hs.importance_from_vjp(X, WEIGHT, BIAS)[1](ones(2, 4, 4))),
}


@pytest.mark.parametrize(("error", "argument", "make"), HELPERS.values(), ids=HELPERS)
def test_bad_helper(error, argument, make):
    with pytest.raises(error) as caught:
        make()
    check_sentence(caught.value, argument)


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
def test_whole_numbers_of_any_type_are_good(kind):
    one, two = kind(1), kind(2)
    p = hs.patterns
    for given, plain in (
        (p.Local(two, one, two), p.Local(2, 1, 2)),
        (p.Strided(two, offset=one), p.Strided(2, offset=1)),
        (p.Fixed(two, one), p.Fixed(2, 1)),
        (p.Blockwise(two, one, one), p.Blockwise(2, 1, 1)),
        (p.Global([one, two]), p.Global([1, 2])),
        (p.Global(np.array(two)), p.Global(2)),
        (p.Global((1, 2)), p.Global([1, 2])),
        (p.Random(one, two, seed=two), p.Random(1, 2, seed=2)),
        (p.Neighborhood((two, kind(3)), one, one), p.Neighborhood((2, 3), 1, 1)),
    ):
        assert given == plain
        assert repr(given) == repr(plain)


@pytest.mark.parametrize(
    "ask", [lambda a, b: a or b, lambda a, b: a and b, lambda a, b: not a, lambda a, b: bool(a | b)]
)
def test_a_pattern_is_neither_true_nor_false(ask):
    """`Local(3) or Global(0)` would silently be Local(3)."""
    with pytest.raises(ValueError, match=r"write \| and & between patterns, not or and and$"):
        ask(hs.patterns.Local(3), hs.patterns.Global(0))
