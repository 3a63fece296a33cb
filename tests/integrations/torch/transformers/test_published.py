"""The recipe for published spans, with models of transformers."""

import headspan as hs
import numpy as np
import pytest
from families import model_of, tokens
from helpers import ROOT, examples
from peers import torch, transformers

from headspan.torch import head_cache, set_spans  # isort: skip

GATES = [[0.9, 0.1], [-1e-4, 0.6]]


@pytest.fixture(scope="module")
def recipes():
    namespace = {}
    exec(examples(ROOT / "docs" / "howto" / "recipes.md"), namespace)
    return namespace


@pytest.fixture
def folder(tmp_path):
    np.savetxt(tmp_path / "full_attention_heads.tsv", GATES, delimiter="\t")
    (tmp_path / "config.json").write_text('{"sink_size": 2, "recent_size": 8}')
    return tmp_path


@torch.no_grad()
def test_a_model_with_the_spans_and_first_tokens_of_duo_attention(folder):
    """Streaming heads see the first and the last tokens, full ones all: the logits against plain arithmetic."""
    model, ids = model_of("llama"), tokens(1, 60)
    model.set_attn_implementation("headspan")
    published = hs.ModelSpans.load_duo_attention(folder, num_heads=4)
    spans = published.spans.tolist()
    cache = head_cache(model, spans, ramp=published.ramp, first_tokens=published.first_tokens)
    logits = model(input_ids=ids, cache=cache).logits
    place = torch.arange(60)
    distance = place[:, None] - place
    seen = (distance >= 0) & ((distance <= 7) | (place < 2))

    def two_kinds(module, query, key, value, mask, scaling=None, **_):
        key, value = (x.repeat_interleave(2, dim=1) for x in (key, value))
        streaming = torch.tensor(spans[module.layer_idx]) < 10
        allowed = torch.where(streaming[:, None, None], seen, distance >= 0)
        scores = (scaling * query @ key.transpose(2, 3)).masked_fill(~allowed, -torch.inf)
        return (scores.softmax(-1) @ value).transpose(1, 2), None

    transformers.AttentionInterface.register("two kinds", two_kinds)
    transformers.AttentionMaskInterface.register("two kinds", lambda *_, **__: None)
    model.set_attn_implementation("two kinds")
    torch.testing.assert_close(logits, model(input_ids=ids, use_cache=False).logits, rtol=0, atol=1e-4)


def test_a_plan_of_moa(recipes):
    plan = {"alphas": [[0.0, -8.0, 4, 0], [0, 0, 0, 0]], "betas": [[0.25, 0.5, 0, 0], [1, 1, 1, 1]]}
    spans = recipes["moa_spans"](**plan, tokens=40)
    assert spans.tolist() == [[9, 11, 3, 0], [39] * 4]
    assert recipes["moa_spans"](**plan, tokens=8).tolist() == [[1, 0, 3, 0], [7] * 4]
    model = model_of("llama")
    model.set_attn_implementation("headspan")
    set_spans(model, spans.tolist(), ramp=0)
    assert model(tokens()).logits.isfinite().all()
