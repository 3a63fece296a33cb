"""Writing on with the caches of transformers: the same tokens, and the same logits."""

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
    found, scores = {}, {}
    options = {"cache_implementation": kind, "return_dict_in_generate": True, "output_logits": True}
    for implementation in ("eager", "headspan"):
        model.set_attn_implementation(implementation)
        result = model.generate(**prompt(padded), max_new_tokens=20, **options, **PAD)
        found[implementation], scores[implementation] = result.sequences, torch.stack(result.logits)
    assert torch.equal(found["headspan"], found["eager"])
    assert found["headspan"].shape[1] > 20
    torch.testing.assert_close(scores["headspan"], scores["eager"], rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", ["dynamic", "static"])
@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3", "gpt_oss"])
@torch.no_grad()
def test_logits_of_a_prompt_in_pieces(family, kind):
    """No query of any piece sees the unused room of a cache after its tokens, or padding."""
    model, ids = model_of(family), tokens(2, 30)
    mask = torch.ones_like(ids)
    mask[0, :5] = 0
    found = {}
    for implementation in ("eager", "headspan"):
        model.set_attn_implementation(implementation)
        if kind == "static":
            cache = transformers.StaticCache(config=model.config, max_cache_len=50)
        else:
            cache = transformers.DynamicCache(config=model.config)
        pieces = []
        for first, last in ((0, 11), (11, 12), (12, 25), (25, 30)):
            given = {"attention_mask": mask[:, :last], "cache": cache}
            places = torch.arange(first, last)[None].expand(2, -1)
            pieces.append(model(input_ids=ids[:, first:last], position_ids=places, **given).logits)
        found[implementation] = torch.cat(pieces, dim=1)
    keep = mask.bool()
    torch.testing.assert_close(found["headspan"][keep], found["eager"][keep], rtol=0, atol=1e-4)
    places = torch.arange(30)[None].expand(2, -1)
    whole = logits(model, "headspan", ids, attention_mask=mask, position_ids=places)
    torch.testing.assert_close(found["headspan"][keep], whole[keep], rtol=0, atol=1e-4)


@pytest.mark.parametrize("family", ["llama", "mistral"])
@torch.no_grad()
def test_the_second_turn_of_a_chat(family):
    """What `generate` wrote in the first turn ends at other places in the two texts, with padding behind it."""
    model, ids = model_of(family), tokens(2, 40)
    mask = torch.ones_like(ids)
    mask[0, :5] = mask[0, 17:21] = mask[1, 15:21] = 0
    written = {}
    for implementation in ("eager", "headspan"):
        model.set_attn_implementation(implementation)
        cache = transformers.DynamicCache(config=model.config)
        model(input_ids=ids[:, :21], attention_mask=mask[:, :21], cache=cache)
        how = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
        written[implementation] = model.generate(ids, attention_mask=mask, cache=cache, **how)
    assert torch.equal(written["headspan"], written["eager"])
