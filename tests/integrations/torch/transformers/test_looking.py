"""Recordings of the attention of layers; and what cannot be computed is refused by name."""

import json
import re
import sys

import headspan as hs
import numpy as np
import pytest
from families import model_of, tokens
from letters import letters
from peers import torch, transformers

import headspan.torch  # isort: skip

IDS = tokens()


def recorded(model, ids, **inputs):
    model.set_attn_implementation("headspan")
    with headspan.torch.record(model) as layers, torch.no_grad():
        model(input_ids=ids, **inputs)
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
        ours = layers[layer].weights()
        keep = mask.bool().numpy()
        for item in range(2):
            np.testing.assert_allclose(ours[item][:, keep[item]], weights[item][:, keep[item]].numpy(), atol=1e-5)


@pytest.mark.parametrize("family", ["llama", "gemma3", "gpt_oss", "gpt2", "t5", "bert"])
def test_attentions_of_the_output_are_those_of_torch(family):
    """With their gradients, and after dropout."""
    results = {}
    for implementation in ("eager", "headspan"):
        model, ids = model_of(family), tokens()
        mask = torch.ones_like(ids)
        mask[0, :9] = 0
        model.set_attn_implementation(implementation)
        more = {"decoder_input_ids": ids[:, :20]} if family == "t5" else {}
        out = model(input_ids=ids, attention_mask=mask, output_attentions=True, **more)
        maps = [*out.encoder_attentions, *out.decoder_attentions, *out.cross_attentions] if more else out.attentions
        kept = [weights[:, :, 9:] for weights in maps]
        sum(weights.square().sum() for weights in kept).backward()
        grads = {name: x.grad for name, x in model.named_parameters() if x.grad is not None and x.grad.any()}
        results[implementation] = kept, grads
    (expected, wanted), (maps, grads) = results.values()
    assert len(maps) == len(expected)
    for one, other in zip(maps, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert grads.keys() == wanted.keys()
    for name, grad in wanted.items():
        torch.testing.assert_close(grads[name], grad, rtol=1e-3, atol=1e-4 * float(grad.abs().max() + 1))


def test_attentions_after_dropout_belong_to_the_output():
    attend = transformers.AttentionInterface._global_mapping["headspan"]
    query, key, value = torch.randn(3, 2, 4, 10, 8)
    out, weights = attend(torch.nn.Identity(), query, key, value, None, dropout=0.5, output_attentions=True)
    torch.testing.assert_close(out, (weights @ value).transpose(1, 2))
    dropped = (weights == 0).double().mean() - 0.45  # 0.45 of the pairs are ahead
    assert 0.2 < dropped < 0.35


def test_nothing_is_kept_of_other_models_and_afterwards():
    model, other = model_of("llama"), model_of("llama")
    other.set_attn_implementation("headspan")
    layers = recorded(model, tokens())
    kept = layers[0].query
    with headspan.torch.record(other) as others, torch.no_grad():
        model(tokens(2, 11))
    assert not others
    assert layers[0].query is kept


def test_layers_of_an_encoder_and_a_decoder_are_told_apart():
    model, ids = model_of("t5"), tokens()
    model.set_attn_implementation("headspan")
    with pytest.raises(NotImplementedError, match=r"layer 0.*encoder"), headspan.torch.record(model):
        model(input_ids=ids, decoder_input_ids=ids[:, :20])
    with headspan.torch.record(model.encoder) as layers:
        model(input_ids=ids, decoder_input_ids=ids[:, :20])
    assert [layer.query.shape[2] for layer in layers.values()] == [30, 30]


def test_layers_without_a_number_are_counted_once():
    attend = transformers.AttentionInterface._global_mapping["headspan"]
    parts = torch.nn.ModuleList([torch.nn.Identity(), torch.nn.Identity()])
    query = torch.randn(1, 4, 5, 8)
    with headspan.torch.record(parts) as layers:
        for _ in range(2):
            for index, part in enumerate(parts):
                attend(part, query + index, query, query, None)
    assert list(layers) == [0, 1]
    np.testing.assert_array_equal(layers[1].query, (query + 1).numpy())


def test_a_layer_that_computed_nothing_is_named():
    with headspan.torch.record(torch.nn.Identity()) as layers:
        pass
    with pytest.raises(
        KeyError, match=r"layer must be one of the recorded layers \[\], got 0; a layer is recorded when"
    ):
        layers[0]
    layers = recorded(model_of("llama"), tokens())
    with pytest.raises(KeyError, match=r"one of the recorded layers \[0, 1\], got 2;"):
        layers[2]
    assert layers.get(2) is None


def test_recording_a_model_with_another_attention_is_refused():
    with (
        pytest.raises(ValueError, match="attn_implementation='headspan', not eager"),
        headspan.torch.record(model_of("llama")),
    ):
        pass


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("indices", {"indices": torch.zeros(1)}),
        ("block_indices", {"block_indices": torch.zeros(1)}), ("head_mask", {"head_mask": torch.ones(4)}),
        ("cu_seq_lens_q", {"cu_seq_lens_q": torch.tensor([0, 2, 5])}),
        ("sliding_window", {"sliding_window": 3, "is_causal": False}),
    ],
)  # fmt: skip
def test_unsupported_options(words, options):
    attend = transformers.AttentionInterface._global_mapping["headspan"]
    query = torch.randn(1, 4, 5, 8)
    with pytest.raises(NotImplementedError, match=words) as caught:
        attend(torch.nn.Identity(), query, query, query, None, **options)
    assert "\n" not in str(caught.value)


def small(name, **sizes):
    """A causal model of 4 heads that is made with headspan's attention."""
    config = getattr(transformers, f"{name}Config")(vocab_size=50, **sizes)
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation="headspan").eval()


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("Bloom", {"hidden_size": 32, "n_layer": 2, "n_head": 4}),
        ("XGLM", {"d_model": 32, "ffn_dim": 32, "num_layers": 2, "attention_heads": 4}),
    ],
)
@pytest.mark.parametrize("padded", [False, True])
def test_models_that_call_no_attention_function_are_refused(name, sizes, padded):
    """They would read ranges as a mask, and without a mask some would see later tokens."""
    mask = torch.ones(2, 30, dtype=torch.int64)
    mask[0, :9] = 1 - padded
    with pytest.raises(NotImplementedError, match=f"{name}Model .*'eager'"):
        small(name, **sizes)(tokens(), attention_mask=mask)


CHOICE = {"index_topk": 8, "index_n_heads": 2, "index_head_dim": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4}
LATENT = {"kv_lora_rank": 8, "q_lora_rank": 8, "v_head_dim": 6, "first_k_dense_replace": 2, "head_dim": 4}


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("DeepseekV32", {**CHOICE, **LATENT, "num_key_value_heads": 4}), ("Doge", {"num_key_value_heads": 2})],
)
@pytest.mark.parametrize("padded", [False, True])
def test_models_that_compute_with_the_mask_are_refused(name, sizes, padded):
    """Layers of DeepSeek choose keys by the mask, those of Doge add to it; neither checks that it is one of pairs."""
    shared = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    mask = torch.ones(2, 30, dtype=torch.int64)
    mask[0, :9] = 1 - padded
    with pytest.raises(NotImplementedError, match=f"{name}Config requires a mask of pairs"):
        small(name, **shared, **sizes)(tokens(), attention_mask=mask)


def test_masks_other_than_ranges_are_refused():
    model, ids = model_of("llama"), tokens()
    model.set_attn_implementation("headspan")
    mask = torch.ones_like(ids)
    mask[0, 4] = 0
    with torch.no_grad(), pytest.raises(NotImplementedError, match="padding within a text is not supported"):
        model(input_ids=ids, attention_mask=mask, cache=headspan.torch.head_cache(model))
    with pytest.raises(TypeError, match=r"bool.*int64"):
        model(input_ids=ids, attention_mask=torch.ones(2, 1, 30, 30, dtype=torch.int64).tril())
    rules = transformers.masking_utils
    rule = rules.or_masks(rules.causal_mask_function, lambda b, h, q, k: q > 3)
    make = transformers.AttentionMaskInterface._global_mapping["headspan"]
    with pytest.raises(NotImplementedError, match="lambda"):
        make(2, 30, 30, mask_function=rule)


def test_rules_allow_the_pairs_of_transformers():
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
            arguments = {"mask_function": rule, "attention_mask": padding, "allow_is_causal_skip": False}
            wanted = rules.sdpa_mask(*sizes, **arguments)[:, 0]
            ranges = make(*sizes, **arguments)[:, 0]
            key = torch.arange(20 - offset)
            seen = (ranges[..., [0]] <= key) & (key < ranges[..., [1]])
            assert torch.equal(seen, wanted), (name, first)
            assert torch.equal(ranges[0, :, 2], torch.arange(first, first + count) - offset)
            assert (ranges[..., :2].diff(dim=1) >= 0).all()


def test_without_transformers_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ModuleNotFoundError, match=r"register needs transformers; run pip install '\.\[transformers\]'"):
        headspan.torch.register()


def saved(view, folder):
    view.save(folder / "view.html")
    return (folder / "view.html").read_text()


def contents(page):
    """The traits and arrays in a saved page."""
    return json.loads(re.search(r'id="headspan-data">(.*?)</script>', page)[1])


@pytest.mark.parametrize("ids", [IDS[0], IDS[:1], IDS[0].tolist()])
def test_explore_runs_the_model_and_shows_all_layers(ids, tmp_path):
    pytest.importorskip("anywidget")
    model = model_of("llama")
    model.set_attn_implementation("headspan")
    view = headspan.torch.explore(model, ids)
    assert view.head == [0, 0]
    with torch.no_grad(), headspan.torch.record(model) as recording:
        model(IDS[:1])
    expected = hs.explore(**recording.trace())
    shown, wanted = (contents(saved(one, tmp_path)) for one in (view, expected))
    assert {kind: {name: shown[kind][name] for name in wanted[kind]} for kind in wanted} == wanted
    predictions = {*shown["traits"], *shown["arrays"]} - {*wanted["traits"], *wanted["arrays"]}
    assert predictions == {
        "recorded", "recorded_candidates", "recorded_probabilities", "predicted", "candidates", "probabilities"
    }  # fmt: skip
    only = headspan.torch.explore(model, ids, layers=1)
    assert only.head == [1, 0]


def test_explore_takes_a_text_with_its_tokenizer(tmp_path):
    pytest.importorskip("anywidget")
    model = model_of("llama")
    model.set_attn_implementation("headspan")
    view = headspan.torch.explore(model, "a b c d", letters())
    same = headspan.torch.explore(model, [1, 2, 3, 4], letters())
    assert saved(view, tmp_path) == saved(same, tmp_path)
    with pytest.raises(ValueError, match="tokenizer must be given for a text"):
        headspan.torch.explore(model, "a b")
    with pytest.raises(ValueError, match=r"text must be a text or token ids of shape \(tokens,\) or \(1, tokens\)"):
        headspan.torch.explore(model, IDS)
    model.set_attn_implementation("eager")
    with pytest.raises(ValueError, match="the view needs a model with attn_implementation='headspan', not 'eager'"):
        headspan.torch.explore(model, IDS[0])
