"""Bad arguments of pictures: each gives one sentence, and nothing is drawn."""

import headspan as hs
import matplotlib
import numpy as np
import pytest
from headspan.patterns import Full, Global, Window

matplotlib.use("Agg")

import matplotlib.pyplot as plt

pytestmark = pytest.mark.unsanitized  # the sanitizers have nothing to find in other people's drawing

VALUES = [
    (lambda p: p.spans([-1]), "span must be non-negative, got -1"),
    (lambda p: p.spans([1], max_span=-3), "max_span must be at least 0, not -3"),
    (lambda p: p.spans([1], ramp=-1), "ramp must be at least 0, not -1"),
    (lambda p: p.span_history([0], [[1]], ramp=np.nan), "ramp must be finite"),
    (lambda p: p.dynamic_spans([1], ramp=-1), "ramp must be at least 0, not -1"),
    (lambda p: p.spans([]), "span must hold at least one number"),
    (lambda p: p.spans(np.ones((1, 1, 1))), "span must have 0 or 1 or 2 axes"),
    (lambda p: p.spans([np.nan]), "span must be finite"),
    (lambda p: p.soft_mask([1], ramp=-1), "ramp must be at least 0"),
    (lambda p: p.span_history([0], [[1]], max_span=-3), "max_span must be at least 0, not -3"),
    (lambda p: p.span_history([0, 1], [[1]]), r"span must have the shape \(2, heads\)"),
    (lambda p: p.dynamic_spans([1, 2], tokens=["a"]), "tokens must hold 2 strings"),
    (lambda p: p.dynamic_spans([1, 2], tokens=["a", "b", "c"]), "tokens must hold 2 strings, one per token, not 3"),
    (lambda p: p.attention_map([[1.0]], span=[1, 2]), r"span must be a number or of shape \(1,\)"),
    (lambda p: p.attention_map([[-1.0]]), "weights must be non-negative"),
    (lambda p: p.attention_map([[1.0]], pool=(1, 2, 3)), r"pool must be a number or a pair, not \(1, 2, 3\)"),
    (lambda p: p.attention_map([[1.0]], vmin=0), "vmin must be greater than 0, not 0"),
    (lambda p: p.attention_map([[1.0]], vmin=-1), "vmin must be greater than 0, not -1"),
    (lambda p: p.attention_map([[1.0]], vmax=0), "vmax must be greater than 0, not 0"),
    (lambda p: p.attention_map([[1.0]], vmax=1e-323), "vmin must be greater than 0, not 0"),
    (lambda p: p.attention_map([[1.0]], vmax=np.inf), "vmax must be finite"),
    (lambda p: p.attention_map([[1.0]], vmin=1, vmax=0.5), "vmin must be below vmax, 0.5, not 1"),
    (lambda p: p.attention_map([[0.5]], vmin=0.5), "vmin must be below the largest weight, 0.5, not 0.5"),
    (lambda p: p.distance_profile(np.ones((3, 2))), "rows up to cols"),
    (lambda p: p.distance_profile(np.ones((3, 3)), span=[1, 2]), "span must have the shape"),
    (lambda p: p.attention_map([[1.0]], pattern=Global(1)), "tokens of Global must be below the number of keys, 1"),
    (
        lambda p: p.attention_map([[1.0]], pattern=Global([[0], [0]])),
        "pattern must be for a batch of 1, but has Global",
    ),
    (lambda p: p.pattern(Window(2), 0), "tokens must be at least 1"),
    (lambda p: p.pattern(Global(4), 4), "tokens of Global must be below the number of keys, 4"),
    (lambda p: p.pattern([], 4), "a list of at least one, not an empty list"),
    (lambda p: p.pattern([Full()] * 65, 4), "pattern must be for 1 to 64 heads, not for 65"),
    (lambda p: p.pattern([Full()] * 2, 4, span=[1, 2, 3]), r"span must be a number or of shape \(2,\)"),
    (lambda p: p.pattern(Global([[0], [1]]), 4), "pattern must be for a batch of 1, but has Global for one of 2"),
    (lambda p: p.pattern([[Full()], [Full()]], 4), "pattern must hold a list for each item of a batch of 1, not 2"),
    (lambda p: p.pattern(Full(), 4, span=[-1]), "span must be non-negative"),
    (lambda p: p.pattern([Full()] * 2, 4, ax=object()), "ax has room for one panel, not for 2 heads"),
    (lambda p: p.block_gates([1], 8), "block_gates must have 2 or 3 or 4 axes"),
    (lambda p: p.block_gates([[np.nan]], 8), "block_gates must be finite"),
    (lambda p: p.block_gates(np.ones((0, 3, 3)), 8), "block_gates must hold at least one number"),
    (lambda p: p.block_gates([[1]], 0), "gate_block_size must be at least 1, not 0"),
    (lambda p: p.block_gates(np.ones((65, 2, 2)), 8), "at most 64 panels, not 1 x 65"),
    (lambda p: p.block_gates(np.ones((2, 1, 2, 2)), 8), "steps must be given for block_gates of four axes"),
    (lambda p: p.block_gates(np.ones((2, 2)), 8, steps=[1]), "steps require block_gates of four axes, not of 2"),
    (lambda p: p.block_gates(np.ones((2, 1, 2, 2)), 8, steps=[1]), r"steps must be of shape \(2,\), one step for each"),
    (lambda p: p.block_gates(np.ones((2, 2, 2)), 8, ax=object()), "ax has room for one panel, not for 2"),
    (lambda p: p.hierarchy(0), "tokens must be at least 1, not 0"),
    (lambda p: p.hierarchy(9, 0), "block_size must be at least 1, not 0"),
    (
        lambda p: p.kept_tokens(np.empty(0, int), np.empty((0, 3), int)),
        "count must be a list of at least one number, which ascend from 1 or more",
    ),
    (
        lambda p: p.kept_tokens([3, 3], np.zeros((2, 3), int)),
        "count must be a list of at least one number, which ascend from 1 or more",
    ),
    (
        lambda p: p.kept_tokens([0, 3], np.zeros((2, 3), int)),
        "count must be a list of at least one number, which ascend from 1 or more",
    ),
    (lambda p: p.kept_tokens([3], [0, 1]), r"positions must be of shape \(1, rows\), not \(2,\)"),
    (lambda p: p.kept_tokens([3], [[0, 3]]), "must be -1 for none, or non-negative and below count, got 3"),
    (lambda p: p.kept_tokens([3], [[-2, 0]]), "must be -1 for none, or non-negative and below count, got -2"),
    (
        lambda p: p.kept_tokens([3], [[0, 1]], [1, 2]),
        r"weights must be of the shape of positions, \(1, 2\), not \(2,\)",
    ),
    (lambda p: p.kept_tokens([3], [[0, 1]], [[1, -2]]), "weights must be non-negative, got -2"),
    (lambda p: p.kept_tokens([3], [[0, 1]], [[1, np.nan]]), "weights must be finite"),
    (lambda p: p.limit_sweep({}), "at least one of bits, span, flops besides limit, got none"),
    (lambda p: p.limit_sweep({"a": {"limit": [1]}}), "besides limit, got none"),
    (lambda p: p.limit_sweep({"a": {"bits": [1]}}), "must hold limit"),
    (lambda p: p.limit_sweep({"a": {1: [1], "bits": [2]}}), r"limit and of bits, span, flops, not \[1, 'bits'\]"),
    (lambda p: p.limit_sweep({"a": {"limit": [0], "bits": [1]}}), "limit must be greater than 0"),
    (lambda p: p.limit_sweep({"a": {"limit": [1], "bits": [1, 2]}}), "shape of limit"),
]
TYPES = [
    (lambda p: p.spans([1], ax="x"), "ax must be an Axes of matplotlib, not 'x'"),
    (lambda p: p.pattern(Full(), 4, ax="x"), "ax must be an Axes of matplotlib, not 'x'"),
    (lambda p: p.block_gates([[1]], 8, ax="x"), "ax must be an Axes of matplotlib, not 'x'"),
    (lambda p: p.block_gates([[1]], 8.5), "gate_block_size must be an integer, not 8.5"),
    (lambda p: p.block_gates([[1]], 8, causal=1), "causal must be True or False, not 1"),
    (lambda p: p.block_gates(np.ones((1, 1, 1, 1)), 8, steps=[0.5]), "steps must be integers, not float64"),
    (lambda p: p.hierarchy(9, ax="x"), "ax must be an Axes of matplotlib, not 'x'"),
    (lambda p: p.span_fit([1]), r"fit must be a SpanFit from fit_spans, not \[1\]"),
    (lambda p: p.kept_tokens([0.5], [[0]]), "count must be integers, not float64"),
    (lambda p: p.kept_tokens([1], [[0.5]]), "positions must be integers, not float64"),
    (lambda p: p.kept_tokens([1], [[0]], ax="x"), "ax must be an Axes of matplotlib, not 'x'"),
    (lambda p: p.soft_mask([1], ax=np.array([None] * 20)), "ax must be an Axes of matplotlib, not ndarray"),
    (lambda p: p.limit_sweep(None), "sweeps must be a mapping of names to mappings, not None"),
    (lambda p: p.limit_sweep([]), r"sweeps must be a mapping of names to mappings, not \[\]"),
    (lambda p: p.limit_sweep({"limit": [1], "bits": [2]}), "the sweep 'limit' must be a mapping of limit and of bits"),
    (lambda p: p.attention_map([[1.0]], tokens=5), "tokens must be a sequence of texts, not 5"),
    (lambda p: p.attention_map([[1.0]], vmin="a"), "vmin must be a number, not 'a'"),
    (lambda p: p.attention_map([[1.0]], causal="no"), "causal must be True or False, not 'no'"),
    (lambda p: p.mean_by_distance([[1.0]], causal=None), "causal must be True or False, not None"),
    (lambda p: p.distance_profile([[1.0]], causal="no"), "causal must be True or False, not 'no'"),
    (lambda p: p.dynamic_spans([1, 2], tokens=5), "tokens must be a sequence of texts, not 5"),
]


@pytest.mark.parametrize(
    ("error", "call", "message"),
    [(ValueError, *row) for row in VALUES] + [(TypeError, *row) for row in TYPES],
)
def test_errors_say_what_is_wrong(error, call, message):
    with pytest.raises(error, match=message):
        call(hs.plot)
    assert plt.get_fignums() == []  # no half of a picture is left behind
