"""What layers computed attention of, looked at; and what cannot be computed, refused by its name."""

import sys

import headspan as hs
import numpy as np
import pytest
from families import model_of, tokens
from peers import torch, transformers

import headspan.torch  # isort: skip


def recorded(model, ids, **given):
    model.set_attn_implementation("headspan")
    with headspan.torch.record(model) as layers, torch.no_grad():
        model(input_ids=ids, **given)
    return layers


@pytest.mark.parametrize("family", ["llama", "mistral", "gpt2"])
def test_maps_are_those_of_torch(family):
    model, ids = model_of(family), tokens()
    mask = torch.ones_like(ids)
    mask[0, :9] = 0
    with torch.no_grad():
        expected = model(input_ids=ids, attention_mask=mask, output_attentions=True).attentions
    layers = recorded(model, ids, attention_mask=mask)
    assert list(layers) == [0, 1]
    for layer, weights in enumerate(expected):
        found = layers[layer].weights()
        keep = mask.bool().numpy()
        for item in range(2):
            np.testing.assert_allclose(found[item][:, keep[item]], weights[item][:, keep[item]].numpy(), atol=1e-5)


def test_nothing_is_kept_of_other_models_and_afterwards():
    model, other = model_of("llama"), model_of("llama")
    other.set_attn_implementation("headspan")
    layers = recorded(model, tokens())
    kept = layers[0].query
    with headspan.torch.record(other) as others, torch.no_grad():
        model(tokens(2, 11))
    assert not others
    assert layers[0].query is kept


def test_the_view_of_a_layer():
    model, ids = model_of("llama"), tokens()
    model.set_attn_implementation("headspan")
    headspan.torch.set_spans(model, [[2, 5, 9, 20], None], ramp=3)
    mask = torch.ones_like(ids)
    mask[0, :9] = 0
    layers = recorded(model, ids, attention_mask=mask)
    given = layers[0].trace(item=0)
    assert given["key_begin"] == 9
    drawn = {name: given[name] for name in given.keys() - {"query", "key"}}
    weights = hs.attention_weights(given["query"], given["key"], **drawn)
    np.testing.assert_allclose(weights[:, 9:], layers[0].weights()[0, :, 9:], atol=1e-6)
    assert hs.explore(**given) is not None
    windows = recorded(model_of("mistral"), ids)
    with pytest.raises(NotImplementedError, match="windows"):
        windows[0].trace()
    capped = recorded(model_of("gemma2"), ids)
    with pytest.raises(NotImplementedError, match="softcap"):
        capped[0].trace()


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("output_attentions", {"output_attentions": True}), ("indices", {"indices": torch.zeros(1)}),
        ("block_indices", {"block_indices": torch.zeros(1)}), ("head_mask", {"head_mask": torch.ones(4)}),
    ],
)  # fmt: skip
def test_what_is_refused(words, given):
    attend = transformers.AttentionInterface._global_mapping["headspan"]
    query = torch.randn(1, 4, 5, 8)
    with pytest.raises(NotImplementedError, match=words) as caught:
        attend(torch.nn.Identity(), query, query, query, None, **given)
    assert "\n" not in str(caught.value)


def test_masks_that_are_no_ranges_are_refused():
    model, ids = model_of("llama"), tokens()
    model.set_attn_implementation("headspan")
    mask = torch.ones_like(ids)
    mask[0, 4] = 0
    with pytest.raises(NotImplementedError, match="attention_mask"):
        model(input_ids=ids, attention_mask=mask)
    rules = transformers.masking_utils
    rule = rules.or_masks(rules.causal_mask_function, lambda b, h, q, k: q > 3)
    make = transformers.AttentionMaskInterface._global_mapping["headspan"]
    with pytest.raises(NotImplementedError, match="lambda"):
        make(2, 30, 30, mask_function=rule)


def test_rules_are_the_pairs_of_transformers():
    """Every rule that is known, alone and together, against the mask of pairs that transformers makes of it."""
    rules = transformers.masking_utils
    make = transformers.AttentionMaskInterface._global_mapping["headspan"]
    packed = torch.tensor([[0] * 4 + [1] * 9 + [2] * 7, [0] * 20])
    blocks = torch.tensor([[-1] * 3 + [0] * 5 + [-1] * 2 + [1] * 10, [2] * 20])
    left = torch.tensor([0, 3])
    within = torch.cat([torch.arange(4), torch.arange(9), torch.arange(7)])[None].expand(2, -1)
    cases = {
        "causal": rules.causal_mask_function,
        "both ways": rules.bidirectional_mask_function,
        "window": rules.sliding_window_causal_mask_function(5),
        "window both ways": rules.sliding_window_bidirectional_mask_function(3),
        "chunks": rules.chunked_causal_mask_function(6, left),
        "packed": rules.and_masks(rules.causal_mask_function, rules.packed_sequence_mask_function(packed)),
        "packed windows": rules.and_masks(
            rules.remap_positions_for_packed_sequence(rules.sliding_window_causal_mask_function(3), within),
            rules.packed_sequence_mask_function(packed[:1].expand(2, -1)),
        ),
        "blocks": rules.or_masks(rules.causal_mask_function, rules.blockwise_overlay(blocks)),
        "blocks in a window": rules.or_masks(
            rules.sliding_window_causal_mask_function(4), rules.blockwise_overlay(blocks)
        ),
    }
    for name, rule in cases.items():
        for first, count, offset in ((0, 20, 0), (13, 7, 0), (13, 4, 5)):
            if first and "packed" in name:
                continue
            padding = torch.ones(2, first + count, dtype=torch.bool)
            padding[0, :2] = False
            sizes = (2, count, 20 - offset, first, offset)
            given = {"mask_function": rule, "attention_mask": padding, "allow_is_causal_skip": False}
            wanted = rules.sdpa_mask(*sizes, **given)[:, 0]
            found = make(*sizes, **given)[:, 0]
            key = torch.arange(20 - offset)
            seen = (found[..., [0]] <= key) & (key < found[..., [1]])
            assert torch.equal(seen, wanted), (name, first)
            assert torch.equal(found[0, :, 2], torch.arange(first, first + count) - offset)
            assert (found[..., :2].diff(dim=1) >= 0).all()


def test_without_transformers_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ModuleNotFoundError, match=r"headspan\[transformers\]"):
        headspan.torch.register()
