"""Models with spans that are saved and loaded again, by the configuration and by their weights."""

import copy
import json

import pytest
from families import model_of, tokens
from peers import torch, transformers
from safetensors.torch import load_file

import headspan.torch  # isort: skip

LEARNED = torch.tensor([[0.1, 0.4, 0.0, 1.0], [0.7, 0.05, 0.3, 0.2]])
NAMED = transformers.LlamaConfig.from_dict({"attn_implementation": "headspan"})._attn_implementation == "headspan"
reads_the_name = pytest.mark.skipif(not NAMED, reason="older transformers do not read the name in a configuration")


def logits_of(model):
    with torch.no_grad():
        return model(tokens()).logits


def converted(family="llama"):
    model = model_of(family)
    spans = headspan.torch.convert(model, max_span=20, ramp=4)
    with torch.no_grad():
        for span, fraction in zip(spans, LEARNED, strict=True):
            span.fraction.copy_(fraction)
    return model


def loaded(model, path, **options):
    model.save_pretrained(path)
    return type(model).from_pretrained(path, **options).eval()


@pytest.mark.parametrize("options", [{"attn_implementation": "headspan"}, pytest.param({}, marks=reads_the_name)])
def test_spans_of_a_configuration_are_loaded(options, tmp_path):
    """Also without the name of the attention, which the configuration has, and after a second save."""
    model = model_of("llama")
    full = logits_of(model)
    model.set_attn_implementation("headspan")
    headspan.torch.set_spans(model, [[2, 5, 9, 20], None], ramp=3)
    expected = logits_of(model)
    assert (expected - full).abs().max() > 1e-2
    again = loaded(model, tmp_path / "one", **options)
    assert torch.equal(logits_of(again), expected)
    assert torch.equal(logits_of(loaded(again, tmp_path / "two", **options)), expected)
    headspan.torch.set_spans(model, None)
    assert "attn_implementation" not in model.config.to_dict()


@reads_the_name
def test_a_model_with_spans_is_not_loaded_without_headspan(tmp_path, monkeypatch):
    model = model_of("llama")
    model.set_attn_implementation("headspan")
    headspan.torch.set_spans(model, 5)
    monkeypatch.delitem(transformers.AttentionInterface._global_mapping, "headspan")
    with pytest.raises(ValueError, match="headspan"):
        loaded(model, tmp_path)


@reads_the_name
def test_spans_of_a_part_of_a_configuration(tmp_path):
    text = {"vocab_size": 50, "hidden_size": 24, "intermediate_size": 16, "num_hidden_layers": 2}
    text |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    places = {"image_token_index": 49, "boi_token_index": 48, "eoi_token_index": 47, "mm_tokens_per_image": 4}
    config = transformers.Gemma3Config(
        text_config=text, vision_config=vision | {"image_size": 28, "patch_size": 14}, **places
    )
    model = transformers.Gemma3ForConditionalGeneration(config)
    model.set_attn_implementation({"text_config": "headspan"})
    headspan.torch.set_spans(model, [[3], [4]])
    again = loaded(model, tmp_path).config
    assert (again.text_config._attn_implementation, again.vision_config._attn_implementation) == ("headspan", "sdpa")
    headspan.torch.set_spans(model, None)
    assert "attn_implementation" not in model.config.to_dict()


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_learned_spans_are_frozen_and_saved(family, tmp_path):
    model = converted(family)
    expected = logits_of(model)
    headspan.torch.freeze_spans(model)
    assert not any("headspan" in name for name in model.state_dict())
    torch.testing.assert_close(torch.tensor(model.config.headspan_spans), 20 * LEARNED)
    assert model.config.headspan_ramp == 4
    assert torch.equal(logits_of(model), expected)
    again = loaded(model, tmp_path, attn_implementation="headspan")
    assert torch.equal(logits_of(again), expected)
    # Learning can start from the loaded spans.
    spans = headspan.torch.convert(again, max_span=20, ramp=4)
    torch.testing.assert_close(torch.stack([span.fraction for span in spans]), LEARNED)
    torch.testing.assert_close(logits_of(again), expected, rtol=0, atol=1e-4)
    assert again.config.headspan_spans is None


def test_spans_beyond_the_limit_start_at_it_and_layers_without_spans_too():
    model = model_of("llama")
    model.set_attn_implementation("headspan")
    headspan.torch.set_spans(model, [[2, 5, 9, 50], None], ramp=3)
    spans = headspan.torch.convert(model, max_span=10, ramp=4)
    assert [span().tolist() for span in spans] == [[2, 5, 9, 10], [10] * 4]


def test_weights_with_learned_spans_are_taken_by_a_converted_model(tmp_path):
    model = converted()
    expected = logits_of(model)
    again = loaded(model, tmp_path, attn_implementation="headspan")
    for call in (lambda: logits_of(again), lambda: headspan.torch.head_cache(again)):
        with pytest.raises(ValueError, match="layer 0 was saved with learned spans, which are not loaded"):
            call()
    other = copy.deepcopy(again)
    headspan.torch.set_spans(other, None)
    torch.testing.assert_close(logits_of(other), logits_of(model_of("llama")), rtol=0, atol=1e-4)
    headspan.torch.convert(again, max_span=20, ramp=4)
    missing, unexpected = again.load_state_dict(load_file(tmp_path / "model.safetensors"), strict=False)
    assert not unexpected
    assert not [name for name in missing if "headspan" in name]
    assert torch.equal(logits_of(again), expected)


def test_a_model_that_is_trained_on_is_saved_as_a_copy(tmp_path):
    model = converted()
    frozen = copy.deepcopy(model)
    headspan.torch.freeze_spans(frozen)
    again = loaded(frozen, tmp_path, attn_implementation="headspan")
    assert torch.equal(logits_of(again), logits_of(model))
    assert sum("headspan_span" in name for name, _ in model.named_parameters()) == 2
    config = json.loads((tmp_path / "config.json").read_text())
    assert "headspan_learned" not in config


def test_models_that_cannot_be_frozen():
    with pytest.raises(ValueError, match="model must have learned spans"):
        headspan.torch.freeze_spans(model_of("llama"))
    with pytest.raises(TypeError, match="one of transformers"):
        headspan.torch.freeze_spans(torch.nn.Linear(3, 3))
    encoder_decoder = model_of("t5")
    headspan.torch.convert(encoder_decoder, max_span=20, ramp=4)
    with pytest.raises(ValueError, match="a decoder only"):
        headspan.torch.freeze_spans(encoder_decoder)
    other = converted()
    other.model.layers[1].self_attn.config = copy.deepcopy(other.config)
    with pytest.raises(ValueError, match="model must be a single part"):
        headspan.torch.freeze_spans(other)
    assert sum(hasattr(module, "headspan_span") for module in other.modules()) == 2
