"""The run that comes with the package."""

import json

import numpy as np
import pytest
from headspan.lab import cli, load_run
from lm_helpers import error_of


def test_the_report_of_the_example_is_written_and_the_run_can_be_used(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):  # the second call finds the folder of the first one
        assert cli.main(["report", "--example"]) == 0
        assert "report: runs/example/report.html" in capsys.readouterr().out
    run = load_run("runs/example")
    summary = json.loads((tmp_path / "runs/example/summary.json").read_text())
    assert summary["finished"] is True
    assert summary["warnings"] == summary["notes"] == []
    np.testing.assert_allclose(summary["spans"], run.weights["span"])
    assert run.weights["span"].max() > 2 * run.weights["span"].min()
    assert summary["test bits per character"] < summary["xz -9, bits per character"]
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["example"]


def test_another_folder_of_that_name_is_left_alone(folder, capsys):
    (folder / "runs/example").mkdir(parents=True)
    assert cli.main(["report", "--example"]) == 1
    assert error_of(capsys) == "headspan: error: runs/example is not the example run; rename the folder"


def test_report_takes_a_run_or_the_example(capsys):
    for arguments in (["report"], ["report", "run", "--example"]):
        with pytest.raises(SystemExit):
            cli.main(arguments)
        assert "report requires either RUN or --example" in capsys.readouterr().err
