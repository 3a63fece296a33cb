"""Runs with the engine of PyTorch equal those with the engine of NumPy, except for rounding."""

import dataclasses

import numpy as np
import pytest
from lm_helpers import SIZES, TRAINING, small_model, small_run, small_text

pytest.importorskip("torch", reason="needs torch: nox -s peers")
pytest.importorskip("autograd", reason="needs autograd: pip install '.[demo]'")

from headspan.lab.cli import main  # isort: skip
from headspan.lab.config import BATCHES, SPAN_KINDS  # isort: skip
from headspan.lab.training.engines import objective  # isort: skip
from headspan.lab.model import init_parameters  # isort: skip
from headspan.lab.model.memory import Memory  # isort: skip
from headspan.lab.runs import Run  # isort: skip
from headspan.lab.training.start import configs  # isort: skip
from headspan.lab.training.train import draw_batch, train  # isort: skip

ENGINES = ("numpy", "torch")


@pytest.mark.parametrize("kind", SPAN_KINDS)
@pytest.mark.parametrize(("batches", "taps"), [("windows", 1), ("stream", 3)])
def test_loss_and_gradient_of_a_batch(kind, batches, taps):
    text = small_text()
    model = small_model(text, span_kind=kind, taps=taps)
    rng = np.random.default_rng(0)
    parameters = {name: array.astype(np.float64) for name, array in init_parameters(model, 3).items()}
    for name, array in parameters.items():
        if name.startswith("span"):
            array += rng.uniform(-1, 1, array.shape)
    training = dataclasses.replace(TRAINING, batches=batches)
    tokens = text.encode(text.part("train"))
    results = []
    for engine in ENGINES:
        computed = objective(engine, model, 2**-6)
        memory = Memory(model) if batches == "stream" else None
        for step in range(2):
            last = computed(parameters, draw_batch(tokens, training, step), memory)
        results.append(last)
    (value, gradients, spans), (other, others, other_spans) = results
    assert value == pytest.approx(other, abs=1e-12)
    np.testing.assert_allclose(other_spans, spans, rtol=0, atol=1e-12)
    assert gradients.keys() == others.keys()
    for name, gradient in gradients.items():
        np.testing.assert_allclose(others[name], gradient, rtol=0, atol=1e-12, err_msg=name)
    assert all(array.flags.writeable for array in parameters.values())


@pytest.mark.parametrize("kind", SPAN_KINDS)
@pytest.mark.parametrize("batches", BATCHES)
def test_losses_of_the_first_steps_and_the_run_folder(tmp_path, kind, batches):
    text = small_text()
    rows = {}
    for engine in ENGINES:
        training = dataclasses.replace(TRAINING, steps=20, log_every=1, evaluate_every=10, engine=engine)
        training = dataclasses.replace(training, batches=batches)
        run = small_run(tmp_path / engine, text, training, span_kind=kind)
        assert train(run, text) == "finished"
        rows[engine] = run.metrics()
    assert len(rows["numpy"]) == 20
    for one, other in zip(*rows.values(), strict=True):
        assert one.keys() == other.keys()
        assert one["bits"] == pytest.approx(other["bits"], abs=1e-4)
        np.testing.assert_allclose(one["spans"], other["spans"], rtol=0, atol=1e-2)


def test_a_run_goes_on_with_its_engine(tmp_path):
    text = small_text()
    training = dataclasses.replace(TRAINING, engine="torch", batches="stream")
    straight, stopped = (small_run(tmp_path / name, text, training) for name in ("straight", "stopped"))
    train(straight, text)
    train(stopped, text, steps=3)
    again = Run.open(stopped.path)
    assert configs(again)[1].engine == "torch"
    train(again, text)
    for name, array in straight.load().parameters.items():
        assert np.array_equal(array, stopped.load().parameters[name]), name


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_bytes(small_text().data)
    assert main(["train", "text.txt", *SIZES, "--engine", "torch", "--out", "run"]) == 0
    assert (tmp_path / "run" / "report.html").exists()
    assert Run.open(tmp_path / "run").config["training"]["engine"] == "torch"
    assert main(["train", "text.txt", "--engine", "jax"]) == 1
    assert "engine must be one of 'numpy', 'torch', not 'jax'" in capsys.readouterr().err
