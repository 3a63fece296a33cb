"""What a cache of heads cannot honour is refused by its name, and never computed otherwise without a word."""

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
    """Tokens of an image see each other, the later ones among them, which a cache of heads has not got yet."""
    model, ids = spanned("gemma3"), tokens(1, 20)
    blocks = torch.full_like(ids, -1)
    for number, (first, last) in enumerate(images):
        blocks[:, first:last] = number
    cache = headspan.torch.head_cache(model)
    given = {"config": model.config, "inputs_embeds": model.get_input_embeddings()(ids), "attention_mask": None}
    given |= {"cache": cache, "position_ids": torch.arange(20)[None], "block_sequence_ids": blocks}
    masks = {
        "full_attention": transformers.masking_utils.create_causal_mask(**given),
        "sliding_attention": transformers.masking_utils.create_sliding_window_causal_mask(**given),
    }
    if images == [(3, 9)]:
        with pytest.raises(NotImplementedError, match="DynamicCache"):
            model(input_ids=ids, attention_mask=masks, cache=cache)
        assert cache.get_seq_length() == 0
    else:  # alone in its block a token sees what it sees anyway
        found = model(input_ids=ids, attention_mask=masks, cache=cache).logits
        torch.testing.assert_close(found, model(input_ids=ids).logits, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("words", "change"),
    [
        ("of pairs", {"attention_mask": torch.zeros(1, 1, 5, 5)}),
        ("is_causal", {"is_causal": False}),
        ("position_bias", {"position_bias": torch.zeros(1, 4, 5, 5)}),
    ],
)
def test_what_a_layer_hands_on(words, change):
    layer = headspan.torch.head_cache(spanned()).layers[0]
    query, (key, value) = torch.randn(1, 4, 5, 8), layer.update(*torch.randn(2, 1, 2, 5, 8))
    given = {"attention_mask": None, "is_causal": True} | change
    function = transformers.AttentionInterface()["headspan"]
    with pytest.raises(NotImplementedError, match=words) as caught:
        function(torch.nn.Module(), query, key, value, **given)
    assert "\n" not in str(caught.value)
    assert function(torch.nn.Module(), query, key, value, None)[0].shape == (1, 5, 4, 8)


@pytest.mark.parametrize(
    ("error", "name", "given"),
    [(ValueError, "first_tokens", -1), (TypeError, "slack", "many"), (TypeError, "dtype", "int3")],
)
def test_what_it_is_made_with_is_checked_at_once(error, name, given):
    with pytest.raises(error, match=name):
        headspan.torch.head_cache(spanned(), **{name: given})


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
