"""Every attention of small models of transformers, and headspan with the same query, key and value."""

import headspan as hs
import numpy as np
import pytest
from headspan.patterns import Window
from peers import DECODER, VOCABULARY, agree, array, attentions, decoder, model_of, tokens, torch, transformers


def test_llama(monkeypatch):
    for attended in attentions(decoder(), monkeypatch, input_ids=tokens(11)):
        agree(attended)


def test_left_padding(monkeypatch):
    """A mask of tokens with zeros first: the index of the first one is key_start."""
    real = torch.tensor([[0] * 4 + [1] * 7, [1] * 11])
    for attended in attentions(decoder(), monkeypatch, input_ids=tokens(11), attention_mask=real):
        agree(attended, counted=real, key_start=array(real).argmax(axis=1))


@pytest.mark.parametrize("window", [None, 4])
def test_packed_positions(monkeypatch, window):
    """Without mask and cache a sequence begins where positions start again; flash-attn gets them as lengths."""
    positions = torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 0], [*range(7), *range(5)]])
    packed = {"input_ids": tokens(12), "position_ids": positions, "use_cache": False}
    segments = (array(positions) == 0).cumsum(axis=1)
    for attended in attentions(decoder(window), monkeypatch, **packed):
        agree(attended, segment_ids=segments, pattern=window and Window(window))
    for row, ids in zip(positions, segments, strict=True):
        (lengths, _), _ = transformers.modeling_flash_attention_utils.prepare_fa_kwargs_from_position_ids(row)
        assert np.array_equal(hs.segment_ids(lengths) + 1, ids)


def test_gpt2(monkeypatch):
    config = transformers.GPT2Config(vocab_size=50, n_embd=24, n_layer=2, n_head=3, n_positions=16)
    for attended in attentions(model_of(transformers.GPT2Model, config), monkeypatch, input_ids=tokens(11)):
        agree(attended)


def test_mistral(monkeypatch):
    """A window of w is the query's own key and w - 1 before it; one more or less is another result."""
    window = 4
    for attended in attentions(decoder(window), monkeypatch, input_ids=tokens(11)):
        agree(attended, pattern=Window(window))
        agree(attended, span=window - 1, ramp=0)
        for wrong in (window, window - 2):
            with pytest.raises(AssertionError, match="out"):
                agree(attended, pattern=Window(wrong + 1))


def test_gpt_oss(monkeypatch):
    """Sinks in every layer, and a window as Mistral's in every other one."""
    config = transformers.GptOssConfig(**DECODER, sliding_window=4, num_local_experts=2, num_experts_per_tok=1)
    sliding, full = attentions(model_of(transformers.GptOssModel, config), monkeypatch, input_ids=tokens(11))
    agree(sliding, learned={"sinks": sliding.layer.sinks}, pattern=Window(config.sliding_window))
    agree(full, learned={"sinks": full.layer.sinks})


def test_gemma2(monkeypatch):
    """The cap is low here, so that most scores feel it."""
    config = transformers.Gemma2Config(
        **DECODER, sliding_window=4, attn_logit_softcapping=2.0, query_pre_attn_scalar=13
    )
    sliding, full = attentions(model_of(transformers.Gemma2Model, config), monkeypatch, input_ids=tokens(11))
    options = {"scale": config.query_pre_attn_scalar**-0.5, "softcap": config.attn_logit_softcapping}
    agree(sliding, **options, pattern=Window(config.sliding_window))
    agree(full, **options)


def paligemma(monkeypatch, text, real, kinds):
    """What the text part of a PaliGemma attends to; `kinds` are 0 in the prefix, the image and the prompt."""
    vision = transformers.SiglipVisionConfig(
        hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, image_size=4, patch_size=4
    )
    config = transformers.PaliGemmaConfig(
        vision_config=vision, text_config=text, projection_dim=text.hidden_size, image_token_index=VOCABULARY - 1
    )
    model = model_of(transformers.PaliGemmaModel, config)
    inputs = {"input_ids": tokens(kinds.shape[1]), "attention_mask": real, "token_type_ids": kinds}
    return attentions(model, monkeypatch, part=model.language_model, **inputs)


@pytest.mark.parametrize("side", ["left", "right"])
def test_paligemma(monkeypatch, side):
    """Both directions within the prefix, and causal after it. Padding is of kind 0, too, as the tokenizer has it."""
    real = torch.tensor([[0] * 3 + [1] * 8, [1] * 11])
    kinds = torch.tensor([[0] * 8 + [1] * 3, [0] * 5 + [1] * 6])
    if side == "right":
        real, kinds = real.flip(1), torch.tensor([[0] * 5 + [1] * 3 + [0] * 3, [0] * 5 + [1] * 6])
    options = {"prefix_lengths": array(real * (1 - kinds)).sum(axis=1)}
    if side == "left":  # padding on the right is behind all tokens that count
        options["key_start"] = array(real).argmax(axis=1)
    for attended in paligemma(monkeypatch, transformers.GemmaConfig(**DECODER), real, kinds):
        agree(attended, counted=real, **options)


@pytest.mark.parametrize("window", [4, 7])
def test_paligemma2(monkeypatch, window):
    """In layers with a window, the window hides nothing within the prefix, however long the prefix is."""
    text = transformers.Gemma2Config(
        **DECODER, sliding_window=window, attn_logit_softcapping=2.0, query_pre_attn_scalar=13
    )
    prefix_lengths = np.array([7, 5])
    kinds = torch.tensor([[0] * 7 + [1] * 6, [0] * 5 + [1] * 8])
    sliding, full = paligemma(monkeypatch, text, torch.ones_like(kinds), kinds)
    options = {"scale": text.query_pre_attn_scalar**-0.5, "softcap": text.attn_logit_softcapping}
    agree(full, **options, prefix_lengths=prefix_lengths)

    both_sides = {"pattern": Window(window, ahead=window - 1), "causal": True, "prefix_lengths": prefix_lengths}
    if window >= prefix_lengths.max():
        agree(sliding, **options, **both_sides)
    else:
        with pytest.raises(AssertionError, match="out"):
            agree(sliding, **options, **both_sides)
    query, prefix = np.arange(13), prefix_lengths[:, None]
    first = np.where(query < prefix, 0, np.maximum(query - window + 1, 0))
    ranges = np.stack([first, np.maximum(query + 1, prefix)], axis=-1)
    agree(sliding, **options, key_ranges=ranges, causal=False)


def test_modernbert(monkeypatch):
    """Two of three layers see `local_attention` // 2 keys on both sides."""
    shared = {name: DECODER[name] for name in DECODER if name not in ("num_key_value_heads", "head_dim")}
    config = transformers.ModernBertConfig(**{**shared, "num_hidden_layers": 4}, local_attention=6)
    seen = attentions(model_of(transformers.ModernBertModel, config), monkeypatch, input_ids=tokens(11))
    assert config.layer_types.count("sliding_attention") == 2
    for kind, attended in zip(config.layer_types, seen, strict=True):
        half = config.local_attention // 2
        agree(attended, causal=False, pattern=Window(half + 1, ahead=half) if kind == "sliding_attention" else None)


def test_t5(monkeypatch):
    """No scale, and a table of biases for all layers of the encoder, another one for those of the decoder."""
    sizes = {"d_model": 24, "d_kv": 8, "d_ff": 16, "num_heads": 3, "num_layers": 2, "vocab_size": 50}
    config = transformers.T5Config(
        **sizes, relative_attention_num_buckets=10, relative_attention_max_distance=9, decoder_start_token_id=0
    )
    model = model_of(transformers.T5Model, config)
    seen = attentions(model, monkeypatch, input_ids=tokens(23), decoder_input_ids=tokens(17))
    encoder, decoder_self, cross = seen[:2], seen[2::2], seen[3::2]
    assert len(encoder) == len(decoder_self) == len(cross) == 2
    for attended in cross:  # attention to the encoder's output has no bias
        agree(attended, causal=False, scale=1)
    for stack, calls in ((model.encoder, encoder), (model.decoder, decoder_self)):
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
    """The buckets of offsets up to a thousand beyond the largest distance."""
    offsets = torch.arange(-max_distance - 1000, max_distance + 1001)
    theirs = transformers.models.t5.modeling_t5.T5Attention._relative_position_bucket(
        offsets, bidirectional=bidirectional, num_buckets=buckets, max_distance=max_distance
    )
    ours = hs.t5_buckets(buckets, max_distance=max_distance, bidirectional=bidirectional)
    assert np.array_equal(ours[np.clip(offsets.numpy(), -max_distance, max_distance) + max_distance], theirs.numpy())
