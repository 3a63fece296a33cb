"""A cache of heads has the spans that the model had when it was made, and is refused by a model with other spans."""

import copy

import pytest
from families import model_of, tokens
from peers import torch

import headspan.torch  # isort: skip

pytestmark = pytest.mark.usefixtures("without_gradients")
GENERATE = {"max_new_tokens": 20, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}


@pytest.fixture
def without_gradients():
    with torch.no_grad():
        yield


def spanned(spans=2, ramp=4.0, first_tokens=0, **changes):
    model = model_of("llama", **changes)
    model.set_attn_implementation("headspan")
    headspan.torch.set_spans(model, spans, ramp=ramp, first_tokens=first_tokens)
    return model


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        ("span 2 instead of 9 for head 0 in layer 0", {"spans": 9}),
        ("span 2 instead of 5.5 for head 3 in layer 1", {"spans": [[2], [2, 2, 2, 5.5]]}),
        ("spans instead of no limit in layer 0", {"spans": None}),
        ("ramp 4 instead of 8 in layer 0", {"ramp": 8}),
        ("first_tokens 0 instead of 3 in layer 0", {"first_tokens": 3}),
    ],
)
@pytest.mark.parametrize("kind", ["the same model", "another model"])
def test_other_spans_are_refused(kind, words, changes):
    model = spanned()
    cache = headspan.torch.head_cache(model)
    if kind == "the same model":
        headspan.torch.set_spans(model, **{"spans": 2, "ramp": 4.0} | changes)
        other = model
    else:
        other = spanned(**changes)
    with pytest.raises(ValueError, match=f"cache must be made for the current spans of the model, got {words}; make"):
        other.generate(tokens(), cache=cache, **GENERATE)


def test_its_own_model_can_use_a_cache_that_another_has_refused():
    model, ids = spanned(), tokens()
    cache = headspan.torch.head_cache(model)
    with pytest.raises(ValueError, match="cache must be made for the current spans"):
        spanned(9)(ids, cache=cache)
    assert cache.get_seq_length() == 0
    assert torch.equal(model.generate(ids, cache=cache, **GENERATE), model.generate(ids, **GENERATE))


def test_spans_that_change_during_generation_are_refused():
    model, ids = spanned(), tokens()
    cache = headspan.torch.head_cache(model)
    model(ids[:, :20], cache=cache)
    headspan.torch.set_spans(model, 1, ramp=4.0)
    with pytest.raises(ValueError, match="span 2 instead of 1 for head 0"):
        model(ids[:, 20:], cache=cache)


def test_limits_of_a_model_that_had_none_are_refused():
    model = spanned(None)
    cache = headspan.torch.head_cache(model)
    headspan.torch.set_spans(model, 2)
    with pytest.raises(ValueError, match="got no limit instead of spans in layer 0"):
        model(tokens(), cache=cache)


def test_learned_spans_that_change_are_refused():
    model = model_of("llama")
    spans = headspan.torch.convert(model, max_span=40, ramp=4.0)
    cache = headspan.torch.head_cache(model)
    spans[1].fraction[2] = 0.25
    with pytest.raises(ValueError, match="span 40 instead of 10 for head 2 in layer 1"):
        model(tokens(), cache=cache)


def test_other_layers_and_heads_are_refused():
    cache = headspan.torch.head_cache(spanned())
    with pytest.raises(
        ValueError, match="cache must have all layers of the model, got 2 layers and a call from layer 2"
    ):
        spanned(num_hidden_layers=3)(tokens(), cache=cache)
    with pytest.raises(ValueError, match="got spans of 4 heads instead of 8 in layer 0"):
        spanned(num_attention_heads=8)(tokens(), cache=headspan.torch.head_cache(spanned()))


def test_settings_that_the_caller_passes_are_not_compared():
    model, ids = spanned(), tokens()
    near = model.generate(ids, **GENERATE)
    headspan.torch.set_spans(model, 30, ramp=1, first_tokens=2)
    cache = headspan.torch.head_cache(model, 2, ramp=4.0, first_tokens=0)
    assert torch.equal(model.generate(ids, cache=cache, **GENERATE), near)
    cache = headspan.torch.head_cache(model, ramp=2, first_tokens=0)
    assert model.generate(ids, cache=cache, **GENERATE).shape == near.shape


def test_a_copy_of_the_model_with_the_same_spans_can_use_it():
    model, ids = spanned([[2.1, 5.3, 0, 40], [30, 1, 7.7, 3]]), tokens()
    other = copy.deepcopy(model)
    generated = other.generate(ids, cache=headspan.torch.head_cache(model), **GENERATE)
    assert torch.equal(generated, model.generate(ids, **GENERATE))


def test_ramps_of_learned_and_fixed_spans_are_not_mixed():
    model = spanned()
    headspan.torch.convert(model.model.layers[0], max_span=20, ramp=9)
    for call in (headspan.torch.head_cache, headspan.torch.freeze_spans):
        with pytest.raises(ValueError, match=r"ramp must be given, because layers have different ones: \[4.0, 9.0\]"):
            call(model)
