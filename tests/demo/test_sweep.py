"""Grids of runs: their plan, their table, and that an interrupted sweep gets the numbers of an uninterrupted one."""

import datetime
import json
import shutil
import signal
import subprocess
import sys

import headspan as hs
import numpy as np
import pytest
from filelock import FileLock
from headspan.lab import TrainConfig, cli, lm
from headspan.lab.runs import Run, RunError
from headspan.lab.sweep.grid import read_plan
from headspan.lab.sweep.work import Sweep
from headspan.lab.training.train import text_bits
from lm_helpers import error_of, small_text, written

SHARED = """
[model]
layers = 2
heads = 2
width = 8
hidden = 8
ramp = 4

[training]
steps = 6
batch = 2
context = 24
warmup = 2
span_rate = 3.0
log_every = 2
evaluate_every = 4
"""
KINDS = """
[grid]
seed = [0, 1]
span_limit = [12, 20]

[[kinds]]
name = "adaptive"
span_init = 4

[[kinds]]
name = "by characters"
span_kind = "dynamic"
span_init = 4

[[kinds]]
name = "full"
span_kind = "fixed"
span_init = "span_limit"

[[kinds]]
name = "window"
equal_cost_to = "adaptive"

[[kinds]]
name = "window for characters"
equal_cost_to = "by characters"
"""
TEXT = 'text = "text.txt"\n'


def numbers(folder):
    """Return the numbers of a sweep by the names of the runs, except those of the clock."""
    runs = json.loads((folder / "results.json").read_text())["runs"]
    return {run["run"]: {k: v for k, v in run.items() if not k.startswith("seconds")} for run in runs}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A sweep of two limits, five kinds and two seeds, done in one go."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "text.txt").write_bytes(small_text(2000).data.tobytes())
    path = written(folder, TEXT + SHARED + KINDS)
    assert cli.main(["sweep", str(path), "--out", str(folder / "runs")]) == 0
    return folder


def test_every_run_is_in_the_table_and_each_number_is_that_of_its_weights(finished):
    results = numbers(finished / "runs")
    assert len(results) == 2 * 2 * 5
    text = small_text(2000)
    for name, result in results.items():
        run = Run.open(finished / "runs" / name)
        model, training = lm.ModelConfig(**run.config["model"]), TrainConfig(**run.config["training"])
        parameters = run.load().parameters
        bits = text_bits(parameters, model, training, text.encode(text.part("test")))
        assert result["test bits per character"] == pytest.approx(bits.mean(), rel=1e-6)
        assert (result["training"]["seed"], result["grid"]["seed"]) == (training.seed, training.seed)
        assert result["sha256"] == text.sha256
        assert result["step"] == 6
        assert result["parameters"] == sum(array.size for array in parameters.values())
        spans = np.array(result["spans"])
        assert spans.shape == (2, 2)
        assert spans.mean() == pytest.approx(result["mean span"], abs=1e-3)
        if model.span_kind != "dynamic":
            distance = np.arange(24)[:, None] - np.arange(24)
            seen = [(hs.soft_mask(distance, span, model.ramp) * np.tri(24) > 0).sum() for span in spans.ravel()]
            assert result["pairs a character"] == pytest.approx(sum(seen) / 24)
            assert result["attention FLOPs a character"] == pytest.approx(sum(seen) / 24 * 4 * 4)
    table = (finished / "runs/table.md").read_text().split("## Learned")[0]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")]
    for kind in ("adaptive", "by characters", "full", "window", "window for characters"):
        for limit in (12, 20):
            of_both = [results[f"{kind.replace(' ', '-')}-seed{seed}-limit{limit}"] for seed in (0, 1)]
            bits = [result["test bits per character"] for result in of_both]
            (row,) = [row for row in rows if row[:3] == [f"| {kind}", str(limit), "2"]]
            assert row[3] == f"{np.mean(bits):.4f} ({min(bits):.4f} to {max(bits):.4f})"
    assert {"limits.svg", "spans.svg", "history.svg"} <= {path.name for path in (finished / "runs").iterdir()}


def test_results_name_the_machine_the_versions_the_date_and_the_files_of_the_text(finished):
    for result in numbers(finished / "runs").values():
        machine = result["machine"]
        assert machine["cpu"]
        assert machine["threads"] == hs.get_num_threads()
        assert machine["versions"].items() >= {"headspan": hs.__version__, "numpy": np.__version__}.items()
        assert datetime.date.fromisoformat(machine["date"])
        files = json.loads((finished / "runs/texts.json").read_text())[result["sha256"]]
        assert files == {"text.txt": result["sha256"]}


@pytest.mark.parametrize(("window", "learned"), [("window", "adaptive"), ("window-for-characters", "by-characters")])
def test_a_window_of_equal_cost_is_the_smallest_with_as_many_pairs(finished, window, learned):
    results = numbers(finished / "runs")
    for seed in (0, 1):
        for limit in (12, 20):
            fixed_run, learned_run = (results[f"{kind}-seed{seed}-limit{limit}"] for kind in (window, learned))
            model = fixed_run["model"]
            assert (model["span_kind"], model["ramp"], fixed_run["equal cost to"]) == ("fixed", 0, learned_run["run"])
            wide = model["span_init"]
            one_less = 4 * (np.tri(24) - np.tri(24, k=-wide)).sum() / 24
            assert one_less < learned_run["pairs a character"] <= fixed_run["pairs a character"]
            assert {**fixed_run["training"]} == {**learned_run["training"]}


def test_learned_spans_are_compared_with_fixed_ones_seed_by_seed(finished):
    sweep = numbers(finished / "runs")
    table = (finished / "runs/table.md").read_text().split("## Learned")[1]
    rows = [tuple(line.strip("| ").split(" | ")) for line in table.splitlines() if line.startswith("| ")][2:]
    kinds = (("adaptive", "full"), ("adaptive", "window"), ("by characters", "full"))
    kinds += (("by characters", "window for characters"),)
    assert sorted(row[:3] for row in rows) == sorted((a, limit, b) for a, b in kinds for limit in ("12", "20"))
    for learned, limit, other, _, runs, share, gained in rows:
        of = [
            [sweep[f"{kind.replace(' ', '-')}-seed{seed}-limit{limit}"] for seed in (0, 1)] for kind in (learned, other)
        ]
        bits, pairs = (
            [[run[name] for run in runs] for runs in of] for name in ("test bits per character", "pairs a character")
        )
        differences, shares = np.subtract(bits[1], bits[0]), np.divide(*pairs)
        assert runs == "2"
        assert gained.startswith(f"{differences.mean():+.4f}")
        assert share.startswith(f"{shares.mean():.1%}")
        assert differences.min() == differences.max() or gained.endswith(
            f" ({differences.min():+.4f} to {differences.max():+.4f})"
        )


def test_the_mean_over_windows_of_the_text_counts_where_characters_predict_spans(finished):
    name = "by-characters-seed0-limit20"
    result, run = numbers(finished / "runs")[name], Run.open(finished / "runs" / name)
    model, text = lm.ModelConfig(**run.config["model"]), small_text(2000)
    tokens = text.encode(text.part("validation"))
    starts = np.linspace(0, len(tokens) - 24, 8).astype(int)
    spans = lm.spans(run.load().parameters, model, np.stack([tokens[start : start + 24] for start in starts]))
    seen = hs.soft_mask(np.arange(24)[:, None] - np.arange(24), spans[..., None], model.ramp) * np.tri(24) > 0
    assert result["pairs in a window"] == pytest.approx(seen.sum() / 8)
    assert result["mean span"] == pytest.approx(spans.mean(), rel=1e-5)


@pytest.mark.thorough
def test_an_interrupted_sweep_gets_the_same_numbers(finished, folder, capsys, monkeypatch):
    path = written(folder, TEXT + SHARED + KINDS)
    command = ["sweep", str(path)]
    assert cli.main([*command, "--minutes", "0"]) == 0
    printed = capsys.readouterr().out
    assert "the sweep ended early (out of time); unfinished runs: 20; continue with:" in printed
    assert f"  headspan sweep {path}\n" in printed
    assert numbers(folder / "runs/plan") == {}
    measured = []

    def interrupted(run, *rest):
        measured.append(run.path.name)
        if len(measured) == 3:
            raise KeyboardInterrupt
        return measure(run, *rest)

    with monkeypatch.context() as patch:
        from headspan.lab.sweep import work

        measure = work.numbers_of
        patch.setattr(work, "numbers_of", interrupted)
        assert cli.main(command) == 130
    assert list(numbers(folder / "runs/plan")) == measured[:2]
    assert "interrupted; continue the sweep with:\n  headspan sweep" in capsys.readouterr().out
    assert cli.main(command) == 0
    assert capsys.readouterr().err.lstrip("\r").startswith("3 of 20 ")
    assert numbers(folder / "runs/plan") == numbers(finished / "runs")
    assert (folder / "runs/plan/table.md").exists()


def test_a_finished_sweep_writes_its_table_again(finished, tmp_path, capsys):
    shutil.copytree(finished, tmp_path / "copy")
    folder = tmp_path / "copy/runs"
    # The clock is the only thing that differs from run to run, and these are the same runs.
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    for name in before:
        (folder / name).unlink()
    assert cli.main(["sweep", str(tmp_path / "copy/plan.toml"), "--out", str(folder)]) == 0
    assert "runs: 20, 20 of them finished" in capsys.readouterr().out
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


def test_ctrl_c_saves_the_run_and_says_how_to_go_on(folder):
    written(folder, TEXT + SHARED.replace("steps = 6", "steps = 1000000"))
    command = [sys.executable, "-m", "headspan_command", "sweep", "plan.toml"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    while b"bits/char" not in process.stderr.read1():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert b"ended early (interrupted); unfinished runs: 1; continue with:\n  headspan sweep plan.toml\n" in out
    assert Run.open(folder / "runs/plan/plan").load().step > 0


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (("span_rate = 3.0", "span_rate = 2.0"), "was run with span_rate 3.0, not 2.0, so"),
        (("span_init = 4", "span_init = 5"), "was run with span_init 4.0, not 5.0"),
        (("hidden = 8", "hidden = 16"), "was run with hidden 8, not 16"),
    ],
)  # fmt: skip
def test_runs_of_another_plan_are_refused(finished, tmp_path, capsys, changed, words):
    shutil.copytree(finished, tmp_path / "copy")
    path = written(tmp_path / "copy", (TEXT + SHARED + KINDS).replace(*changed))
    before = (tmp_path / "copy/runs/results.json").read_bytes()
    assert cli.main(["sweep", str(path), "--out", str(tmp_path / "copy/runs")]) == 1
    said = error_of(capsys)
    assert words in said
    assert "choose another folder with --out, or remove that one" in said
    assert (tmp_path / "copy/runs/results.json").read_bytes() == before


def test_runs_on_another_text_are_refused(finished, tmp_path, capsys):
    shutil.copytree(finished, tmp_path / "copy")
    (tmp_path / "copy/text.txt").write_bytes(small_text(2100).data.tobytes())
    assert cli.main(["sweep", str(tmp_path / "copy/plan.toml"), "--out", str(tmp_path / "copy/runs")]) == 1
    assert "was run on another text than text.txt is now" in error_of(capsys)


@pytest.mark.thorough
def test_seeds_can_be_added(finished, tmp_path, capsys):
    shutil.copytree(finished, tmp_path / "copy")
    path = written(tmp_path / "copy", (TEXT + SHARED + KINDS).replace("[0, 1]", "[0, 1, 2]"))
    assert cli.main(["sweep", str(path), "--out", str(tmp_path / "copy/runs")]) == 0
    assert "runs: 30, 20 of them finished" in capsys.readouterr().out
    results = numbers(tmp_path / "copy/runs")
    assert len(results) == 30
    assert numbers(finished / "runs").items() <= results.items()


def test_a_run_that_another_call_trains_is_left_alone(folder, capsys):
    path = written(folder, TEXT + SHARED + "[grid]\nseed = [0, 1]\n")
    assert cli.main(["sweep", str(path), "--minutes", "0"]) == 0
    capsys.readouterr()
    with FileLock(folder / "runs/plan/plan-seed0/.lock"):
        assert cli.main(["sweep", str(path)]) == 0
        assert "another call trains plan-seed0; when it has ended:\n  headspan sweep" in capsys.readouterr().out
        assert list(numbers(folder / "runs/plan")) == ["plan-seed1"]
    assert cli.main(["sweep", str(path)]) == 0
    assert list(numbers(folder / "runs/plan")) == ["plan-seed0", "plan-seed1"]


def test_a_run_that_diverges_is_reported_and_the_others_finish(folder, capsys):
    kinds = '[[kinds]]\nname = "learned"\n[[kinds]]\nname = "window"\nequal_cost_to = "learned"\n'
    path = written(folder, TEXT + SHARED + "[grid]\nlearning_rate = [1e30, 1e-3]\n" + kinds)
    for _ in range(2):  # it is not tried again
        assert cli.main(["sweep", str(path)]) == 1
        printed = capsys.readouterr()
        assert "the loss of learned-learning_rate1e+30 is no longer finite; windows of equal" in printed.err
    results = numbers(folder / "runs/plan")
    assert {name: result["outcome"] for name, result in results.items()} == {
        "learned-learning_rate1e+30": "diverged",
        "learned-learning_rate0.001": "finished",
        "window-learning_rate0.001": "finished",
    }
    diverged = results["learned-learning_rate1e+30"]
    assert (diverged["test bits per character"], diverged["mean span"], diverged["spans"]) == (None, None, None)
    assert "| learned | 1e+30 | 1 (1 diverged) |  |" in (folder / "runs/plan/table.md").read_text()


@pytest.mark.thorough
def test_several_texts_without_limits(folder, capsys):
    (folder / "other.txt").write_bytes(small_text(2400).data.tobytes())
    path = written(folder, SHARED + '[grid]\ntext = ["text.txt", "other.txt"]\nspan_penalty = [0.0, 0.5]\n')
    assert cli.main(["sweep", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "no limits.svg: it requires runs with two or more values of span_limit, above 0, in [grid]" in printed
    assert "spans.svg" not in printed
    assert list(numbers(folder / "runs/plan")) == [
        f"plan-{text}.txt-penalty{penalty}" for text in ("text", "other") for penalty in ("0", "0.5")
    ]
    assert not (folder / "runs/plan/limits.svg").exists()
    assert (folder / "runs/plan/spans.svg").exists()
    assert "| plan | other.txt | 0.5 | 1 |" in (folder / "runs/plan/table.md").read_text()


def test_limits_are_drawn_for_each_text(folder):
    (folder / "other.txt").write_bytes(small_text(2400).data.tobytes())
    fixed = SHARED.replace("ramp = 4", 'ramp = 0\nspan_kind = "fixed"\nspan_init = 4')
    path = written(folder, fixed + '[grid]\ntext = ["text.txt", "other.txt"]\nspan_limit = [8, 16]\n')
    assert cli.main(["sweep", str(path)]) == 0
    pictures = sorted(path.name for path in (folder / "runs/plan").glob("*.svg"))
    assert pictures == ["limits-other.txt.svg", "limits-text.txt.svg"]


def test_other_folders_and_files_are_left_alone(folder, capsys):
    path = written(folder, TEXT + SHARED)
    assert cli.main(["sweep", "absent.toml"]) == 1
    assert "absent.toml: No such file or directory" in error_of(capsys)
    assert cli.main(["sweep", str(path)]) == 0
    capsys.readouterr()
    assert cli.main(["sweep", str(path), "--out", "runs/plan/plan"]) == 1
    assert "runs/plan/plan is a run folder; choose another folder for the sweep with --out" in error_of(capsys)
    (folder / "runs/plan/plan/result.json").write_text("{")
    with pytest.raises(RunError, match=r"result\.json is not valid JSON; delete it to measure the run again"):
        Sweep(read_plan(path), folder / "runs/plan").results()
    (folder / "runs/plan/plan/result.json").unlink()
    before = numbers(folder / "runs/plan")
    assert cli.main(["sweep", str(path)]) == 0
    assert numbers(folder / "runs/plan") == before
