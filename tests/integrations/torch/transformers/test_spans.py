"""Spans of the layers of a model, against the dense definition as an attention of transformers."""

import numpy as np
import pytest
from families import model_of, tokens
from peers import torch, transformers
from transformers.masking_utils import sdpa_mask

import headspan.torch  # isort: skip

RAMP = 4.0
SPANS = [[2, 5.5, 0, 100], [30, 1, 7.25, 3]]


def dense(module, query, key, value, attention_mask, scaling=None, s_aux=None, **_):
    """Scores of all pairs, the soft mask of the spans on their exponentials, and a sink in the sum."""
    key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], dim=1) for x in (key, value))
    queries = query.shape[2]
    seen = torch.ones(queries, key.shape[2], dtype=torch.bool).tril(key.shape[2] - queries)
    seen = seen if attention_mask is None else attention_mask
    place = module.first + torch.arange(queries)
    distance = place[:, None] - torch.arange(key.shape[2])
    spans = torch.tensor(SPANS[module.layer_idx])[:, None, None]
    soft = ((RAMP + spans - distance) / RAMP).clamp(0, 1)
    soft[..., : getattr(module, "first_tokens", 0)] = 1
    soft = soft * seen
    weights = soft * (scaling * query @ key.transpose(2, 3)).exp()
    total = weights.sum(-1, keepdim=True) + (0 if s_aux is None else s_aux.exp()[:, None, None])
    return (weights / total.clamp(min=1e-30) @ value).transpose(1, 2), None


transformers.AttentionInterface.register("dense", dense)
transformers.AttentionMaskInterface.register("dense", sdpa_mask)


def attentions(model):
    return [module for module in model.modules() if hasattr(module, "layer_idx") and hasattr(module, "q_proj")]


@torch.no_grad()
def test_a_span_of_inf_has_no_limit_and_is_saved_as_a_number():
    model, ids = model_of("llama"), tokens(2, 30)
    model.set_attn_implementation("headspan")
    headspan.torch.set_spans(model, [[float("inf")] * 4, [2, 5, float("inf"), 9]], ramp=RAMP)
    assert "Infinity" not in model.config.to_json_string()
    logits = model(ids).logits
    headspan.torch.set_spans(model, [None, [2, 5, 1000, 9]], ramp=RAMP)
    torch.testing.assert_close(logits, model(ids).logits)


@pytest.mark.parametrize("kind", ["none", "dynamic", "static"])
@pytest.mark.parametrize("family", ["llama", "mistral", "gpt_oss"])
@torch.no_grad()
def test_logits_with_spans(family, kind):
    model, ids = model_of(family), tokens(2, 30)
    mask = torch.ones_like(ids)
    mask[0, :5] = 0
    caches = {
        "none": lambda: None,
        "dynamic": lambda: transformers.DynamicCache(config=model.config),
        "static": lambda: transformers.StaticCache(config=model.config, max_cache_len=50),
    }
    pieces = ((0, 30),) if kind == "none" else ((0, 14), (14, 15), (15, 30))
    results = {}
    for implementation in ("dense", "headspan"):
        model.set_attn_implementation(implementation)
        if implementation == "headspan":
            headspan.torch.set_spans(model, SPANS, ramp=RAMP)
        cache, parts = caches[kind](), []
        for first, last in pieces:
            for layer in attentions(model):
                # A cache of windows holds the last keys only; the dense definition needs to know how many are left out.
                left_out = 0 if cache is None else cache.get_mask_sizes(last - first, layer.layer_idx)[1]
                layer.first = first - int(left_out)
            inputs = {} if cache is None else {"cache": cache}
            places = torch.arange(first, last)[None].expand(2, -1)
            inputs |= {"attention_mask": mask[:, :last], "position_ids": places}
            parts.append(model(input_ids=ids[:, first:last], **inputs).logits)
        results[implementation] = torch.cat(parts, dim=1)
    keep = mask.bool()
    torch.testing.assert_close(results["headspan"][keep], results["dense"][keep], rtol=0, atol=1e-4)
    headspan.torch.set_spans(model, None)
    without = model(input_ids=ids, attention_mask=mask).logits
    assert (without[keep] - results["headspan"][keep]).abs().max() > 1e-2


@pytest.mark.parametrize("kind", ["none", "dynamic", "static", "heads"])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
@torch.no_grad()
def test_first_tokens_are_seen_at_any_distance(family, kind):
    model, ids = model_of(family), tokens(2, 30)
    model.set_attn_implementation("dense")
    for module in model.modules():
        module.first, module.first_tokens = 0, 3
    expected = model(ids).logits
    model.set_attn_implementation("headspan")
    headspan.torch.set_spans(model, SPANS, ramp=RAMP, first_tokens=3)
    caches = {
        "none": lambda: None,
        "dynamic": lambda: transformers.DynamicCache(config=model.config),
        "static": lambda: transformers.StaticCache(config=model.config, max_cache_len=50),
        "heads": lambda: headspan.torch.head_cache(model),
    }
    cache = caches[kind]()
    pieces = ((0, 30),) if kind == "none" else ((0, 14), (14, 15), (15, 30))
    options = {} if cache is None else {"cache": cache}
    logits = torch.cat([model(ids[:, first:last], **options).logits for first, last in pieces], dim=1)
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-4)
    headspan.torch.set_spans(model, SPANS, ramp=RAMP)
    assert (model(ids).logits - expected).abs().max() > 1e-2


def test_first_tokens_that_are_padding_or_not_seen_are_refused():
    model, ids = model_of("llama"), tokens(2, 30)
    model.set_attn_implementation("headspan")
    headspan.torch.set_spans(model, SPANS, ramp=RAMP, first_tokens=3)
    mask = torch.ones_like(ids)
    mask[0, :5] = 0
    with pytest.raises(
        NotImplementedError, match="first_tokens are the first tokens, which are padding if padding is on the left"
    ):
        model(ids, attention_mask=mask)
    model = model_of("mistral")
    model.set_attn_implementation("headspan")
    headspan.torch.set_spans(model, SPANS, ramp=RAMP, first_tokens=3)
    with pytest.raises(NotImplementedError, match="first_tokens cannot be combined with a sliding window"):
        model(ids)
    with pytest.raises(ValueError, match="first_tokens must be at least 0, not -1"):
        headspan.torch.set_spans(model, SPANS, first_tokens=-1)
    assert model.config.headspan_first_tokens == 3


def test_spans_are_saved_with_the_configuration(tmp_path):
    model = model_of("llama")
    model.set_attn_implementation("headspan")
    headspan.torch.set_spans(model, [SPANS[0], None], ramp=RAMP)
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path, attn_implementation="headspan").eval()
    assert again.config.headspan_spans == [[2.0, 5.5, 0.0, 100.0], None]
    with torch.no_grad():
        assert torch.equal(again(tokens()).logits, model(tokens()).logits)


@pytest.mark.parametrize(
    ("words", "spans"),
    [
        ("2 layers", [[3], [4], [5]]), ("negative", [[-1], [3]]), ("layer 1", [[3], [1, 2, 3]]),
        ("finite", [[3], [float("nan")]]), ("negative", -1),
    ],
)  # fmt: skip
def test_spans_that_do_not_fit(words, spans):
    model = model_of("llama")
    model.set_attn_implementation("headspan")
    with pytest.raises(ValueError, match=words):
        headspan.torch.set_spans(model, spans)


@pytest.mark.parametrize(
    "spans", [[3, 4, 5, 6], [3, 4], np.array([3.0, 4.0]), torch.tensor([3, 4]), [3, None], (3, [4])]
)
def test_flat_spans_are_ambiguous_and_refused(spans):
    model = model_of("llama")
    model.set_attn_implementation("headspan")
    for give in (headspan.torch.set_spans, headspan.torch.head_cache):
        with pytest.raises(ValueError, match=r"not a flat list: \[\[s, \.\.\.\]\] \* layers has one for each head"):
            give(model, spans)
    assert not hasattr(model.config, "headspan_spans")


@pytest.mark.parametrize("column", [[[3], [4]], np.array([[3], [4]]), torch.tensor([[3], [4]]), ([3.0] * 4, [4])])
def test_a_column_has_one_span_for_each_layer(column):
    model = model_of("llama")
    model.set_attn_implementation("headspan")
    headspan.torch.set_spans(model, column)
    assert model.config.headspan_spans == [[3.0] * 4, [4.0] * 4]
    headspan.torch.set_spans(model, 5)
    assert model.config.headspan_spans == [[5.0] * 4] * 2


def test_models_that_have_no_spans():
    with pytest.raises(ValueError, match="attn_implementation='headspan'"):
        headspan.torch.set_spans(model_of("llama"), 3)
    with pytest.raises(TypeError, match="one of transformers"):
        headspan.torch.set_spans(torch.nn.Linear(3, 3), 3)
    with pytest.raises(ValueError, match="a decoder only"):
        headspan.torch.set_spans(model_of("t5"), 3)


@pytest.mark.parametrize("spans", [3, None])
def test_spans_of_a_model_that_has_learned_ones_are_refused(spans):
    model, ids = model_of("llama"), tokens()
    headspan.torch.convert(model, max_span=40, ramp=RAMP)
    with pytest.raises(ValueError, match=r"model must have no learned spans.*; headspan\.torch\.freeze_spans\(model\)"):
        headspan.torch.set_spans(model, spans)
    headspan.torch.freeze_spans(model)
    before = model(ids).logits
    headspan.torch.set_spans(model, spans, ramp=0)
    assert (model(ids).logits - before).abs().max() > (1e-3 if spans else -1)
