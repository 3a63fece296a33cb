"""Runs that are continued: by one process at a time, with the baselines that they have."""

import json
import os
import subprocess
import sys

import pytest
from headspan.lab import cli, train, write_report
from headspan.lab.runs import Run, RunLockedError
from headspan.lab.training.baselines import baselines_of, step_of, train_baseline
from lm_helpers import SIZES, error_of, small_run, small_text

TEXT = small_text()
HOLDER = """
import sys, time
from pathlib import Path
from headspan.lab.runs import Run
with Run.open(Path(sys.argv[1])).held():
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def run(folder):
    assert cli.main(["train", "text.txt", "--out", "run", "--minutes", "0", *SIZES]) == 0
    return Run.open(folder / "run")


def test_a_run_that_another_process_trains_is_refused_until_that_process_ends(run, folder, capsys):
    with subprocess.Popen([sys.executable, "-c", HOLDER, "run"], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        before = {path.name: path.read_bytes() for path in run.path.iterdir() if path.name != ".lock"}
        capsys.readouterr()
        for more in ((), ("--extend", "3")):
            assert cli.main(["train", "--resume", "run", *more]) == 1
            expected = f"headspan: error: run is being trained by process {process.pid}; wait until it ends"
            assert error_of(capsys) == expected
        assert {path.name: path.read_bytes() for path in run.path.iterdir() if path.name != ".lock"} == before
        process.kill()
    assert cli.main(["train", "--resume", "run"]) == 0
    assert step_of(run) == 5


def test_the_same_run_can_be_locked_again_but_not_another_of_the_same_folder(run):
    with run.held(), run.held():
        assert (run.path / ".process").read_text() == str(os.getpid())
        with (
            pytest.raises(RunLockedError, match=f"is being trained by process {os.getpid()}"),
            Run.open(run.path).held(),
        ):
            pass
    with Run.open(run.path).held():
        pass


def test_a_history_with_steps_that_were_trained_twice_is_read(run):
    spans = [[4.0] * run.config["model"]["heads"]] * run.config["model"]["layers"]
    rows = [(1, "first"), (2, "first"), (1, "second"), (3, "first"), (2, "second"), (3, "second"), (4, "second")]
    lines = [json.dumps({"step": step, "bits": 4.0, "spans": spans, "process": process}) for step, process in rows]
    (run.path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    assert [(row["step"], row["process"]) for row in run.metrics()] == [(step, "second") for step in (1, 2, 3, 4)]
    assert cli.main(["report", "run"]) == 0
    assert cli.main(["train", "--resume", "run"]) == 0
    assert [row["step"] for row in run.metrics()] == [1, 5]


def test_baselines_are_continued_with_their_run(run, folder, capsys):
    assert cli.main(["train", "--resume", "run", "--minutes", "0", "--baselines"]) == 0
    assert "  headspan train --resume run --baselines\n" in capsys.readouterr().out
    assert cli.main(["train", "--resume", "run", "--no-baselines", "--minutes", "0"]) == 0
    assert step_of(Run.open(run.path / "baselines/full")) == step_of(run) - 1 == 2
    assert cli.main(["train", "--resume", "run"]) == 0
    assert step_of(Run.open(run.path / "baselines/full")) == step_of(run) == 5
    assert len(json.loads((run.path / "summary.json").read_text())["compared"]) == 3


def test_the_report_names_baselines_with_another_number_of_steps(tmp_path):
    run = small_run(tmp_path / "run", TEXT)
    train(run, TEXT, steps=3)
    for baseline in baselines_of(run, run.load(), TEXT):
        train_baseline(run, TEXT, baseline)
    train(run, TEXT)
    write_report(run, TEXT, baselines_follow=True)
    page = (run.path / "report.html").read_text()
    assert "Full attention has been trained for 3 steps, not for 8, and cannot be compared." in page
    assert "characters has been trained for 3 steps, not for 8, and cannot be compared." in page
    assert '<p class="note">Full attention and a window of equal cost are being trained for comparison.' in page
    write_report(run, TEXT)
    assert 'class="note"' not in (run.path / "report.html").read_text()
