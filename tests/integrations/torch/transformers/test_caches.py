"""Generation with the caches of transformers: the same tokens and the same logits."""

import pytest
from families import DECODERS, logits, model_of, tokens
from peers import torch, transformers

PAD = {"pad_token_id": 0, "do_sample": False}


def prompt(padded):
    ids = tokens(2, 12)
    mask = torch.ones_like(ids)
    if padded:
        ids[0, :5], mask[0, :5] = 0, 0
    return {"input_ids": ids, "attention_mask": mask}


@pytest.mark.parametrize("kind", ["dynamic", "static"])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("family", DECODERS)
def test_generated_tokens(family, padded, kind):
    model = model_of(family)
    sequences, scores = {}, {}
    options = {"cache_implementation": kind, "return_dict_in_generate": True, "output_logits": True}
    for implementation in ("eager", "headspan"):
        model.set_attn_implementation(implementation)
        result = model.generate(**prompt(padded), max_new_tokens=20, **options, **PAD)
        sequences[implementation], scores[implementation] = result.sequences, torch.stack(result.logits)
    assert torch.equal(sequences["headspan"], sequences["eager"])
    assert sequences["headspan"].shape[1] > 20
    torch.testing.assert_close(scores["headspan"], scores["eager"], rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", ["dynamic", "static"])
@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3", "gpt_oss"])
@torch.no_grad()
def test_logits_of_a_prompt_in_pieces(family, kind):
    """No query of any piece sees padding, or the unused room of a cache after the tokens."""
    model, ids = model_of(family), tokens(2, 30)
    mask = torch.ones_like(ids)
    mask[0, :5] = 0
    results = {}
    for implementation in ("eager", "headspan"):
        model.set_attn_implementation(implementation)
        if kind == "static":
            cache = transformers.StaticCache(config=model.config, max_cache_len=50)
        else:
            cache = transformers.DynamicCache(config=model.config)
        pieces = []
        for first, last in ((0, 11), (11, 12), (12, 25), (25, 30)):
            inputs = {"attention_mask": mask[:, :last], "cache": cache}
            places = torch.arange(first, last)[None].expand(2, -1)
            pieces.append(model(input_ids=ids[:, first:last], position_ids=places, **inputs).logits)
        results[implementation] = torch.cat(pieces, dim=1)
    keep = mask.bool()
    torch.testing.assert_close(results["headspan"][keep], results["eager"][keep], rtol=0, atol=1e-4)
    places = torch.arange(30)[None].expand(2, -1)
    expected = logits(model, "headspan", ids, attention_mask=mask, position_ids=places)
    torch.testing.assert_close(results["headspan"][keep], expected[keep], rtol=0, atol=1e-4)


@pytest.mark.parametrize("family", ["llama", "mistral"])
@torch.no_grad()
def test_the_second_turn_of_a_chat(family):
    """The first turn of `generate` ends at different places in the two texts, with padding after it."""
    model, ids = model_of(family), tokens(2, 40)
    mask = torch.ones_like(ids)
    mask[0, :5] = mask[0, 17:21] = mask[1, 15:21] = 0
    written = {}
    for implementation in ("eager", "headspan"):
        model.set_attn_implementation(implementation)
        cache = transformers.DynamicCache(config=model.config)
        model(input_ids=ids[:, :21], attention_mask=mask[:, :21], cache=cache)
        options = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
        written[implementation] = model.generate(ids, attention_mask=mask, cache=cache, **options)
    assert torch.equal(written["headspan"], written["eager"])
