"""A cache of heads in `generate`: the same tokens as with a full cache and the same spans, in less memory."""

import copy
import gc
import os
from pathlib import Path

import pytest
from families import DECODERS, model_of, tokens
from peers import torch, transformers

import headspan.torch  # isort: skip

RAMP = 4.0
SPANS = [[2, 5.5, 0, 40], [30, 1, 7.25, 3]]


def spanned(family, spans=SPANS):
    model = model_of(family)
    model.set_attn_implementation("headspan")
    headspan.torch.set_spans(model, spans, ramp=RAMP)
    return model


def prompt(padded=False, count=25):
    ids = tokens(2, count)
    mask = torch.ones_like(ids)
    if padded:
        ids[0, :5], mask[0, :5] = 0, 0
    return {"input_ids": ids, "attention_mask": mask}


WAYS = {
    "greedy": {"do_sample": False},
    "sampled": {"do_sample": True, "temperature": 1.5},
    "beams": {"do_sample": False, "num_beams": 3},
    "sampled beams": {"do_sample": True, "num_beams": 2},
}


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3", "gpt_oss"])
def test_generated_tokens(family, way, padded):
    """The same as with a full cache, whose logits with spans other tests compare with the dense definition."""
    model = spanned(family)
    generated = []
    for cache in (None, headspan.torch.head_cache(model)):
        torch.manual_seed(0)
        options = {} if cache is None else {"cache": cache}
        generated.append(model.generate(**prompt(padded), **options, **way, max_new_tokens=40, pad_token_id=0))
    assert torch.equal(*generated)
    assert generated[0].shape[1] > 40


@pytest.mark.parametrize("ramp", [0.0, RAMP])
@torch.no_grad()
def test_tokens_of_a_dense_mask(ramp):
    """The same as from plain attention, with the logarithm of the mask of each head added to the scores."""
    spans, count = torch.tensor([2, 5.5, 0, 40]), 70
    model, ids = model_of("llama"), tokens(2, 25)
    distance = (torch.arange(count)[:, None] - torch.arange(count)).to(torch.float64)
    behind = spans[:, None, None] - distance
    soft = ((behind + ramp) / ramp).clamp(0, 1) if ramp else (behind >= 0).to(torch.float64)
    mask = torch.where(distance >= 0, soft, 0).log().to(torch.float32).clamp(min=-1e30)[None].expand(2, -1, -1, -1)
    expected = ids
    while expected.shape[1] < count:
        size = expected.shape[1]
        logits = model(input_ids=expected, attention_mask=mask[..., :size, :size], use_cache=False).logits
        expected = torch.cat([expected, logits[:, -1:].argmax(dim=-1)], dim=1)
    model.set_attn_implementation("headspan")
    cache = headspan.torch.head_cache(model, [spans.tolist()] * 2, ramp=ramp)
    options = {"min_new_tokens": count - 25, "max_new_tokens": count - 25, "do_sample": False, "pad_token_id": 0}
    generated = model.generate(ids, cache=cache, eos_token_id=None, **options)
    assert torch.equal(generated, expected)


def test_drafts_are_taken_back():
    model, ids = spanned("llama"), tokens(1, 5).repeat(1, 5)  # a prompt that repeats itself has drafts in it
    options = {"max_new_tokens": 40, "do_sample": False, "pad_token_id": 0}
    cropped = []
    cache = headspan.torch.head_cache(model, slack=8)
    crop = cache.crop
    cache.crop = lambda count: (cropped.append(count), crop(count))
    generated = model.generate(ids, cache=cache, prompt_lookup_num_tokens=4, **options)
    assert any(cropped)
    assert torch.equal(generated, model.generate(ids, **options))


@pytest.mark.parametrize("family", DECODERS)
@torch.no_grad()
def test_logits_of_pieces(family):
    model, ids = spanned(family), tokens(2, 60)
    cache, parts = headspan.torch.head_cache(model), []
    for first, last in ((0, 30), (30, 31), (31, 45), (45, 60)):
        places = torch.arange(first, last)[None].expand(2, -1)
        parts.append(model(input_ids=ids[:, first:last], position_ids=places, cache=cache).logits)
    expected = model(input_ids=ids, position_ids=torch.arange(60)[None].expand(2, -1)).logits
    torch.testing.assert_close(torch.cat(parts, dim=1), expected, rtol=0, atol=1e-5)


@torch.no_grad()
def test_the_cache_has_the_memory_that_the_spans_need():
    model = spanned("llama")
    cache = headspan.torch.head_cache(model)
    model(input_ids=tokens(1, 200), cache=cache)
    rows = (5.5 + RAMP) // 1 + 1 + 40 + RAMP + 30 + RAMP + (7.25 + RAMP) // 1 + 1  # key heads have two heads each
    assert cache.nbytes == rows * 2 * 8 * 4
    half = headspan.torch.head_cache(model, dtype=torch.bfloat16)
    model(input_ids=tokens(1, 200), cache=half)
    assert half.nbytes == cache.nbytes / 2
    full = transformers.DynamicCache(config=model.config)
    model(input_ids=tokens(1, 200), cache=full)
    assert cache.nbytes < 0.3 * sum(layer.keys.nbytes + layer.values.nbytes for layer in full.layers)


def resident():
    """Bytes that this process has in memory."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@torch.no_grad()
def test_the_process_grows_by_what_the_spans_need():
    """Of 6000 tokens in two layers, 188 MiB, the last 2000 are left."""
    cache = headspan.torch.head_cache(spanned("llama"), 2000, ramp=0)
    before = resident()
    for layer in cache.layers:
        for _ in range(60):
            layer.update(torch.randn(1, 2, 100, 1024), torch.randn(1, 2, 100, 1024))
            layer.attend(torch.randn(1, 4, 1, 1024))
    assert cache.nbytes == 2 * 2 * 2 * 2001 * 1024 * 4
    assert resident() - before < 1.3 * cache.nbytes


@torch.no_grad()
def test_sinks_are_seen_at_any_distance():
    model, ids = spanned("llama"), tokens(1, 120)
    caches = [headspan.torch.head_cache(model, first_tokens=count) for count in (0, 4)]
    logits = [model(input_ids=ids, cache=cache).logits[0, -1] for cache in caches]
    assert (logits[0] - logits[1]).abs().max() > 1e-3
    cache = headspan.torch.head_cache(model, first_tokens=2)
    with pytest.raises(NotImplementedError, match="padding"):
        model(**prompt(padded=True), cache=cache)


@torch.no_grad()
def test_tokens_are_taken_back():
    model, ids = spanned("llama"), tokens(1, 60)
    cache = headspan.torch.head_cache(model, slack=8)
    assert cache.is_croppable
    assert not headspan.torch.head_cache(model).is_croppable
    model(input_ids=ids[:, :50], cache=cache)
    wrong = tokens(1, 8)
    model(input_ids=wrong, cache=cache)
    cache.crop(-8)
    assert cache.get_seq_length() == 50
    logits = model(input_ids=ids[:, 50:], cache=cache).logits
    torch.testing.assert_close(logits, model(input_ids=ids).logits[:, 50:], rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="slack"):
        cache.crop(-20)


@torch.no_grad()
def test_a_prompt_is_continued_twice():
    """A cache that has read a prompt is copied, as in the documentation of transformers."""
    model, ids = spanned("llama"), tokens(2, 60)
    cache = headspan.torch.head_cache(model)
    model(input_ids=ids[:, :40], cache=cache)
    for _ in range(2):
        logits = model(input_ids=ids[:, 40:], cache=copy.deepcopy(cache)).logits
        torch.testing.assert_close(logits, model(input_ids=ids).logits[:, 40:], rtol=0, atol=1e-5)
    assert cache.get_seq_length() == 40


def test_learned_spans_are_those_of_the_cache():
    model = model_of("llama")
    model.set_attn_implementation("headspan")
    spans = headspan.torch.convert(model, max_span=40, ramp=RAMP)
    with torch.no_grad():
        for layer, span in enumerate(spans):
            span.fraction.copy_(torch.tensor(SPANS[layer]) / 40)
    cache = headspan.torch.head_cache(model)
    options = {"max_new_tokens": 30, "do_sample": False, "pad_token_id": 0}
    assert torch.equal(model.generate(**prompt(), cache=cache, **options), model.generate(**prompt(), **options))


def test_a_model_that_does_not_read_the_cache_is_refused():
    model = model_of("llama")
    with pytest.raises(ValueError, match="attn_implementation='headspan'"):
        headspan.torch.head_cache(model, 3)
    model.set_attn_implementation("headspan")
    cache = headspan.torch.head_cache(model, 3)
    model.set_attn_implementation("sdpa")
    with torch.no_grad():
        model(input_ids=tokens(1, 5), cache=cache)
        with pytest.raises(RuntimeError, match="not read"):
            model(input_ids=tokens(1, 5), cache=cache)
    model.set_attn_implementation("headspan")
    with pytest.raises(ValueError, match="2 layers"):
        headspan.torch.head_cache(model, [[3], [4], [5]])


def test_gradients_are_refused():
    """Gradients are not silently omitted."""
    model, ids = spanned("llama"), tokens(1, 5)
    cache = headspan.torch.head_cache(model)
    with pytest.raises(ValueError, match="has no gradients"):
        model(input_ids=ids, cache=cache)
    model.requires_grad_(False)
    for layer in model.model.layers:
        layer.self_attn.q_proj.requires_grad_()
    with pytest.raises(ValueError, match="query requires a gradient"):
        model(input_ids=ids, cache=headspan.torch.head_cache(model))
    with torch.no_grad():
        model(input_ids=ids, cache=cache)
    assert cache.get_seq_length() == 5
