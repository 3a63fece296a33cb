"""A run that was loaded to look into."""

import inspect
import json
import re

import headspan as hs
import numpy as np
import pytest
from headspan.lab import lm, train
from lm_helpers import TRAINING, small_run, small_text

TEXT = small_text()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    run = small_run(tmp_path_factory.mktemp("loaded") / "run", TEXT)
    train(run, TEXT)
    return run


def test_it_has_configuration_weights_and_history(run):
    loaded = hs.lab.load_run(str(run.path))
    assert loaded.config == json.loads((run.path / "config.json").read_text())
    assert (loaded.path, loaded.training) == (run.path, TRAINING)
    assert re.fullmatch(r"LoadedRun\(path='.*/run', layers=\d+, heads=\d+, width=\d+, step=8\)", repr(loaded))
    saved = run.load().parameters
    assert loaded.weights.keys() == saved.keys()
    assert all(np.array_equal(loaded.weights[name], saved[name]) for name in saved)
    tokens = loaded.encode("the head")
    assert loaded.vocabulary[tokens].tobytes() == b"the head"
    assert lm.logits(loaded.weights, loaded.model, tokens[None]).shape == (1, 8, len(TEXT.vocabulary))
    rows = run.metrics()
    assert loaded.history["step"].tolist() == [2, 4, 6, 8]
    assert loaded.history["bits"].tolist() == [row["bits"] for row in rows]
    assert loaded.history["spans"].tolist() == [row["spans"] for row in rows]
    assert np.isnan(loaded.history["validation"]).tolist() == [True, False, True, False]
    axes = hs.plot.span_history(loaded.history["step"], loaded.history["spans"])
    assert axes.lines


def test_rows_that_the_weights_do_not_know_are_left_out_and_a_run_not_begun_has_its_first_weights(tmp_path):
    run = small_run(tmp_path / "run", TEXT)
    loaded = hs.lab.load_run(run.path)
    assert loaded.history["spans"].shape == (0, 2, 2)
    assert np.array_equal(loaded.weights["head"], lm.init_parameters(loaded.model, TRAINING.seed)["head"])
    train(run, TEXT, steps=4)
    run.add_metrics({**run.metrics()[-1], "step": 6})
    assert hs.lab.load_run(run.path).history["step"].tolist() == [2, 4]


def test_a_trace_is_what_the_model_computes(run):
    loaded = hs.lab.load_run(run.path)
    words = "the head that looks é near"
    seen = loaded.trace(words)
    layers = lm.trace(loaded.weights, loaded.model, loaded.encode(words)[None])
    for i, name in enumerate(("query", "key", "value")):
        assert np.array_equal(seen[name].reshape(2, 2, *seen[name].shape[1:]), [layer[i][0] for layer in layers])
    assert "".join(seen["tokens"]) == "the head that looks \u00b7\u00b7 near"
    assert np.array_equal(seen["span"], loaded.weights["span"].ravel())
    assert (seen["ramp"], seen["unit"]) == (4, "characters")
    assert loaded.trace(words.encode())["tokens"] == seen["tokens"]


def test_a_trace_goes_straight_into_explore(run):
    pytest.importorskip("anywidget", reason="needs anywidget: pip install '.[widget]'")
    seen = hs.lab.load_run(run.path).trace("the head that looks far")
    view = hs.explore(**seen)
    assert view.span == np.minimum(seen["span"], 23).tolist()
    assert (view.meta["tokens"], view.meta["unit"]) == (seen["tokens"], "characters")
    assert view.meta["names"] == ["layer 0, head 0", "layer 0, head 1", "layer 1, head 0", "layer 1, head 1"]
    assert seen.keys() <= inspect.signature(hs.explore).parameters.keys()


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("", ValueError, "text must contain at least one character, got none"),
        (5, TypeError, "text must be str or bytes, not 5"),
        ("the Q", ValueError, "text must only contain characters of the text of the run, not 'Q'"),
        ("the ü", ValueError, "text must only contain characters of the text of the run, not 'ü'"),
        (b"the \xfe", ValueError, "text must only contain characters of the text of the run, not the byte 0xfe"),
    ],
)
def test_a_text_the_model_cannot_read(run, text, error, message):
    with pytest.raises(error, match=re.escape(message)):
        hs.lab.load_run(run.path).trace(text)


@pytest.mark.parametrize("vocabulary", [None, [1, 2], [5] * len(TEXT.vocabulary), [300] * len(TEXT.vocabulary), "abc"])
def test_a_vocabulary_that_is_none(tmp_path, vocabulary):
    run = small_run(tmp_path / "run", TEXT)
    run.config["text"]["vocabulary"] = vocabulary
    (run.path / "config.json").write_text(json.dumps(run.config))
    with pytest.raises(ValueError, match=r"config\.json does not describe a run: vocabulary must "):
        hs.lab.load_run(run.path)


def test_what_is_no_run(tmp_path):
    with pytest.raises(ValueError, match=r"absent is not an existing run folder"):
        hs.lab.load_run(tmp_path / "absent")
    with pytest.raises(TypeError, match="path must be a run folder such as 'runs/demo-001', not 3"):
        hs.lab.load_run(3)
