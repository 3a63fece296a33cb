"""Kinds of spans, and batches that continue the step before: results equal those without a memory."""

import dataclasses
import itertools
import re

import headspan as hs
import numpy as np
import pytest
from headspan.lab import lm, train, write_report
from headspan.lab.config import BATCHES
from headspan.lab.model import layers
from headspan.lab.model.forward import forward
from headspan.lab.model.memory import Memory
from headspan.lab.runs import Run
from headspan.lab.training.baselines import baselines_of, pairs_in_window, spans_in_window, train_baseline
from headspan.lab.training.engines import objective
from headspan.lab.training.start import current_state, initial_state
from headspan.lab.training.train import draw_batch, sample_bits, text_bits
from lm_helpers import TRAINING, small_model, small_run, small_text

TEXT = small_text()
STREAM = dataclasses.replace(TRAINING, batches="stream", context=12)
KINDS = {"adaptive": {}, "dynamic": {"span_kind": "dynamic"}, "fixed": {"span_kind": "fixed", "ramp": 0}}
CHANGES = [pytest.param(c | {"taps": t}, id=f"{k}-{t}") for k, c in KINDS.items() for t in (1, 3)]


def drawn(model, seed=0):
    rng = np.random.default_rng(seed)
    parameters = {name: array.astype(np.float64) for name, array in lm.init_parameters(model, seed).items()}
    for name in parameters:
        if name.startswith("span"):
            parameters[name] = parameters[name] + rng.uniform(-1, 1, parameters[name].shape)
    return parameters


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("segment", [1, 5, 12])
def test_segments_with_a_memory_are_the_whole_text(change, segment):
    model = small_model(TEXT, span_limit=20, **change)
    parameters = drawn(model)
    tokens = TEXT.encode(TEXT.data)[None, :60]
    expected = lm.logits(parameters, model, tokens)
    memory, parts = Memory(model), []
    for first in range(0, 60, segment):
        parts.append(forward(layers, parameters, model, tokens[:, first : first + segment], memory).scores)
    np.testing.assert_allclose(np.concatenate(parts, axis=1), expected, rtol=0, atol=1e-10)
    kept = memory.layers()
    assert len(kept) == model.layers
    assert all(array.shape[1] < model.reach + model.taps - 1 + segment for array in kept)
    bits = lm.stream_bits(parameters, model, tokens[0], segment)
    np.testing.assert_allclose(bits, lm.window_bits(parameters, model, tokens)[0], rtol=0, atol=1e-10)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("streamed", [False, True])
def test_the_gradient_agrees_with_finite_differences(change, streamed):
    model = small_model(TEXT, span_limit=20, **change)
    parameters = drawn(model, 1)
    compute = objective("numpy", model, 0.01)
    tokens = TEXT.encode(TEXT.data)[:60].reshape(2, 30)
    before = Memory(model)
    forward(layers, parameters, model, tokens[:, :17], before)

    def computed(parameters):
        return compute(parameters, tokens[:, 17:], Memory(model, before.layers()) if streamed else None)

    def penalised(parameters):
        result = computed(parameters)
        return result.nats + (0.01 * result.spans.mean() if change.get("span_kind") != "fixed" else 0)

    gradients = computed(parameters).gradients
    rng = np.random.default_rng(2)
    for name, array in parameters.items():
        direction, step = rng.standard_normal(array.shape), 1e-6
        up, down = (penalised(parameters | {name: array + sign * step * direction}) for sign in (1, -1))
        slope = (gradients[name] * direction).sum()
        assert (up - down) / (2 * step) == pytest.approx(slope, rel=1e-4, abs=1e-7), name


def test_dynamic_spans_are_those_of_the_paper():
    model = small_model(TEXT, span_kind="dynamic")
    parameters = drawn(model)
    tokens = TEXT.encode(TEXT.data)[None, :40]
    spans = lm.spans(parameters, model, tokens)
    x = layers.rms_norm(parameters["embedding"][tokens], parameters["0.attention_gain"])
    first = hs.dynamic_span(x, parameters["span_weight"][0], parameters["span_bias"][0], model.span_limit)
    np.testing.assert_allclose(spans[0], first, rtol=1e-12)
    assert spans.shape == (2, 1, 2, 40)
    assert np.ptp(spans, axis=-1).min() > 1
    at_first = lm.spans(lm.init_parameters(model, 0), model, tokens)
    np.testing.assert_allclose(at_first, model.span_init, rtol=1e-5)
    for kind in ("adaptive", "fixed"):
        constant = small_model(TEXT, span_kind=kind)
        assert np.unique(lm.spans(lm.init_parameters(constant, 0), constant, tokens)).tolist() == [constant.span_init]


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["adaptive", "dynamic"])
def test_heads_start_apart_and_wait(tmp_path, kind):
    changes = {"heads": 4, "span_init": 2, "span_spread": 64, "span_limit": 100, "span_kind": kind}
    model = small_model(TEXT, **changes)
    tokens = TEXT.encode(TEXT.data)[None, :5]
    first = lm.spans(lm.init_parameters(model, 0), model, tokens)[..., 0]
    np.testing.assert_allclose(first[:, 0], [[2, 8, 32, 100 if kind == "adaptive" else 99]] * 2, rtol=1e-5)
    run = small_run(tmp_path / "run", TEXT, dataclasses.replace(STREAM, span_delay=4), **changes)
    train(run, TEXT, steps=4)
    span_names = [name for name in run.load().parameters if name.startswith("span")]
    start = lm.init_parameters(model, 0)
    assert all(np.array_equal(run.load().parameters[name], start[name]) for name in span_names)
    train(run, TEXT)
    assert not any(np.array_equal(run.load().parameters[name], start[name]) for name in span_names)
    write_report(run, TEXT)
    page = re.sub("<[^>]*>", "", (run.path / "report.html").read_text())
    assert kind == "dynamic" or "learned spans from 0 to 100 characters, initially 2 to 100" in page


def test_a_stream_continues_every_row():
    tokens = TEXT.encode(TEXT.part("train"))
    batches = [draw_batch(tokens, STREAM, step) for step in range(400)]
    for one, other in itertools.pairwise(batches):
        assert np.array_equal(one[:, -1], other[:, 0])
    rows = np.concatenate([batch[:, :-1] for batch in batches], axis=1)
    assert rows.shape[1] > len(tokens)  # it begins again
    for row in rows:
        doubled = np.concatenate([tokens] * 3)
        start = np.flatnonzero([np.array_equal(doubled[i : i + 300], row[:300]) for i in range(len(tokens))])
        assert any(np.array_equal(doubled[i : i + len(row)], row) for i in start)
    other = draw_batch(tokens, dataclasses.replace(STREAM, seed=1), 0)
    assert not np.array_equal(other, batches[0])


def test_models_are_validated_on_the_same_characters_however_far_they_look():
    """Models that see only one character have the same bits, whatever windows they read."""
    text = small_text(20_000)
    tokens = text.encode(text.part("validation"))
    bits = []
    for limit in (0, 5, 30):
        model = small_model(text, span_limit=limit, span_init=0, ramp=0)
        state = initial_state(model, 0)
        bits += [sample_bits(state, model, tokens, dataclasses.replace(STREAM, batches=b)) for b in BATCHES]
    np.testing.assert_allclose(bits, bits[0], rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_was_stopped_goes_on_as_if_it_was_not(tmp_path, kind):
    straight, stopped = (small_run(tmp_path / n, TEXT, STREAM, taps=2, **KINDS[kind]) for n in ("straight", "stopped"))
    train(straight, TEXT)
    train(stopped, TEXT, steps=3)
    again = Run.open(stopped.path)
    train(again, TEXT)
    one, other = straight.load(), again.load()
    for group in ("parameters", "memory"):
        pairs = zip(*(vars(state)[group] for state in (one, other)), strict=True)
        if group == "parameters":
            pairs = [(one.parameters[name], other.parameters[name]) for name in one.parameters]
        assert all(np.array_equal(*pair) for pair in pairs)
    assert [r["spans"] for r in straight.metrics()] == [r["spans"] for r in again.metrics()]
    assert [r["validation"] for r in straight.metrics()[1::2]] == [r["validation"] for r in again.metrics()[1::2]]


def test_a_memory_of_another_model_is_refused(tmp_path):
    run = small_run(tmp_path / "run", TEXT, STREAM)
    train(run, TEXT, steps=2)
    state = run.load()
    state.memory = state.memory[:1]
    run.save(state)
    with pytest.raises(ValueError, match="it holds a memory of another model"):
        train(run, TEXT)


@pytest.mark.thorough
@pytest.mark.parametrize("batches", ["stream", "windows"])
def test_the_report_of_dynamic_spans(tmp_path, batches):
    training = dataclasses.replace(STREAM, batches=batches)
    run = small_run(tmp_path / "run", TEXT, training, span_kind="dynamic")
    train(run, TEXT)
    state, model = run.load(), small_model(TEXT, span_kind="dynamic")
    validation = TEXT.encode(TEXT.part("validation"))
    spans = spans_in_window(state.parameters, model, training, validation)
    earlier = training.earlier(model)
    assert spans.shape == (2, 2, 12)
    for baseline in baselines_of(run, state, TEXT):
        train_baseline(run, TEXT, baseline)
    summary = write_report(run, TEXT, png=tmp_path / "png")
    assert summary["kind of spans"] == "dynamic"
    learned, full, window = summary["compared"].values()
    assert learned["pairs in a window"] == pairs_in_window(spans, 4, 12, earlier) <= window["pairs in a window"]
    assert full["pairs in a window"] == 4 * (12 * (earlier + 1) if earlier else 78)
    test = TEXT.encode(TEXT.part("test"))
    assert summary["test bits per character"] == pytest.approx(
        text_bits(state.parameters, model, training, test).mean(), rel=1e-6
    )
    page = re.sub("<[^>]*>", "", (run.path / "report.html").read_text())
    assert "Which characters have long spans?" in page
    assert "spans from 0 to 32 characters, predicted by each character, initially 8" in page
    assert ("see up to 35 earlier characters" in page) == (batches == "stream")
    assert (tmp_path / "png" / "opened.png").exists()
    loaded = hs.lab.load_run(run.path)
    words = "the head that looks far"
    means = lm.spans(loaded.weights, loaded.model, loaded.encode(words)[None]).mean((1, 3))
    np.testing.assert_allclose(loaded.trace(words)["span"], means.ravel(), rtol=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_with_weights_that_are_not_finite_is_reported(tmp_path, kind):
    run = small_run(tmp_path / "run", TEXT, STREAM, **KINDS[kind])
    train(run, TEXT, steps=2)
    state = current_state(run, small_model(TEXT, **KINDS[kind]), 0)
    state.parameters["gain"][0] = np.nan
    run.save(state)
    assert write_report(run, TEXT)["test bits per character"] is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_diverges_ends(tmp_path, kind):
    wild = dataclasses.replace(STREAM, learning_rate=1e30)
    run = small_run(tmp_path / "run", TEXT, wild, **KINDS[kind])
    assert train(run, TEXT) == "diverged"
    write_report(run, TEXT)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: small_model(TEXT, span_kind="learned"),
            "span_kind must be one of .*, 'fixed', not 'le",
        ),
        (lambda: small_model(TEXT, span_spread=0.5), "span_spread must be at least 1, not 0.5"),
        (
            lambda: small_model(TEXT, span_kind="fixed", span_spread=2),
            "span_spread must be 1 if spans are fixed, not",
        ),
        (lambda: small_model(TEXT, taps=0), "taps must be at least 1, not 0"),
        (lambda: dataclasses.replace(TRAINING, batches="documents"), "batches must be one of .*, not 'do"),
    ],
)
def test_unknown_kinds_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
