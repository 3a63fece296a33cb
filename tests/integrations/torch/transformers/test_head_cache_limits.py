"""Arguments that a cache of heads does not support are refused by name, and never ignored."""

import pytest
from families import model_of, tokens
from peers import torch, transformers

import headspan.torch  # isort: skip

pytestmark = pytest.mark.usefixtures("without_gradients")
SPANS = [[2, 5.5, 0, 40], [30, 1, 7.25, 3]]


@pytest.fixture
def without_gradients():
    with torch.no_grad():
        yield


def spanned(family="llama"):
    model = model_of(family)
    model.set_attn_implementation("headspan")
    headspan.torch.set_spans(model, SPANS, ramp=4)
    return model


@pytest.mark.parametrize("images", [[(3, 9)], [(3, 4)], []], ids=str)
def test_blocks_that_see_ahead(images):
    """Tokens of an image also see later tokens of the image, which a cache of heads does not have yet."""
    model, ids = spanned("gemma3"), tokens(1, 20)
    blocks = torch.full_like(ids, -1)
    for number, (first, last) in enumerate(images):
        blocks[:, first:last] = number
    cache = headspan.torch.head_cache(model)
    inputs = {"config": model.config, "inputs_embeds": model.get_input_embeddings()(ids), "attention_mask": None}
    inputs |= {"cache": cache, "position_ids": torch.arange(20)[None], "block_sequence_ids": blocks}
    masks = {
        "full_attention": transformers.masking_utils.create_causal_mask(**inputs),
        "sliding_attention": transformers.masking_utils.create_sliding_window_causal_mask(**inputs),
    }
    if images == [(3, 9)]:
        with pytest.raises(NotImplementedError, match="DynamicCache"):
            model(input_ids=ids, attention_mask=masks, cache=cache)
        assert cache.get_seq_length() == 0
    else:  # a block of one token changes nothing
        logits = model(input_ids=ids, attention_mask=masks, cache=cache).logits
        torch.testing.assert_close(logits, model(input_ids=ids).logits, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("words", "change"),
    [
        ("of pairs", {"attention_mask": torch.zeros(1, 1, 5, 5)}),
        ("is_causal", {"is_causal": False}),
        ("position_bias", {"position_bias": torch.zeros(1, 4, 5, 5)}),
    ],
)
def test_arguments_of_a_layer_that_are_refused(words, change):
    layer = headspan.torch.head_cache(spanned()).layers[0]
    query, (key, value) = torch.randn(1, 4, 5, 8), layer.update(*torch.randn(2, 1, 2, 5, 8))
    arguments = {"attention_mask": None, "is_causal": True} | change
    function = transformers.AttentionInterface()["headspan"]
    with pytest.raises(NotImplementedError, match=words) as caught:
        function(torch.nn.Module(), query, key, value, **arguments)
    assert "\n" not in str(caught.value)
    assert function(torch.nn.Module(), query, key, value, None)[0].shape == (1, 5, 4, 8)


@pytest.mark.parametrize(
    ("error", "name", "value"),
    [(ValueError, "first_tokens", -1), (TypeError, "slack", "many"), (TypeError, "dtype", "int3")],
)
def test_options_are_checked_at_once(error, name, value):
    with pytest.raises(error, match=name):
        headspan.torch.head_cache(spanned(), **{name: value})


def test_models_that_cache_latents():
    """Multi-head latent attention makes keys of heads from what its cache returns, which would not be read."""
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    ranks = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 8}
    config = transformers.DeepseekV3Config(vocab_size=50, first_k_dense_replace=2, n_routed_experts=8, **sizes, **ranks)
    model = transformers.DeepseekV3ForCausalLM(config)
    model.set_attn_implementation("headspan")
    if not hasattr(model.model.layers[0].self_attn, "expand_kv"):
        pytest.skip("this version of transformers caches keys of heads")
    with pytest.raises(
        ValueError, match=r"^a cache of heads holds keys and values of heads, but DeepseekV3ForCausalLM"
    ):
        headspan.torch.head_cache(model)


def test_an_encoder_is_refused():
    model = model_of("bert")
    model.set_attn_implementation("headspan")
    with pytest.raises(ValueError, match="model must be a decoder with causal attention, got BertForMaskedLM"):
        headspan.torch.head_cache(model, 3)


def test_recording_is_refused():
    """Queries of a cache of heads have no keys that a recording could keep."""
    model, ids = spanned(), tokens()
    words = r"headspan\.torch\.record is not supported if each head has its own cache"
    with headspan.torch.record(model), pytest.raises(NotImplementedError, match=words):
        model(ids, cache=headspan.torch.head_cache(model))
    with headspan.torch.record(torch.nn.Identity()):
        model(ids, cache=headspan.torch.head_cache(model))
