"""The benchmarks measure what they say: their cases, their count of work, their contenders, their command."""

import itertools
import json
import math
from dataclasses import replace

import headspan as hs
import numpy as np
import pytest

from benchmarks import contenders
from benchmarks.abilities import cases as abilities
from benchmarks.abilities import of_headspan
from benchmarks.abilities.__main__ import tried
from benchmarks.cases import BACKWARD, BOTH, CASES, FORWARD, GROUPS, Case, make_inputs, useful_work
from benchmarks.measure import accuracy, run, timing
from benchmarks.measure.memory import peak_growth
from benchmarks.measure.results import Row, Settings
from benchmarks.output import figures, saved, tables

TINY = (
    Case("full", "tiny", batch=2, heads=2, queries=20, keys=20, head_dim=16),
    Case("not causal", "tiny", heads=2, queries=20, keys=20, head_dim=16, causal=False),
    Case("span", "span", heads=2, queries=20, keys=20, head_dim=16, span=3, ramp=4),
    Case("dynamic", "span", batch=2, heads=2, queries=20, keys=20, head_dim=16, span=(0, 9), ramp=4),
    Case("both sides", "span", heads=2, queries=20, keys=20, head_dim=16, span=3, ramp=4, causal=False),
    Case("one query", "decode", heads=2, queries=1, keys=20, head_dim=16),
    Case("few queries", "decode", heads=2, queries=3, keys=20, head_dim=16),
    Case("longformer", "pattern", heads=2, queries=150, keys=150, head_dim=16, causal=False, pattern="longformer"),
    Case("neighborhood", "pattern", queries=81, keys=81, head_dim=16, causal=False, pattern="neighborhood-7"),
    Case("blocks", "pattern", heads=1, queries=300, keys=300, head_dim=16, causal=False, pattern="blocks-25"),
    Case("few strided", "pattern", heads=1, queries=3, keys=70, head_dim=16, pattern="strided-32"),
)
LAYER = Case("layer", "hybrid", batch=2, heads=2, queries=50, keys=50, head_dim=8, causal=False, max_span=9, ramp=4)
WHO = (contenders.HEADSPAN, *contenders.PEERS)


def named(cases):
    return [case.name for case in cases]


def exactly(case, inputs):
    """out and the gradients of query, key, value and span from arrays in float64."""
    double = [a.astype(np.float64) for a in (inputs.query, inputs.key, inputs.value)]
    span = None if inputs.span is None else inputs.span.astype(np.float64)
    options = {"span": span, "ramp": case.ramp, "causal": case.causal, "pattern": case.allowed}
    out = hs.reference.attention(*double, **options)
    if inputs.grad_out.shape != inputs.query.shape:
        return (out,)
    gradients = hs.attention_vjp(*double, **options)[1](inputs.grad_out.astype(np.float64))
    return (out, *gradients[:4])


def test_names_are_unique():
    assert len(set(named(CASES))) == len(CASES)
    assert {case.group for case in CASES} == set(GROUPS)
    everybody = [who.name for who in (*contenders.HEADSPAN_CONTENDERS, *contenders.PEERS)]
    assert len(set(everybody)) == len(everybody)


def test_cases_survive_json():
    settings = Settings(threads=1, rounds=1, fewest=1, budget=None)
    report = saved.to_json({}, settings, (*CASES, *TINY, LAYER), [])
    assert saved.from_json(json.loads(json.dumps(report))) == ([*CASES, *TINY, LAYER], [])


@pytest.mark.parametrize("case", TINY, ids=named(TINY))
def test_useful_work_is_that_of_the_pairs_that_count(case):
    inputs = make_inputs(case, BOTH)
    allowed = np.ones((case.queries, case.keys)) if case.allowed is None else case.allowed.mask(case.queries, case.keys)
    pairs = 0
    for b, h, i, j in np.ndindex(case.batch, case.heads, case.queries, case.keys):
        x = i + case.keys - case.queries - j
        span = math.inf if inputs.span is None else inputs.span[(b, h, i)[: inputs.span.ndim]]
        pairs += allowed[i, j] and (x >= 0 or not case.causal) and case.ramp + span - abs(x) > 0
    assert useful_work(case, FORWARD, inputs) == 4 * case.head_dim * pairs
    assert useful_work(case, BACKWARD, inputs) == 10 * case.head_dim * pairs
    assert useful_work(case, BOTH, inputs) == 14 * case.head_dim * pairs


@pytest.mark.parametrize("is_complete", [True, False], ids=["all queries", "some queries"])
@pytest.mark.parametrize("case", TINY, ids=named(TINY))
def test_error(case, is_complete, monkeypatch):
    case = replace(case, dtype="float64")
    if not is_complete:
        monkeypatch.setattr(accuracy, "_MAX_PAIRS", 0)
    monkeypatch.setattr(accuracy, "_SOME", 5 * case.keys)  # in several parts, or five queries
    inputs = make_inputs(case, BOTH)
    right = accuracy.expected(case, BOTH, inputs)
    result = exactly(case, inputs)
    assert accuracy.error(right, result) < 1e-13
    looked_at = [place for place, known in enumerate(right.arrays) if known is not None]
    assert {0, 1} <= set(looked_at)
    assert not is_complete or looked_at == [place for place, array in enumerate(result) if array is not None]
    for place in looked_at:
        wrong = list(result)
        wrong[place] = wrong[place] * 1.01 + 0.01
        assert accuracy.error(right, tuple(wrong)) > 1e-4


@pytest.mark.filterwarnings("default")  # warnings of the peers are not errors here
@pytest.mark.parametrize("case", TINY, ids=named(TINY))
@pytest.mark.parametrize("who", WHO, ids=[who.name for who in WHO])
def test_contenders_compute_the_same(who, case):
    if who.package is not None:
        pytest.importorskip(who.package)
    if who.name == "torch-flex" and case.name not in ("dynamic", "longformer"):
        pytest.skip("each compilation takes seconds")
    for passes in (FORWARD, BACKWARD, BOTH):
        if not who.takes(case, passes):
            continue
        inputs = make_inputs(case, passes)
        prepared = who.prepare(case, passes, inputs)
        result = prepared.result(prepared.call())
        expected = exactly(case, inputs)
        assert len(result) >= min(len(expected), 4)
        for array, right in zip(result, expected, strict=False):
            if right is not None:
                np.testing.assert_allclose(array, right, rtol=1e-5, atol=2e-5)


def test_headspan_can_do_what_is_asked_of_others():
    inputs = abilities.inputs()
    right, tries = abilities.expected(inputs), of_headspan.tries()
    assert list(tries) == list(abilities.ABILITIES)
    cells = [tried("headspan", name, *tries[name], inputs, right.get(name)) for name in tries]
    assert {cell.ability: cell.raised for cell in cells if cell.had != "yes"} == {}


def test_a_library_that_gives_other_numbers_or_raises_cannot_do_it():
    inputs = abilities.inputs()
    right = abilities.expected(inputs)["forward"]
    wrong = tried("it", "forward", "yes", lambda _: right + 1e-3, inputs, right)
    raised = tried("it", "forward", "yes", lambda _: 1 / 0, inputs, right)
    assert [cell.had for cell in (wrong, raised)] == ["no", "no"]
    assert raised.raised == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize("passes", [FORWARD, BOTH])
def test_the_hybrid_layer_is_the_sum_of_its_branches(passes):
    case = replace(LAYER, dtype="float64")
    inputs = make_inputs(case, passes)
    who = {c.name: c for c in (*contenders.HEADSPAN_CONTENDERS, *contenders.PEERS) if c.takes(case, passes)}
    assert list(who) == ["headspan", "full-layer", "local-branch"]
    hybrid, full, local = (c.prepare(case, passes, inputs).call() for c in who.values())
    close = {"rtol": 1e-11, "atol": 1e-11}
    if passes == FORWARD:
        assert hybrid.shape == (2, 50, 16)
        np.testing.assert_allclose(hybrid.reshape(-1, 16), full + local, **close)
        return
    out, (_, gradients) = hybrid
    full_out, _, _, full_projection, projection_bias = full
    local_out, local_gradients, local_projection = local
    np.testing.assert_allclose(out.reshape(-1, 16), full_out + local_out, **close)
    np.testing.assert_allclose(gradients.local_qkv, local_gradients.qkv, **close)
    np.testing.assert_allclose(gradients.projection, np.concatenate((local_projection, full_projection)), **close)
    np.testing.assert_allclose(gradients.projection_bias, projection_bias, **close)


def test_everybody_takes_turns():
    order = []
    calls = {name: lambda name=name: order.append(name) for name in "ab"}
    samples = timing.measure(calls, lambda: 1e9, rounds=4, budget=None)
    assert [len(s.seconds) for s in samples.values()] == [4, 4]
    assert [s.peaks for s in samples.values()] == [[1e9] * 4] * 2
    assert samples["a"].repeats > 1
    turns = [name for i, name in enumerate(order) if i == 0 or order[i - 1] != name]
    assert turns == list("ab" + "ab" + "ba"[1:] + "ab"[1:] + "ba"[1:])


def test_samples_that_the_host_disturbed_are_taken_again(monkeypatch):
    stolen = iter([0.0, 1.0, 1.0, 5.0, 5.0, 5.0])  # before and after each of three attempts
    monkeypatch.setattr(timing, "stolen_seconds", lambda: next(stolen))
    samples = timing.Samples(repeats=1)
    peaks = iter([1.0, 1.0, 2.0, 2.0, 3.0, 5.0])
    calls = []
    samples.take(lambda: calls.append(1), lambda: next(peaks))
    assert len(calls) == 3
    assert samples.retaken == 2
    assert samples.peaks == [4.0]
    assert len(samples.seconds) == 1


def test_a_host_that_always_disturbs_ends_the_attempts(monkeypatch):
    clock, stolen = itertools.count(), itertools.count()
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(clock) / 10)
    monkeypatch.setattr(timing, "stolen_seconds", lambda: next(stolen))
    samples = timing.Samples(repeats=1)
    samples.take(lambda: None, lambda: 1.0)
    assert samples.retaken > 1
    assert len(samples.seconds) == 1


def test_what_the_host_took_is_counted():
    assert timing.stolen_seconds() >= 0


def test_the_slow_take_part_in_fewer_rounds():
    calls = {"quick": lambda: None, "slow": lambda: timing.time.sleep(0.4)}
    samples = timing.measure(calls, lambda: 1.0, rounds=3, fewest=2, budget=0.3)
    assert [len(s.seconds) for s in samples.values()] == [3, 2]


@pytest.mark.unsanitized
def test_memory_is_that_of_the_results():
    case = Case("linear", "span", heads=16, span=64)
    out = case.heads * case.queries * case.head_dim * case.itemsize
    grown = peak_growth(case, FORWARD, "headspan", 1)
    if grown is None:
        pytest.skip("only Linux lets a process reset and read its own peak of memory")
    assert 0.9 * out < grown < 8 * out


def test_a_dense_mask_may_be_too_large():
    case = Case("long", "length", queries=2**16, keys=2**16, span=256)
    masked = replace(next(w for w in WHO if w.name == "torch-sdpa-mask"), package=None)
    assert "17.2 GB" in masked.obstacle(case, FORWARD)
    assert contenders.HEADSPAN.obstacle(case, FORWARD) == ""


def test_absent_peers_are_named():
    def prepare(case, passes, inputs):
        raise RuntimeError("NotImplementedError: not today\nbut tomorrow")

    missing = contenders.Contender("missing", prepare, lambda case, passes: True, package="headspan_no_such")
    broken = contenders.Contender("broken", prepare, lambda case, passes: True)
    settings = Settings(threads=1, rounds=1, fewest=1, budget=None, memory="none")
    case = replace(TINY[0], passes=(FORWARD,))
    rows = run.run([case], [contenders.HEADSPAN, missing, broken], settings)
    assert [row.absent for row in rows] == ["", "not installed", "failed: not today"]
    text = tables.group_table("tiny", [case], rows)
    assert "not installed: missing" in text
    assert "failed: not today" in text


def test_patterns_are_compared_pair_by_pair(capsys):
    case = replace(TINY[7], passes=(FORWARD, BACKWARD), at_most=1.5)
    settings = Settings(threads=1, rounds=3, fewest=1, budget=None, memory="none")
    rows = run.run([case], list(contenders.HEADSPAN_CONTENDERS), settings)
    assert [row.contender for row in rows] == ["headspan", "headspan-full"] * 2
    allowed = case.allowed.mask(case.queries).mean()
    for sparse, full in zip(rows[::2], rows[1::2], strict=True):
        right = np.quantile(np.array(sparse.seconds) / full.seconds / allowed, [0.25, 0.5, 0.75])
        np.testing.assert_allclose(sparse.per_pair, right)
        assert (full.per_pair, full.error, full.work) == ([], None, None)
    last = tables.group_table("pattern", [case], rows).splitlines()[-1].split()
    assert last[:3] == ["longformer", f"{allowed:.2%}", "1.5"]
    assert [last[3], last[7]] == [f"{row.per_pair[1]:.2f}" for row in rows[::2]]
    assert last[-1] == "-"


def test_hybrid_figure(tmp_path):
    who = ("headspan", "full-layer", "local-branch")
    cases = [replace(LAYER, name=f"hybrid-{n}", queries=n, keys=n) for n in (20, 40)]
    rows = [
        Row(case.name, passes, name, median=case.keys * seconds, memory=case.keys * 10**6)
        for case in cases
        for passes in case.passes
        for seconds, name in enumerate(who, start=1)
    ]
    assert [path.name for path in figures.draw(cases, rows, tmp_path)] == ["hybrid.svg"]
    times, both, memory, _ = figures.hybrid(cases, rows).axes
    assert [ax.get_title() for ax in (times, both)] == ["forward", "forward and backward"]
    assert [list(line.get_ydata()) for line in times.lines] == [[20e3 * s, 40e3 * s] for s in (1, 2, 3)]
    assert [list(line.get_ydata()) for line in memory.lines] == [[20, 40]] * 3
    for row in rows:
        row.memory = None  # where no process can read its own
    assert len(figures.hybrid(cases, rows).axes) == 2
