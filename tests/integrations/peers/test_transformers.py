"""What every attention of small transformers models gives, and headspan of the same query, key and value."""

import headspan as hs
import numpy as np
import pytest
from headspan.patterns import Local
from peers import DECODER, agree, array, attentions, model_of, tokens, torch, transformers


def test_llama(monkeypatch):
    model = model_of(transformers.LlamaModel, transformers.LlamaConfig(**DECODER))
    for attended in attentions(model, monkeypatch, input_ids=tokens(11)):
        agree(attended)


def test_left_padding(monkeypatch):
    """A mask of tokens with zeros first: the index of the first one is key_begin."""
    model = model_of(transformers.LlamaModel, transformers.LlamaConfig(**DECODER))
    real = torch.tensor([[0] * 4 + [1] * 7, [1] * 11])
    for attended in attentions(model, monkeypatch, input_ids=tokens(11), attention_mask=real):
        agree(attended, counted=real, key_begin=array(real).argmax(axis=1))


@pytest.mark.parametrize("window", [None, 4])
def test_cache(monkeypatch, window):
    """Three new tokens after nine: the last query stands at the last key, also where old keys were dropped."""
    kind, config = (
        (transformers.LlamaModel, transformers.LlamaConfig(**DECODER))
        if window is None
        else (transformers.MistralModel, transformers.MistralConfig(**DECODER, sliding_window=window))
    )
    model = model_of(kind, config)
    ids = tokens(12)
    past = model(input_ids=ids[:, :9], use_cache=True).cache
    for attended in attentions(model, monkeypatch, input_ids=ids[:, 9:], cache=past):
        assert attended.query.shape[2] == 3
        assert attended.key.shape[2] == (12 if window is None else window - 1 + 3)
        agree(attended, pattern=window and Local(window - 1))


def test_gpt2(monkeypatch):
    config = transformers.GPT2Config(vocab_size=50, n_embd=24, n_layer=2, n_head=3, n_positions=16)
    for attended in attentions(model_of(transformers.GPT2Model, config), monkeypatch, input_ids=tokens(11)):
        agree(attended)


def test_mistral(monkeypatch):
    """A window of w is the query's own key and w - 1 before it; one more or less is another result."""
    window = 4
    config = transformers.MistralConfig(**DECODER, sliding_window=window)
    for attended in attentions(model_of(transformers.MistralModel, config), monkeypatch, input_ids=tokens(11)):
        agree(attended, pattern=Local(window - 1))
        agree(attended, span=window - 1, ramp=0)
        for wrong in (window, window - 2):
            with pytest.raises(AssertionError, match="out"):
                agree(attended, pattern=Local(wrong))


def test_gpt_oss(monkeypatch):
    """Sinks in every layer, and a window as Mistral's in every other one."""
    config = transformers.GptOssConfig(**DECODER, sliding_window=4, num_local_experts=2, num_experts_per_tok=1)
    sliding, full = attentions(model_of(transformers.GptOssModel, config), monkeypatch, input_ids=tokens(11))
    agree(sliding, learned={"sinks": sliding.layer.sinks}, pattern=Local(config.sliding_window - 1))
    agree(full, learned={"sinks": full.layer.sinks})


def test_gemma2(monkeypatch):
    """The cap is low here, so that most scores feel it."""
    config = transformers.Gemma2Config(
        **DECODER, sliding_window=4, attn_logit_softcapping=2.0, query_pre_attn_scalar=13
    )
    sliding, full = attentions(model_of(transformers.Gemma2Model, config), monkeypatch, input_ids=tokens(11))
    options = {"scale": config.query_pre_attn_scalar**-0.5, "softcap": config.attn_logit_softcapping}
    agree(sliding, **options, pattern=Local(config.sliding_window - 1))
    agree(full, **options)


def test_modernbert(monkeypatch):
    """Two of three layers see `local_attention` // 2 keys on both sides."""
    shared = {name: DECODER[name] for name in DECODER if name not in ("num_key_value_heads", "head_dim")}
    config = transformers.ModernBertConfig(**{**shared, "num_hidden_layers": 4}, local_attention=6)
    seen = attentions(model_of(transformers.ModernBertModel, config), monkeypatch, input_ids=tokens(11))
    assert config.layer_types.count("sliding_attention") == 2
    for kind, attended in zip(config.layer_types, seen, strict=True):
        half = config.local_attention // 2
        agree(attended, causal=False, pattern=Local(half, after=half) if kind == "sliding_attention" else None)


def test_t5(monkeypatch):
    """No scale, and a table of biases for all layers of the encoder, another one for those of the decoder."""
    sizes = {"d_model": 24, "d_kv": 8, "d_ff": 16, "num_heads": 3, "num_layers": 2, "vocab_size": 50}
    config = transformers.T5Config(
        **sizes, relative_attention_num_buckets=10, relative_attention_max_distance=9, decoder_start_token_id=0
    )
    model = model_of(transformers.T5Model, config)
    seen = attentions(model, monkeypatch, input_ids=tokens(23), decoder_input_ids=tokens(17))
    encoder, own, other = seen[:2], seen[2::2], seen[3::2]
    assert len(encoder) == len(own) == len(other) == 2
    for attended in other:  # what the encoder wrote, which no bias is for
        agree(attended, causal=False, scale=1)
    for stack, calls in ((model.encoder, encoder), (model.decoder, own)):
        causal = stack is model.decoder
        table = stack.block[0].layer[0].SelfAttention.relative_attention_bias.weight
        buckets = hs.t5_buckets(10, max_distance=9, bidirectional=not causal)
        options = {"causal": causal, "scale": 1, "distance_buckets": buckets}
        for attended in calls:
            agree(attended, distance_bias=array(table).T, **options)

        first = calls[0]
        (theirs,) = torch.autograd.grad(first.out.sum(), table, retain_graph=True)
        _, *inputs, out = first
        _, vjp = hs.attention_vjp(*map(array, inputs), distance_bias=array(table).T, **options)
        np.testing.assert_allclose(vjp(np.ones(out.shape, np.float32)).distance_bias.T, array(theirs), atol=1e-4)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (8, 16), (10, 9), (64, 1000), (12, 77), (32, 20)])
def test_t5_buckets(buckets, max_distance, bidirectional):
    """Those of offsets up to a thousand beyond the largest distance."""
    offsets = torch.arange(-max_distance - 1000, max_distance + 1001)
    theirs = transformers.models.t5.modeling_t5.T5Attention._relative_position_bucket(
        offsets, bidirectional=bidirectional, num_buckets=buckets, max_distance=max_distance
    )
    ours = hs.t5_buckets(buckets, max_distance=max_distance, bidirectional=bidirectional)
    assert np.array_equal(ours[np.clip(offsets.numpy(), -max_distance, max_distance) + max_distance], theirs.numpy())
