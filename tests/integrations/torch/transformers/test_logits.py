"""Logits of models of transformers with headspan's attention, against those with theirs."""

import pytest
from families import DECODERS, OTHERS, WITHOUT_SDPA, logits, model_of, no_pairs, tokens
from peers import torch

__all__ = ["no_pairs"]

KEEP = {
    "none": slice(None),
    "left": (0, slice(9)),
    "right": (1, slice(21, None)),
    "within": (0, [0, 4, 11, 12, 19, 20, 28]),  # of one text; the other has none
    "many": torch.rand(2, 30, generator=torch.Generator().manual_seed(3)) < 0.4,
}
WITHOUT_DROPOUT = {"bert": {"attention_probs_dropout_prob": 0.0}, "t5": {"dropout_rate": 0.0}}
TEXTS = torch.cat([torch.arange(13), torch.arange(17)])[None].expand(2, -1)  # two, one behind the other


def close(actual, expected, keep):
    torch.testing.assert_close(actual[keep], expected[keep], rtol=0, atol=1e-4)


@pytest.mark.parametrize("padding", KEEP)
@pytest.mark.parametrize("family", [*DECODERS, *OTHERS])
@torch.no_grad()
def test_logits_with_padding(family, padding):
    model, ids = model_of(family), tokens()
    mask = torch.ones_like(ids)
    if padding != "none":
        mask[KEEP[padding]] = 0
    keep = mask.bool()[:, :20] if family == "t5" else mask.bool()
    if family == "t5":
        keep = torch.ones_like(keep)  # the padded tokens are those of the encoder
    expected = logits(model, "eager", ids, attention_mask=mask)
    assert expected.abs().max() > 0.1
    close(logits(model, "headspan", ids, attention_mask=mask), expected, keep)
    if family not in WITHOUT_SDPA:
        close(logits(model, "sdpa", ids, attention_mask=mask), expected, keep)


@pytest.mark.parametrize("family", DECODERS)
@torch.no_grad()
def test_logits_of_packed_texts(family):
    model, ids = model_of(family), tokens()
    expected = logits(model, "eager", ids, position_ids=TEXTS, use_cache=False)
    packed = logits(model, "headspan", ids, position_ids=TEXTS, use_cache=False)
    close(packed, expected, slice(None))
    if family != "gpt_oss":  # with any attention, its logits for a text alone differ
        close(packed[:, 13:], logits(model, "headspan", ids[:, 13:]), slice(None))


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3", "bert", "modernbert"])
@torch.no_grad()
def test_no_mask_of_pairs_is_made(family, no_pairs):
    model, ids = model_of(family), tokens()
    mask = torch.ones_like(ids)
    mask[KEEP["left"]] = 0
    for inputs in ({}, {"attention_mask": mask}, {"position_ids": TEXTS, "use_cache": False}):
        if "position_ids" in inputs and family in OTHERS:
            continue
        assert logits(model, "headspan", ids, **inputs).isfinite().all()


@pytest.mark.parametrize("family", [*DECODERS, *OTHERS])
def test_gradients_of_a_training_step(family):
    model, ids = model_of(family, **WITHOUT_DROPOUT.get(family, {})).train(), tokens()
    for dropout in (module for module in model.modules() if isinstance(module, torch.nn.Dropout)):
        dropout.p = 0.0
    mask = torch.ones_like(ids)
    mask[KEEP["right"]] = 0
    grads = {}
    for implementation in ("eager", "headspan"):
        model.zero_grad()
        model.set_attn_implementation(implementation)
        labels = ids.masked_fill(mask == 0, -100)
        model(input_ids=ids, attention_mask=mask, labels=labels).loss.backward()
        grads[implementation] = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    assert grads["headspan"].keys() == grads["eager"].keys()
    for name, expected in grads["eager"].items():
        torch.testing.assert_close(grads["headspan"][name], expected, rtol=1e-3, atol=1e-4)


def test_dropout_is_drawn_anew_and_from_torch():
    model, ids = model_of("llama", attention_dropout=0.5).train(), tokens()
    results = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        results.append(logits(model, "headspan", ids))
    assert torch.equal(results[0], results[1])
    assert not torch.allclose(results[0], results[2], atol=1e-3)
    model.eval()
    assert torch.equal(logits(model, "headspan", ids), logits(model, "headspan", ids))


@torch.no_grad()
def test_an_explicit_mask_of_pairs_is_used():
    model, ids = model_of("llama"), tokens()
    seen = torch.ones(30, 30, dtype=torch.bool).tril()[None, None].repeat(2, 1, 1, 1)
    seen[:, :, 20, 3:9] = False
    for mask in (seen, torch.where(seen, 0.0, torch.finfo(torch.float32).min)):
        expected = logits(model, "eager", ids, attention_mask=torch.where(seen, 0.0, torch.finfo(torch.float32).min))
        close(logits(model, "headspan", ids, attention_mask=mask), expected, slice(None))


@torch.no_grad()
def test_errors_in_16_bits_are_like_those_of_torch():
    exact = logits(model_of("llama"), "eager", tokens())
    half = model_of("llama").bfloat16()
    errors = {name: (logits(half, name, tokens()).float() - exact).abs().max() for name in ("sdpa", "headspan")}
    assert errors["headspan"] < 1.5 * errors["sdpa"]
