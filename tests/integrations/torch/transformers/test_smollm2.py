"""SmolLM2, a language model that others trained and that a Python package contains: `nox -s real` installs it."""

import importlib.util

import headspan as hs
import numpy as np
import pytest
from helpers import ROOT
from peers import torch, transformers

import headspan.torch  # isort: skip
from headspan.lab.pretrained.loading import WHEELS, load_pretrained

PACKAGES = (WHEELS["smollm2"].package, "gguf", "accelerate")
MISSING = [package for package in PACKAGES if importlib.util.find_spec(package) is None]
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}: `nox -s real` installs what it needs"),
]


@pytest.fixture(scope="module")
def smollm2():
    return load_pretrained("smollm2")


@pytest.fixture(scope="module")
def ids(smollm2):
    """The first 1,536 tokens of the pages on spans and patterns."""
    text = "".join((ROOT / "docs" / "howto" / f"{name}.md").read_text() for name in ("spans", "patterns", "recipes"))
    return smollm2.tokenizer(text, return_tensors="pt").input_ids[:, :1536]


def spread_spans(seed=0):
    """Spans of key heads between 8 and 1,024, and some without a limit; the three query heads of each share one."""
    rng = np.random.default_rng(seed)
    spans = np.round(np.exp(rng.uniform(np.log(8), np.log(1024), (30, 3))))
    spans[rng.random((30, 3)) < 0.1] = np.inf
    return np.repeat(spans, 3, axis=1)


@torch.no_grad()
def test_the_logits_are_those_of_sdpa(smollm2, ids):
    assert ids.shape == (1, 1536)
    headspan.torch.set_spans(smollm2.model, None)
    logits = smollm2.model(ids).logits
    smollm2.model.set_attn_implementation("sdpa")
    expected = smollm2.model(ids).logits
    smollm2.model.set_attn_implementation("headspan")
    torch.testing.assert_close(logits, expected, rtol=0, atol=5e-4)


def test_the_cache_of_spans_writes_the_text_of_the_same_spans_without_it(smollm2, ids):
    headspan.torch.set_spans(smollm2.model, spread_spans(), ramp=32, first_tokens=4)
    how = {"max_new_tokens": 24, "do_sample": False, "attention_mask": torch.ones_like(ids)}
    short = smollm2.model.generate(ids, cache=headspan.torch.head_cache(smollm2.model), **how)
    full = smollm2.model.generate(ids, cache=transformers.DynamicCache(config=smollm2.model.config), **how)
    assert short.tolist() == full.tolist()


@torch.no_grad()
def test_the_cache_has_the_bytes_that_are_promised(smollm2, ids):
    spans = spread_spans()
    headspan.torch.set_spans(smollm2.model, spans, ramp=32, first_tokens=4)
    cache = headspan.torch.head_cache(smollm2.model)
    smollm2.model(ids, cache=cache, use_cache=True)
    pattern = hs.patterns.Full() | hs.patterns.Global(range(4))
    layer = {"tokens": 1536, "num_heads": 9, "head_dim": 64, "num_key_heads": 3, "decode": True, "ramp": 32}
    promised = sum(hs.cost(**layer, span=row, pattern=pattern).cache_bytes for row in spans)
    assert cache.nbytes == pytest.approx(promised, rel=0.01)


def test_a_fit_of_few_steps_keeps_the_budget(smollm2, ids):
    headspan.torch.set_spans(smollm2.model, None)
    windows = ids.reshape(6, 256)
    options = {"budget": 0.5, "budget_of": "cache", "first_tokens": 4, "steps": 6, "eval_windows": 1}
    fit = headspan.torch.fit_spans(smollm2.model, windows[:5], held_out=windows[5:], **options)
    assert 0.45 < fit.cache_bytes / fit.full_cache_bytes <= 0.5
    assert fit.fitted_after <= fit.uniform.fitted_loss
    assert len(np.unique(fit.spans)) > 10


def test_moved_spans_in_the_view_give_the_loss_of_the_whole_model(smollm2, ids):
    pytest.importorskip("anywidget")
    headspan.torch.set_spans(smollm2.model, None)
    text = ids[0, :200]
    view = headspan.torch.explore(smollm2.model, text, smollm2.tokenizer)
    for layer in (25, 10, 18):  # upwards and downwards
        spans = np.reshape(view.span, (30, 9))
        spans[layer, :5] = layer
        view.span = spans.ravel()
        moved = view.model_spans
        loss = view.loss
        headspan.torch.set_spans(smollm2.model, moved.spans, ramp=moved.ramp)
        with torch.no_grad():
            logits = smollm2.model(text[None]).logits[0].double()
        headspan.torch.set_spans(smollm2.model, None)
        expected = torch.nn.functional.cross_entropy(logits[:-1], text[1:])
        assert loss == pytest.approx(float(expected), abs=1e-5)
    assert loss != view.recorded_loss
