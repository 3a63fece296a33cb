"""A run folder that something else has written to: one sentence says what is wrong, and the folder stays as it was."""

import io
import json
import shutil

import numpy as np
import pytest
from headspan.lab import cli, train
from headspan.lab.text import read_text
from lm_helpers import small_run, small_text


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    folder = tmp_path_factory.mktemp("begun")
    (folder / "text.txt").write_bytes(small_text(2000).data.tobytes())
    text = read_text(folder / "text.txt")
    train(small_run(folder / "run", text), text, steps=2)
    return folder


@pytest.fixture
def folder(begun, tmp_path, monkeypatch):
    shutil.copytree(begun, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def content(name, data):
    return lambda run: (run / name).write_bytes(data)


def row(**changes):
    good = {"step": 2, "bits": 6.0, "spans": [[8.0, 8.0], [8.0, 8.0]]}
    return content("metrics.jsonl", json.dumps(good | changes).encode())


def config(**groups):
    def change(run):
        path = run / "config.json"
        old = json.loads(path.read_text())
        new = {name: old[name] | group if isinstance(group, dict) else group for name, group in groups.items()}
        path.write_text(json.dumps(old | new))

    return change


def weights(name, array):
    def change(run):
        with np.load(run / "weights.npz") as file:
            arrays = dict(file) | {name: array}
        np.savez(run / "weights.npz", **{name: array for name, array in arrays.items() if array is not None})

    return change


def unknown_compression(run):
    data = bytearray((run / "weights.npz").read_bytes())
    data[data.index(b"PK\1\2") + 10] = 99
    (run / "weights.npz").write_bytes(data)


def spans(*shape, value=8.0):
    return np.full(shape, value, np.float32)


ONE_ARRAY = io.BytesIO()
np.save(ONE_ARRAY, np.ones(3))
UNREADABLE = "run/weights.npz cannot be read as the weights of a run"
UNFIT = "run/weights.npz does not fit config.json: "
NO_RUN = "run/config.json does not describe a run: "
NO_ROW = "run/metrics.jsonl, line 1 is not a row of the metrics: "
SPAN = "span must be float32 of shape (2, 2), not "
BROKEN = {
    "weights of no bytes": (content("weights.npz", b""), UNREADABLE),
    "weights cut short": (content("weights.npz", b"PK\3\4 and no more"), UNREADABLE),
    "one array": (content("weights.npz", ONE_ARRAY.getvalue()), UNREADABLE),
    "an archive of an unknown kind": (unknown_compression, UNREADABLE),
    "no step": (weights("step", None), UNREADABLE),
    "two steps": (weights("step", np.array([1, 2])), UNREADABLE),
    "half a step": (weights("step", np.array(1.5)), UNREADABLE),
    "words for bits": (weights("recent", np.array(["a"])), UNREADABLE),
    "no spans": (weights("parameter/span", None), UNFIT + SPAN + "absent"),
    "spans of three layers": (weights("parameter/span", spans(3, 2)), UNFIT + SPAN + "float32 of shape (3, 2)"),
    "spans of twice the bits": (weights("parameter/span", np.ones((2, 2))), UNFIT + SPAN + "float64 of shape (2, 2)"),
    "a span below 0": (weights("parameter/span", spans(2, 2, value=-1)), "run/weights.npz holds a span below 0"),
    "an array too many": (
        weights("parameter/bias", spans(2)),
        UNFIT + "bias must be absent, not float32 of shape (2,)",
    ),
    "no running mean": (weights("mean/1.query", None), UNFIT + "1.query must be float32 of shape (16, 16), not absent"),
    "one layer more": (config(model={"layers": 3}), UNFIT + "span must be float32 of shape (3, 2), not"),
    "layers that are no integer": (config(model={"layers": 2.0}), NO_RUN + "layers must be an integer, not 2.0"),
    "another vocabulary": (
        config(model={"vocabulary": 5}),
        "run/config.json does not fit its text: vocabulary must be",
    ),
    "an unknown option": (config(training={"colour": 5}), NO_RUN),
    "a model that is a list": (config(model=[]), NO_RUN + "it has no model"),
    "no text": (config(text=None), NO_RUN + "it has no text"),
    "a row that is a list": (content("metrics.jsonl", b"[1, 2]\n"), NO_ROW + "it must be an object, not [1, 2]"),
    "a row without a step": (content("metrics.jsonl", b"{}\n"), NO_ROW + "step must be an integer, not None"),
    "bits that are a word": (row(bits="few"), NO_ROW + "bits must be a number, not 'few'"),
    "no bits": (row(bits=None), NO_ROW + "bits must be a number, not None"),
    "validation that is a list": (row(validation=[]), NO_ROW + "validation must be a number, not []"),
    "spans of one layer": (row(spans=[[8.0, 8.0]]), NO_ROW + "spans must be numbers of shape (2, 2), not"),
    "uneven spans": (row(spans=[[8.0, 8.0], [8.0]]), NO_ROW + "spans must be an array of numbers, not a nested list"),
    "metrics that are no text": (content("metrics.jsonl", b"\xff\0\n\xfe"), "run/metrics.jsonl cannot be read as text"),
}


@pytest.mark.parametrize("command", [["report", "run"], ["train", "text.txt", "--resume", "run"]])
@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_named(folder, capsys, name, command):
    change, message = BROKEN[name]
    change(folder / "run")
    refused(folder, capsys, command, message)


@pytest.mark.parametrize("path", [5, "", "a\0b", ["text.txt"]])
def test_a_text_at_no_path(folder, capsys, path):
    config(text={"path": path})(folder / "run")
    refused(folder, capsys, ["report", "run"], "config.json does not name the text that the run was trained on")


def test_training_does_not_go_on_from_spans_that_are_not_finite(folder, capsys):
    weights("parameter/span", spans(2, 2, value=np.nan))(folder / "run")
    refused(folder, capsys, ["train", "--resume", "run"], "run/weights.npz holds spans that are not finite")


def refused(folder, capsys, command, message):
    before = {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")}
    assert cli.main(command) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("headspan")]
    assert line.startswith(f"headspan: error: {message}")
    assert {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")} == before
