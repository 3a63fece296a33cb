"""Spans from files of other projects."""

import json

import numpy as np
import pytest
from families import model_of, tokens
from peers import torch, transformers

from headspan.torch import duo_attention_spans, head_cache, moa_spans, set_spans  # isort: skip

GATES = [[0.9, 0.1], [-1e-4, 0.6]]


def test_a_folder_of_duo_attention(tmp_path):
    np.savetxt(tmp_path / "full_attention_heads.tsv", GATES, delimiter="\t")
    (tmp_path / "config.json").write_text(json.dumps({"sink_size": 2, "recent_size": 8, "lr": 0.02}))
    spans, sinks = duo_attention_spans(tmp_path, num_heads=4)
    assert sinks == 2
    assert spans == [[1e30, 1e30, 7, 7], [7, 7, 1e30, 1e30]]
    assert duo_attention_spans(str(tmp_path), num_heads=2, recent=3, sinks=0) == ([[1e30, 2], [2, 1e30]], 0)
    assert duo_attention_spans(GATES, 2, recent=3, sinks=0, sparsity=0.75)[0] == [[1e30, 2], [2, 2]]
    with pytest.raises(OSError, match=r"config\.json"):
        duo_attention_spans(tmp_path / "nowhere", num_heads=4)


@torch.no_grad()
def test_a_model_with_these_spans_and_sinks():
    """Streaming heads see the first and the last tokens, full ones all: the logits against plain arithmetic."""
    model, ids = model_of("llama"), tokens(1, 60)
    model.set_attn_implementation("headspan")
    spans, sinks = duo_attention_spans(GATES, num_heads=4, recent=8, sinks=2)
    cache = head_cache(model, spans, ramp=0, first_tokens=sinks)
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


def test_a_plan_of_moa(tmp_path):
    plan = {"alphas": [[0.0, -8.0, 4, 0], [0, 0, 0, 0]], "betas": [[0.25, 0.5, 0, 0], [1, 1, 1, 1]]}
    path = tmp_path / "moa_alpha_beta.json"
    path.write_text(json.dumps(plan))
    assert moa_spans(path, tokens=40) == [[9, 11, 3, 0], [39] * 4]
    assert moa_spans(plan, 8) == [[1, 0, 3, 0], [7] * 4]
    model = model_of("llama")
    model.set_attn_implementation("headspan")
    set_spans(model, moa_spans(plan, 40), ramp=0)
    assert model(tokens()).logits.isfinite().all()


@pytest.mark.parametrize(
    ("error", "words", "call"),
    [
        (ValueError, "gates", lambda: duo_attention_spans([0.5], 4, recent=8, sinks=0)),
        (ValueError, "heads", lambda: duo_attention_spans(GATES, 3, recent=8, sinks=0)),
        (ValueError, "recent", lambda: duo_attention_spans(GATES, 4, sinks=0)),
        (ValueError, "sinks", lambda: duo_attention_spans(GATES, 4, recent=8)),
        (ValueError, "recent", lambda: duo_attention_spans(GATES, 4, recent=0, sinks=0)),
        (ValueError, "sparsity", lambda: duo_attention_spans(GATES, 4, recent=8, sinks=0, sparsity=2)),
        (ValueError, "alphas", lambda: moa_spans({}, 8)),
        (ValueError, "alphas", lambda: moa_spans({"alphas": [[1]], "betas": [[1, 2]]}, 8)),
        (ValueError, "tokens", lambda: moa_spans({"alphas": [[1]], "betas": [[1]]}, 0)),
    ],
)
def test_wrong_arguments(error, words, call):
    with pytest.raises(error, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)
