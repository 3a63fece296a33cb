"""What a user would write in plain torch instead of a dense mask gives the values and gradients of the definition."""

from dataclasses import replace

import headspan as hs
import numpy as np
import pytest

from benchmarks.cases import BACKWARD, BOTH, CASES, FORWARD, Case, make_inputs
from benchmarks.contenders import HEADSPAN, PEERS
from benchmarks.measure.results import Row, Settings
from benchmarks.measure.run import run
from benchmarks.output import rivals

pytest.importorskip("torch")

# Longer than the longest slice, and of a length that no size of slices divides, unless reshapes need it.
SMALL = {"batch": 2, "heads": 2, "queries": 300, "keys": 300, "head_dim": 8}
PATTERN = {**SMALL, "queries": 512, "keys": 512, "causal": False}
SMALL_CASES = (
    Case("span", "span", **SMALL, span=40, ramp=9),
    Case("span of half a token", "span", **SMALL, span=70.5, ramp=1),
    Case("both sides", "span", **SMALL, span=40, ramp=9, causal=False),
    Case("heads", "span", **SMALL, span=90, head_spans=(5, 90), ramp=9),
    Case("tokens", "span", **SMALL, span=(0, 80), ramp=9),
    Case("window", "pattern", **PATTERN, pattern="local"),
    Case("odd window", "pattern", **PATTERN | {"queries": 300, "keys": 300}, pattern="local"),
    Case("strides", "pattern", **PATTERN, pattern="strided-32"),
    Case("causal strides", "pattern", **PATTERN | {"causal": True}, pattern="strided-32"),
    Case("blocks", "pattern", **PATTERN, pattern="blockwise-256"),
    Case("causal blocks", "pattern", **PATTERN | {"causal": True}, pattern="blockwise-256"),
    Case("global", "pattern", **PATTERN, pattern="longformer"),
    Case("mixed", "pattern", **PATTERN, pattern="mixed"),
    Case("quarter", "pattern", **PATTERN, pattern="blocks-25"),
    Case("neighborhood", "pattern", **PATTERN | {"queries": 400, "keys": 400}, pattern="neighborhood-7"),
)
RIVALS = [peer for peer in PEERS if peer.package in ("torch", "local_attention") and not peer.compiled]
TAKEN = [(rival, case) for rival in RIVALS for case in SMALL_CASES if rival.takes(case, BOTH)]


def expected(case, inputs):
    """Return the output by the dense definition, and the gradients of query, key, value and span."""
    arrays = [a.astype(np.float64) for a in (inputs.query, inputs.key, inputs.value)]
    span = None if inputs.span is None else inputs.span.astype(np.float64)
    options = {"span": span, "ramp": case.ramp, "causal": case.causal, "pattern": case.allowed}
    gradients = hs.attention_vjp(*arrays, **options)[1](inputs.grad_out.astype(np.float64))
    return (hs.reference.attention(*arrays, **options), *gradients[:4])


@pytest.mark.parametrize(
    ("rival", "case"), TAKEN, ids=[f"{rival.name} {case.name}".replace(" ", "-") for rival, case in TAKEN]
)
def test_values_and_gradients_are_those_of_the_definition(rival, case):
    pytest.importorskip(rival.package)
    case = replace(case, dtype="float64")
    for passes in (FORWARD, BACKWARD, BOTH):
        if not rival.takes(case, passes):
            continue
        inputs = make_inputs(case, passes)
        prepared = rival.prepare(case, passes, inputs)
        result = prepared.result(prepared.call())
        if passes == FORWARD:
            inputs = make_inputs(case, BOTH)
        right = expected(case, inputs)
        assert len(result) == (1 if passes == FORWARD else 5 if rival.has_span_gradient else 4)
        for array, values in zip(result, right, strict=False):
            np.testing.assert_allclose(array, values, rtol=1e-9, atol=1e-10)


def test_every_rival_is_tested_on_what_it_is_for():
    names = {(rival.name, case.name) for rival, case in TAKEN}
    for size in (64, 128, 256):
        assert {case for name, case in names if name == f"torch-slices-{size}"} == {case.name for case in SMALL_CASES}
        assert {case for name, case in names if name == f"torch-unfold-{size}"} >= {"span", "window", "odd window"}
        assert {case for name, case in names if name == f"eager-slices-{size}"} >= {"span", "heads", "tokens"}
    assert {case for name, case in names if name == "torch-reshape"} >= {"strides", "blocks", "causal strides"}
    assert {case for name, case in names if name == "local-attention"} == {"span", "span of half a token", "window"}


def test_every_case_with_a_mask_has_rivals():
    """Each also has the dense mask that is usual; cases without a reshape are named so."""
    masked = [case for case in CASES if case.kind != "layer" and (case.span is not None or case.pattern is not None)]
    for case in masked:
        names = {peer.name for peer in PEERS if peer.takes(case, FORWARD)}
        assert {"torch-sdpa-mask", "torch-slices-64", "torch-flex"} <= names
        assert case.no_reshape or case.window or "torch-reshape" in names or case.pattern in (
            "longformer", "blocks-25", "neighborhood-7"
        )  # fmt: skip
    assert {case.name for case in CASES if case.no_reshape} == {"span-heads", "span-dynamic", "mixed"}


def test_a_rival_with_a_wrong_result_is_not_timed():
    def prepare(case, passes, inputs):
        prepared = HEADSPAN.prepare(case, passes, inputs)
        return replace(prepared, result=lambda value: (value * 1.01,))

    wrong = replace(RIVALS[0], name="wrong", prepare=prepare, applies=lambda case, passes: True, package=None)
    case = Case("small", "span", heads=2, queries=40, keys=40, head_dim=8, passes=(FORWARD,))
    settings = Settings(threads=1, rounds=1, fewest=1, budget=None, memory="none")
    rows = run([case], [HEADSPAN, wrong], settings)
    assert [row.absent.partition(":")[0] for row in rows] == ["", "failed"]
    assert "differs from the definition by" in rows[1].absent


def test_the_best_rival_stands_beside_the_usual_one():
    case = replace(SMALL_CASES[0], passes=(FORWARD, BOTH))
    mixed = replace(SMALL_CASES[-3], passes=(FORWARD,), no_reshape="a window and a stride in one softmax")
    ratios = {
        (case, FORWARD): {"torch-sdpa-mask": 9.0, "torch-slices-64": 3.0, "torch-unfold-64": 2.5, "torch-flex": 4.0},
        (case, BOTH): {"torch-sdpa-mask": 8.0, "torch-unfold-64": 3.5, "torch-eager": 90.0, "eager-slices-64": 20.0},
        (mixed, FORWARD): {"torch-sdpa-mask": 60.0, "torch-flex": 30.0},
    }
    rows = [
        Row(of_case.name, passes, name, median=ratio, ratio=ratio)
        for (of_case, passes), by_name in ratios.items()
        for name, ratio in by_name.items()
    ]
    rows.append(Row(case.name, FORWARD, "torch-window", absent="not installed"))
    assert rivals.best(rows, case.name, FORWARD).contender == "torch-unfold-64"
    assert rivals.best(rows, case.name, BOTH, with_span_gradient=True).contender == "eager-slices-64"
    lines = [line.split() for line in rivals.lines([case, mixed], rows)]
    assert ["span", "forward", "9", "2.5", "torch-unfold-64", "-"] in lines
    assert ["span", "forward+backward", "8", "3.5", "torch-unfold-64", "20", "eager-slices-64"] in lines
    assert ["mixed", "forward", "60", "30", "torch-flex", "-"] in lines
    assert " ".join(lines[-1]) == "mixed: no reshape for a window and a stride in one softmax"
