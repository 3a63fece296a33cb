"""Baselines: the same model with spans that are not learned, of equal cost, trained by the same plan and reported."""

import dataclasses
import json
import re
import shlex

import headspan as hs
import numpy as np
import pytest
from headspan.lab import cli, lm, train, write_report
from headspan.lab.report.compared import Compared, in_words
from headspan.lab.report.remarks import spans_at_zero
from headspan.lab.runs import Run, State
from headspan.lab.training.baselines import (
    baselines_of,
    pairs_in_window,
    run_of,
    step_of,
    train_baseline,
    window_of_equal_cost,
)
from lm_helpers import SIZES, TRAINING, small_model, small_run, small_text

TEXT = small_text()


@pytest.mark.parametrize("seed", range(20))
def test_a_window_of_equal_cost_is_the_smallest_that_computes_as_many_pairs(seed):
    rng = np.random.default_rng(seed)
    spans, ramp = rng.uniform(0, 80, (2, 3)) * (seed > 0), (0, 4.5)[seed % 2]
    masks = [hs.soft_mask(np.arange(50)[:, None] - np.arange(50), z, ramp) * np.tri(50) for z in spans.ravel()]
    pairs = sum(int((mask > 0).sum()) for mask in masks)
    assert pairs_in_window(spans, ramp, 50) == pairs
    window = window_of_equal_cost(spans, ramp, 50)
    counts = [6 * int((np.tri(50) - np.tri(50, k=-w - 1)).sum()) for w in range(50)]
    assert counts[window] >= pairs
    assert window == 0 or counts[window - 1] < pairs


def test_baselines_begin_alike_and_keep_their_spans(tmp_path):
    run = small_run(tmp_path / "run", TEXT)
    train(run, TEXT)
    for baseline, span in zip(baselines_of(run, run.load(), TEXT), (32, None), strict=True):
        assert run_of(run, baseline) is None
        assert train_baseline(run, TEXT, baseline) == "finished"
        baseline_run = run_of(run, baseline)
        assert "span" not in baseline_run.load().parameters
        spans = np.unique([row["spans"] for row in baseline_run.metrics()])
        assert (baseline_run.config["model"]["ramp"], step_of(baseline_run)) == (0, 8)
        if span is None:
            span = window_of_equal_cost(run.load().parameters["span"], 4, 32)
            assert baseline.name == f"a window of {span} characters"
        assert spans.tolist() == [span]
        assert [row["step"] for row in baseline_run.metrics()] == [2, 4, 6, 8]
    full = lm.ModelConfig(**run.config["model"])
    first = lm.init_parameters(full, TRAINING.seed)
    del first["span"]
    assert all(np.array_equal(first[name], lm.init_parameters(baseline.model, 0)[name]) for name in first)


def test_a_baseline_follows_a_run_that_was_extended(tmp_path):
    """The baseline equals a run of the same model that was trained and extended by the same steps."""
    run = small_run(tmp_path / "run", TEXT)
    train(run, TEXT, steps=6)
    run.extend(6, 3)
    train(run, TEXT)
    (full, _) = baselines_of(run, run.load(), TEXT)
    model = dataclasses.asdict(full.model)
    by_hand = small_run(tmp_path / "by hand", TEXT, TRAINING, **{k: v for k, v in model.items() if k != "vocabulary"})
    train(by_hand, TEXT, steps=6)
    by_hand.extend(6, 3)
    train(by_hand, TEXT)
    assert train_baseline(run, TEXT, full) == "finished"
    baseline_run = run_of(run, full)
    assert step_of(baseline_run) == 11
    assert all(np.array_equal(baseline_run.load().parameters[k], v) for k, v in by_hand.load().parameters.items())


@pytest.mark.thorough
def test_an_existing_baseline_continues_when_its_run_is_extended(tmp_path):
    run = small_run(tmp_path / "run", TEXT)
    train(run, TEXT)
    full, window = baselines_of(run, run.load(), TEXT)
    train_baseline(run, TEXT, full)
    before = run_of(run, full).load().parameters
    run.extend(8, 4)
    train(run, TEXT)
    assert write_report(run, TEXT)["compared"].keys() == {"learned spans"}  # the baseline had fewer steps
    assert "headspan train <span>--resume</span>" in (run.path / "report.html").read_text()
    assert train_baseline(run, TEXT, full) == "finished"
    baseline_run = run_of(run, full)
    assert (step_of(baseline_run), baseline_run.extensions()) == (12, [(8, 4)])
    assert not np.array_equal(baseline_run.load().parameters["head"], before["head"])
    assert window.folder.startswith("window-")


@pytest.mark.thorough
def test_a_run_that_ended_early_is_compared_at_its_own_step(tmp_path):
    run = small_run(tmp_path / "run", TEXT)
    train(run, TEXT, steps=3)
    for baseline in baselines_of(run, run.load(), TEXT):
        assert train_baseline(run, TEXT, baseline) == "paused"
        assert step_of(run_of(run, baseline)) == 3
        assert train_baseline(run, TEXT, baseline) == "paused"
        assert step_of(run_of(run, baseline)) == 3
    assert len(write_report(run, TEXT)["compared"]) == 3


def test_the_report_reads_the_weights_of_each_run_once(tmp_path, monkeypatch):
    run = small_run(tmp_path / "run", TEXT)
    train(run, TEXT, steps=3)
    full, window = baselines_of(run, run.load(), TEXT)
    train_baseline(run, TEXT, full)
    other = small_run(
        run.path / "baselines" / window.folder, TEXT, span_kind="fixed", span_init=window.model.span_init, ramp=0
    )
    train(other, TEXT, steps=2)
    read, load = [], Run.load
    monkeypatch.setattr(Run, "load", lambda self: read.append(self.path.name) or load(self))
    assert write_report(run, TEXT)["compared"].keys() == {"learned spans", "full attention"}
    assert sorted(read) == ["full", "run", window.folder]
    assert "trained for 2 steps, not for 3, and cannot be compared" in (run.path / "report.html").read_text()


def test_the_report_says_what_was_saved_and_what_it_cost(folder, capsys):
    assert cli.main(["train", "text.txt", "--out", "run", "--baselines", *SIZES]) == 0
    assert "full attention" in capsys.readouterr().err
    summary = json.loads((folder / "run/summary.json").read_text())
    page = re.sub("<[^>]*>", "|", (folder / "run/report.html").read_text())
    learned, full, window = summary["compared"].values()
    assert learned["bits per character"] == summary["test bits per character"]
    for name, numbers in summary["compared"].items():
        assert f"|{name}|" in page
        assert f"|{numbers['bits per character']:.3f}|" in page
        assert f"|{numbers['pairs in a window']:,}|" in page
    assert full["pairs in a window"] == summary["full pairs"] == 2 * 16 * 17 // 2
    assert learned["pairs in a window"] == summary["pairs"]  # one count, in both tables
    assert page.count(f"|{summary['pairs']:,}|") == page.count(f"|{summary['full pairs']:,}|") == 2
    assert learned["pairs in a window"] <= window["pairs in a window"] < learned["pairs in a window"] + 2 * 16
    window_run = Run.open(next((folder / "run/baselines").glob("window-*")))
    text = small_text(2000)
    test, model = text.encode(text.part("test")), lm.ModelConfig(**window_run.config["model"])
    bits = lm.surprisal(window_run.load().parameters, model, test, 16)
    assert window["bits per character"] == pytest.approx(bits.mean(), rel=1e-6)
    assert "The learned spans compute " in page


@pytest.mark.thorough
def test_baselines_of_an_existing_run(folder, capsys):
    cli.main(["train", "text.txt", "--out", "run", "--minutes", "0", *SIZES])
    assert "What do the savings cost?" not in (folder / "run/report.html").read_text()
    assert cli.main(["train", "--resume", "run", "--baselines", "--minutes", "0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (hint,) = [line for line in lines if line.startswith("  headspan") and "--baselines" in line]
    assert len(json.loads((folder / "run/summary.json").read_text())["compared"]) == 3
    assert cli.main(shlex.split(hint)[1:]) == 0
    compared = json.loads((folder / "run/summary.json").read_text())["compared"]
    assert len(compared) == 3
    assert "5 of 5 steps" in (folder / "run/report.html").read_text()
    assert step_of(Run.open(folder / "run/baselines/full")) == 5


@pytest.mark.thorough
def test_interrupted_baselines_continue_with_the_printed_command(folder, capsys, monkeypatch):
    begun = []

    def interrupted(run, text, baseline, progress):
        begun.append(baseline.name)
        return "interrupted"

    with monkeypatch.context() as patch:
        patch.setattr("headspan.lab.cli.commands.train_baseline", interrupted)
        assert cli.main(["train", "text.txt", "--out", "run", "--baselines", *SIZES]) == 0
    assert begun == ["full attention"]
    printed = capsys.readouterr().out
    assert "training was interrupted after 5 of 5 steps" in printed
    (hint,) = [line for line in printed.splitlines() if line.startswith("  headspan")]
    assert cli.main(shlex.split(hint)[1:]) == 0
    assert len(json.loads((folder / "run/summary.json").read_text())["compared"]) == 3


@pytest.mark.parametrize(
    ("bits", "other", "pairs", "words"),
    [
        (2.5, 2.4, 50, "compute 50.0% of the pairs of full attention and need 0.100 bits per character more."),
        (2.4, 2.5, 50, "compute 50.0% of the pairs of full attention and need 0.100 bits per character less."),
        (
            2.4,
            2.4002,
            50,
            "of the pairs of full attention and need the same number of bits per character.",
        ),
        (2.4, 2.5, 99.5, "compute as many pairs as full attention and need 0.100 bits per character less."),
        (np.nan, 2.5, 50, "and need a number of bits that is not finite and cannot be compared."),
    ],
)
def test_the_sentence_fits_every_result(bits, other, pairs, words):
    models = [Compared("learned spans", bits, pairs, 1), Compared("full attention", other, 100, 1)]
    (sentence,) = in_words(models)
    assert sentence.endswith(words)


def state_of(spans, step=1):
    return State({"span": np.array(spans, np.float32)}, None, step)


@pytest.mark.parametrize(
    ("change", "penalty", "words"),
    [
        ({}, 0, "With its soft edge alone, a head looks at most 4 characters back; a shorter edge .* `--ramp 1`"),
        ({}, 1.0, "try a smaller `--span-penalty`, such as 2e-06"),
        ({"span_limit": 0, "span_init": 0}, 0, "try a larger `--span-limit`"),
        ({"ramp": 0}, 0, "a head looks at most 0 characters back; .* try `--ramp 8`"),
    ],
)
def test_spans_that_all_ended_at_zero_are_reported(change, penalty, words):
    model, training = small_model(TEXT, **change), dataclasses.replace(TRAINING, span_penalty=penalty)
    assert re.search(words, spans_at_zero(model, training, state_of([[0, 0.4]])))
    for state in (state_of([[0, 0.5]]), state_of([[0, 0]], step=0), state_of([[0, np.nan]])):
        assert spans_at_zero(model, training, state) is None


@pytest.mark.thorough
def test_spans_that_were_not_learned_are_not_reported_at_zero(tmp_path):
    still = dataclasses.replace(TRAINING, span_rate=0.0)
    assert spans_at_zero(small_model(TEXT), still, state_of([[0, 0]])) is None
    assert spans_at_zero(small_model(TEXT, span_kind="fixed"), TRAINING, state_of([[0, 0]])) is None
    run = small_run(tmp_path / "run", TEXT, span_kind="fixed")
    write_report(run, TEXT)
    assert "fixed spans of 8 characters, soft edge (ramp) 4" in (run.path / "report.html").read_text()


@pytest.mark.thorough
def test_the_command_and_the_report_say_that_all_spans_ended_at_zero(folder, capsys):
    common = ["train", "text.txt", *SIZES, "--span-init", "0.2"]
    assert cli.main([*common, "--out", "nowhere", "--span-penalty", "1000"]) == 0
    said = capsys.readouterr().out.splitlines()[-1]
    assert said.startswith("All spans ended at 0. With its soft edge alone, a head looks at most ")
    assert said.endswith("try a smaller --span-penalty, such as 2e-06.")
    summary = json.loads((folder / "nowhere/summary.json").read_text())
    assert [words.replace("`", "") for words in summary["warnings"]] == [said]
    assert cli.main(["train", "text.txt", *SIZES, "--out", "somewhere"]) == 0
    assert "ended at 0" not in capsys.readouterr().out
    assert "ended at 0" not in (folder / "somewhere/report.html").read_text()
