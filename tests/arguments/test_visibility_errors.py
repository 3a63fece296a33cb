"""Bad positions, lengths, ranges, segments and biases: each gives one sentence that names it."""

import copy

import headspan as hs
import numpy as np
import pytest
from bad_values import INF, NAN, OBJECTS, SMALL, check_names, check_sentence, ones, same

EARLY, LATE = np.arange(5.0), np.arange(6.0)
MORE_QUERIES = {"query": ones(2, 4, 7, 3)}
WITHOUT_HEADS = {"query": ones(5, 3), "key": ones(6, 3), "value": ones(6, 3)}

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
    ("more than the keys", ValueError, 7, {}),
    ("one more than the keys", ValueError, np.array([6, 7]), {}),
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


# argument: (what is wrong with it, the error, the value, other arguments)
LIMITS = {
    "query_positions": [(what, error, make(EARLY), {}) for what, error, make in POSITIONS],
    "key_positions": [(what, error, make(LATE), {}) for what, error, make in POSITIONS]
    + [
        ("alone, of more queries than keys", ValueError, LATE, MORE_QUERIES),
        ("decreasing within a segment", ValueError, [3, 2, 9, 9, 9, 9], {"segment_ids": IDS}),
        ("decreasing within a segment in pieces", ValueError, [3, 9, 2, 9, 9, 9], {"segment_ids": [0, 1, 0, 1, 1, 1]}),
    ],
    "key_start": COUNTS,
    "key_stop": [*COUNTS, ("less than the start", ValueError, 2, {"key_start": 4})],
    "prefix_lengths": [
        *COUNTS,
        ("both ways", ValueError, 3, {"causal": False}),
        ("of documents", ValueError, 3, {"segment_ids": IDS}),
        ("of segments", ValueError, 3, {"query_segments": IDS[1:], "key_segments": IDS}),
    ],
    "key_ranges": [
        ("that stop before they start", ValueError, [[0, 3], [2, 3], [4, 3], [0, 6], [1, 1]], {}),
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
        ("some come back within a pattern", ValueError, [0, 1, 0, 1, 0, 1], {"pattern": lambda p: p.Window(3)}),
        ("with query_segments", ValueError, IDS, {"query_segments": IDS[1:]}),
        ("with segments of both", ValueError, IDS, {"query_segments": IDS[1:], "key_segments": IDS}),
    ],
    "query_segments": [
        *((what, error, value, {"key_segments": IDS}) for what, error, value, _ in ids_of(IDS[1:])),
        ("alone", ValueError, IDS[1:], {}),
        ("of the keys", ValueError, IDS, {"key_segments": IDS}),
        (
            "some come back within a pattern",
            ValueError,
            [0, 1, 0, 0, 0],
            {"key_segments": IDS, "pattern": lambda p: p.Window(3)},
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
# All three check with the same code: one is called with all bad values, the others with one for each argument.
ROWS = [
    pytest.param(function, argument, error, {argument: value, **others}, id=f"{function.__name__}-{argument}-{what}")
    for function in (hs.attention, hs.attention_vjp, hs.attention_weights)
    for argument, rows in LIMITS.items()
    for what, error, value, others in (rows if function is hs.attention else rows[:1])
]


def call(function, arguments):
    names = ("query", "key") if function is hs.attention_weights else ("query", "key", "value")
    return function(**{name: value for name, value in arguments.items() if name in names or name not in SMALL})


@pytest.mark.parametrize(("function", "argument", "error", "arguments"), ROWS)
def test_bad_limit(function, argument, error, arguments):
    before = copy.deepcopy(SMALL)
    options = {name: value(hs.patterns) if name == "pattern" else value for name, value in arguments.items()}
    with pytest.raises(error) as caught:
        call(function, SMALL | options)
    check_sentence(caught.value, argument)
    assert all(same(SMALL[name], before[name]) for name in SMALL)


@pytest.mark.parametrize("function", [hs.attention, hs.attention_vjp, hs.attention_weights])
def test_calls_without_a_bad_limit_pass(function):
    limits = {
        "query_positions": EARLY,
        "key_positions": LATE,
        "key_start": 1,
        "key_stop": 5,
        "key_ranges": RANGES,
        "prefix_lengths": [2, 3],
        "key_bias": ones(6),
    }
    call(function, {**SMALL, "segment_ids": IDS})
    call(function, {**SMALL, "query_segments": IDS[1:], "key_segments": IDS})
    for name, value in limits.items():
        call(function, {**SMALL, name: value})
    call(function, SMALL | limits)


@pytest.mark.parametrize("name", ["query_positions", "key_positions"])
def test_positions_do_not_go_with_a_grid(name):
    grid = hs.patterns.Neighborhood((2, 3), 1)
    positions = {name: EARLY if name == "query_positions" else LATE}
    for pattern in (grid, grid | hs.patterns.Window(3), [hs.patterns.Full()] * 3 + [grid]):
        with pytest.raises(ValueError) as caught:
            hs.attention(**SMALL, **positions, pattern=pattern)
        check_names(caught.value, [name, "positions"])


def test_a_grid_takes_no_more_queries_than_keys():
    pattern = hs.patterns.Window(3) | hs.patterns.Neighborhood((2, 3), 1)
    with pytest.raises(ValueError) as caught:
        hs.attention(**SMALL | MORE_QUERIES, pattern=pattern)
    check_names(caught.value, ["Neighborhood"])
