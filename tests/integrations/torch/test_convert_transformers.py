"""Spans in models of transformers: attached to each attention, where the attention function finds them."""

import pytest
from peers import DECODER, model_of, tokens, torch, transformers

from headspan.torch import convert  # isort: skip

SMALL = {"vocab_size": 50, "d_model": 24, "d_kv": 6, "d_ff": 16, "num_layers": 1, "num_heads": 4}
MODELS = {
    "llama": (lambda: model_of(transformers.LlamaModel, transformers.LlamaConfig(**DECODER)), 2),
    "gpt2": (lambda: model_of(
        transformers.GPT2Model, transformers.GPT2Config(vocab_size=50, n_embd=24, n_layer=2, n_head=4)), 2),
    "gemma3": (lambda: model_of(transformers.Gemma3TextModel, transformers.Gemma3TextConfig(**DECODER)), 2),
    "modernbert": (lambda: model_of(transformers.ModernBertModel, transformers.ModernBertConfig(
        vocab_size=50, hidden_size=24, intermediate_size=16, num_hidden_layers=3, num_attention_heads=4,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2)), 3),
    "distilbert": (lambda: model_of(transformers.DistilBertModel, transformers.DistilBertConfig(
        vocab_size=50, dim=24, hidden_dim=16, n_layers=2, n_heads=4)), 2),
    "t5": (lambda: model_of(transformers.T5EncoderModel, transformers.T5Config(**SMALL)), 1),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_spans_are_attached_to_every_attention(name):
    make, layers = MODELS[name]
    model, ids = make(), tokens(11)
    expected = model(ids).last_hidden_state
    spans = convert(model, max_span=11, ramp=3)
    assert len(spans) == layers
    assert all(span.fraction.shape == (4,) for span in spans)
    hidden = model(ids).last_hidden_state
    torch.testing.assert_close(hidden, expected, rtol=1e-3, atol=1e-4)
    assert [module.headspan_span for module in model.modules() if hasattr(module, "headspan_span")] == spans
    with torch.no_grad():
        for span in spans:
            span.fraction.fill_(0.2)
    hidden = model(ids).last_hidden_state
    assert (hidden - expected).abs().max() > 1e-3
    hidden.square().sum().backward()
    assert all(span.fraction.grad.abs().max() > 0 for span in spans)
    with pytest.raises(ValueError, match="model already has learned spans, in "):
        convert(model, max_span=11, ramp=3)


def test_a_model_on_meta_loads_weights_of_the_original_model():
    old = MODELS["llama"][0]()
    with torch.device("meta"):
        model = transformers.LlamaModel(transformers.LlamaConfig(**DECODER))
    spans = convert(model, max_span=5, ramp=3)
    rest = {name: x for name, x in model.named_buffers() if x.is_meta}
    missing, unexpected = model.load_state_dict(old.state_dict(), strict=False, assign=True)
    assert not unexpected
    assert sorted(missing) == [f"layers.{layer}.self_attn.headspan_span.fraction" for layer in range(2)]
    assert [span().tolist() for span in spans] == [[5.0] * 4] * 2
    for name in rest:  # buffers that no state dict has
        owner, _, last = name.rpartition(".")
        setattr(model.get_submodule(owner), last, old.get_buffer(name))
    convert(old, max_span=5, ramp=3)
    ids = tokens(11)
    assert torch.equal(model.eval()(ids).last_hidden_state, old(ids).last_hidden_state)


def test_a_model_that_calls_no_attention_functions_is_refused(monkeypatch):
    model = MODELS["llama"][0]()
    monkeypatch.setattr(type(model), "_can_set_attn_implementation", classmethod(lambda cls: False))
    with pytest.raises(ValueError, match="model must call attention functions, which LlamaModel does not"):
        convert(model, max_span=11, ramp=3)
    assert not any(hasattr(module, "headspan_span") for module in model.modules())
