"""Training: equal numbers when it goes on, whole files, and clean ends."""

import dataclasses
import hashlib
import itertools
import json
import math
import os
import signal
import sysconfig
from pathlib import Path

import numpy as np
import pytest
from headspan.lab import TrainConfig, as_config
from headspan.lab import text as _text
from headspan.lab.lm import ModelConfig
from headspan.lab.runs import Run, RunError, next_folder, replace_file
from headspan.lab.runs.optimizer import Adam, schedule
from headspan.lab.training.start import initial_state
from headspan.lab.training.train import _Trainer, draw_batch, train
from lm_helpers import TRAINING, small_model, small_run, small_text


def arrays(run):
    with np.load(run.path / "weights.npz", allow_pickle=False) as file:
        return {name: file[name] for name in file.files if name != "seconds"}


def rows_without_time(run):
    return [{key: value for key, value in row.items() if key != "seconds"} for row in run.metrics()]


@pytest.mark.parametrize("pause", [1, 3, 4, 7])
def test_a_run_that_goes_on_equals_one_that_never_stopped(tmp_path, pause):
    text = small_text()
    straight, stopped = small_run(tmp_path / "straight", text), small_run(tmp_path / "stopped", text)
    assert train(straight, text) == "finished"
    assert train(stopped, text, steps=pause) == "paused"
    assert stopped.load().step == pause
    assert train(Run.open(stopped.path), text) == "finished"
    assert rows_without_time(straight) == rows_without_time(stopped)
    expected, actual = arrays(straight), arrays(stopped)
    assert expected.keys() == actual.keys()
    assert all(np.array_equal(expected[name], actual[name]) for name in expected)


def test_rows_that_the_weights_do_not_know_are_dropped(tmp_path):
    text = small_text()
    straight, killed = small_run(tmp_path / "straight", text), small_run(tmp_path / "killed", text)
    train(straight, text)
    train(killed, text, steps=4)
    killed.add_metrics({**killed.metrics()[-1], "step": 6})
    with (killed.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 8, "bi')
    train(killed, text)
    assert rows_without_time(straight) == rows_without_time(killed)


def test_the_loss_falls_and_spans_stay_within_their_limit(tmp_path):
    text = small_text()
    training = dataclasses.replace(TRAINING, steps=60, learning_rate=1e-2, span_rate=9.0, log_every=4)
    run = small_run(tmp_path / "run", text, training)
    train(run, text)
    rows = run.metrics()
    assert rows[-1]["bits"] < rows[0]["bits"] - 0.5
    assert rows[-1]["validation"] < rows[0]["validation"] - 0.5
    spans = np.array([row["spans"] for row in rows])
    assert spans.min() >= 0
    assert spans.max() <= 32
    assert np.ptp(spans) > 4


@pytest.mark.unsanitized
def test_heads_part_from_where_they_start(tmp_path):
    """Most characters are the one 20 back, which the default spans see at their soft edge: some heads grow to it."""
    rng = np.random.default_rng(0)
    letters = rng.integers(97, 105, 20_000, dtype=np.uint8)
    for t in np.flatnonzero(rng.random(letters.size - 20) < 0.95) + 20:
        letters[t] = letters[t - 20]
    text = _text.Text.from_bytes(letters.tobytes(), "letters")
    model = ModelConfig(len(text.vocabulary), layers=2, heads=2, width=32, hidden=32)
    training = TrainConfig(steps=200, batch=4, context=96, learning_rate=1e-2, warmup=20)
    run = Run.create(tmp_path / "run", as_config(model, training, text))
    train(run, text)
    spans = run.load().parameters["span"]
    assert spans.max() > ModelConfig.span_init + 2
    assert spans.min() < ModelConfig.span_init - 1


def test_the_penalty_shortens_spans(tmp_path):
    text = small_text()
    means = []
    for weight in (0.0, 10.0):
        training = dataclasses.replace(TRAINING, span_penalty=weight)
        run = small_run(tmp_path / f"run{weight}", text, training)
        train(run, text)
        means.append(run.load().parameters["span"].mean())
    assert means[1] < means[0] - 2


def test_ctrl_c_finishes_the_step_and_keeps_it(tmp_path):
    text = small_text()
    run = small_run(tmp_path / "run", text)
    before = signal.getsignal(signal.SIGINT)

    def interrupt(state, bits):
        if state.step == 3:
            os.kill(os.getpid(), signal.SIGINT)

    assert train(run, text, progress=interrupt) == "interrupted"
    assert run.load().step == 3
    assert signal.getsignal(signal.SIGINT) is before


def test_time_ends_training_cleanly(tmp_path):
    text = small_text()
    run = small_run(tmp_path / "run", text)
    assert train(run, text, minutes=0) == "out of time"
    assert run.load().step == 1


def test_a_loss_that_is_no_number_ends_training(tmp_path):
    text = small_text()
    run = small_run(tmp_path / "run", text, dataclasses.replace(TRAINING, learning_rate=1e20))
    assert train(run, text) == "diverged"
    assert run.load().step < TRAINING.steps
    assert all(np.isfinite(array).all() for array in run.load().parameters.values())


def test_bytes_that_never_occur_in_training_are_no_problem(tmp_path):
    text = small_text(tail=bytes(range(128, 250)))
    assert not np.isin(text.part("test"), text.part("train")).all()
    assert train(small_run(tmp_path / "run", text), text) == "finished"


def test_a_changed_text_is_refused(tmp_path):
    text = small_text()
    run = small_run(tmp_path / "run", text)
    with pytest.raises(RunError, match=r"small\.txt has changed since .*run was trained on it"):
        train(run, small_text(tail=b"x"))
    assert not (run.path / "weights.npz").exists()


def test_a_text_too_short_is_refused(tmp_path):
    text = small_text(size=70)
    with pytest.raises(RunError, match="has 70 bytes; a context of 32 needs at least 78"):
        train(small_run(tmp_path / "run", text), text)


def test_shortest_text_that_is_accepted_trains(tmp_path):
    text = small_text(size=78)
    assert train(small_run(tmp_path / "run", text), text) == "finished"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch": 0}, "batch must be at least 1, not 0"),
        ({"batch": 2.5}, "batch must be an integer, not 2.5"),
        ({"batch": 10**30}, r"a batch of shape \(1000.*, 33\) is too large for memory"),
        ({"steps": -1}, "steps must be at least 0, not -1"),
        ({"steps": 1.5}, "steps must be an integer, not 1.5"),
        ({"learning_rate": math.nan}, "learning_rate must be finite, not nan"),
        ({"learning_rate": math.inf}, "learning_rate must be finite, not inf"),
        ({"learning_rate": -1}, "learning_rate must be at least 0, not -1"),
        ({"evaluate_every": 5}, r"evaluate_every must be a multiple of log_every \(2\), not 5"),
    ],
)
def test_bad_training_options(change, message):
    with pytest.raises((ValueError, TypeError, MemoryError), match=message):
        dataclasses.replace(TRAINING, **change)


def test_adam_is_adam():
    rng = np.random.default_rng(0)
    value = rng.standard_normal(5)
    expected, m, v = value.copy(), 0, 0
    adam = Adam(beta1=0.9, beta2=0.98)
    for step in range(3):
        g = rng.standard_normal(5)
        adam.update({"w": value}, {"w": g}, step=step, rates={"w": 0.1}, decays={"w": 0.5})
        m, v = 0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g * g
        expected *= 1 - 0.1 * 0.5
        expected -= 0.1 * (m / (1 - 0.9 ** (step + 1))) / (np.sqrt(v / (1 - 0.98 ** (step + 1))) + 1e-8)
    assert np.allclose(value, expected, rtol=1e-12)


def test_rate_rises_then_falls():
    rates = [schedule(step, 100, 10) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == rates[9] == pytest.approx(1)
    assert all(later < earlier for earlier, later in itertools.pairwise(rates[10:]))
    assert 0 < rates[-1] < 0.01


def test_parts_cover_the_text_once():
    text = small_text()
    parts = [text.part(name) for name in ("train", "validation", "test")]
    assert np.array_equal(np.concatenate(parts), text.data)
    assert [len(part) for part in parts] == [3600, 200, 200]
    assert np.array_equal(text.vocabulary[text.encode(text.data)], text.data)


def test_standard_library_is_the_same_every_time_and_holds_no_tests():
    one, two = (_text.standard_library(200_000) for _ in range(2))
    assert one.sha256 == two.sha256
    assert 150_000 < len(one.data) <= 200_000
    folder = Path(sysconfig.get_paths()["stdlib"])
    sources = {name: (folder / name).read_bytes() for name in one.files}
    assert b"".join(sources.values()) == one.data.tobytes()
    assert {name: hashlib.sha256(source).hexdigest() for name, source in sources.items()} == one.files
    assert not _text._is_library_source(_text.Path("test/test_os.py"))
    assert not _text._is_library_source(_text.Path("site-packages/numpy/__init__.py"))
    assert _text._is_library_source(_text.Path("json/decoder.py"))


def test_baselines_of_known_texts():
    known = _text.baselines(bytes([1, 2, 3, 4]) * 5000)
    assert known["unigram entropy"] == pytest.approx(2)
    assert known["gzip -9"] < 0.1
    assert known["xz -9"] < 0.1
    noise = np.random.default_rng(0).integers(0, 256, 20_000, dtype=np.uint8).tobytes()
    assert 7.9 < _text.baselines(noise)["unigram entropy"] < 8 < _text.baselines(noise)["xz -9"]
    assert 8 < _text.baselines(noise)["gzip -9"] < 8.1


def test_a_run_folder_is_never_written_over(tmp_path):
    text = small_text()
    small_run(tmp_path / "run", text)
    with pytest.raises(RunError, match="already exists; choose another folder with --out"):
        small_run(tmp_path / "run", text)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "is not a run folder: it has no config.json"),
        ("{", "is not valid JSON"),
        ("[]", "was not written by this version"),
        ('{"format": 99}', "was not written by this version"),
    ],
)
def test_what_is_not_a_run_folder(tmp_path, content, message):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(RunError, match=message):
        Run.open(tmp_path)


def test_weights_that_cannot_be_read(tmp_path):
    run = small_run(tmp_path / "run", small_text())
    assert run.load() is None
    (run.path / "weights.npz").write_bytes(b"PK not a zip")
    with pytest.raises(RunError, match=r"weights\.npz cannot be read"):
        run.load()


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    replace_file(path, b"old")

    def full(*names):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_metrics_broken_in_the_middle_are_refused(tmp_path):
    run = small_run(tmp_path / "run", small_text())
    (run.path / "metrics.jsonl").write_text("broken\n" + json.dumps({"step": 2}) + "\n")
    with pytest.raises(RunError, match="line 1 is not valid JSON"):
        run.metrics()


def test_folders_are_numbered(tmp_path):
    assert next_folder(tmp_path, "demo").name == "demo-001"
    (tmp_path / "demo-001").mkdir()
    assert next_folder(tmp_path, "demo").name == "demo-002"


def test_time_goes_on_where_it_stopped(tmp_path):
    text = small_text()
    run = small_run(tmp_path / "run", text)
    train(run, text, steps=3)
    state = run.load()
    state.seconds = 1000.0
    run.save(state)
    assert train(run, text, minutes=10) == "finished"
    assert run.metrics()[-1]["seconds"] > 1000
    assert run.load().seconds > 1000


def test_weight_matrices_alone_decay():
    model = small_model(small_text())
    decays = _Trainer(model, TRAINING, initial_state(model, 0)).decays
    names = ("query", "key", "value", "project", "expand", "contract")
    matrices = {"head", *(f"{layer}.{name}" for layer in range(2) for name in names)}
    assert decays == {name: 0.1 if name in matrices else 0.0 for name in decays}


def test_the_penalty_is_no_part_of_the_bits(tmp_path):
    text, bits = small_text(), []
    for weight in (0.0, 10.0):
        training = dataclasses.replace(TRAINING, span_penalty=weight, span_rate=0.0)
        run = small_run(tmp_path / f"run{weight}", text, training)
        train(run, text)
        bits.append([row["bits"] for row in run.metrics()])
    assert bits[0] == pytest.approx(bits[1], abs=1e-3)


def test_batches_follow_from_the_seed_and_the_step():
    drawn = [
        draw_batch(np.arange(4000), dataclasses.replace(TRAINING, seed=seed), step)
        for seed in (0, 1)
        for step in (0, 1)
    ]
    assert all((one == two).all() == (i == j) for i, one in enumerate(drawn) for j, two in enumerate(drawn))
