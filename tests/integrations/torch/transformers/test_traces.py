"""Recorded layers as arguments of the view: the same weights, and options by their names."""

import headspan as hs
import numpy as np
import pytest
from families import model_of, tokens
from headspan.patterns import Window
from peers import torch

import headspan.torch  # isort: skip

pytest.importorskip("anywidget", reason="needs anywidget: pip install '.[widget]'")


def recorded(model, ids, **inputs):
    model.set_attn_implementation("headspan")
    with headspan.torch.record(model) as record, torch.no_grad():
        model(input_ids=ids, **inputs)
    return record


def weights_of(trace):
    """The weights that the view shows for the arguments of a layer."""
    options = {name: option for name, option in trace.items() if name not in ("query", "key", "value", "tokens")}
    return hs.attention_weights(trace["query"], trace["key"], **options)


def check(record, item=1):
    """The view of all layers computes the recorded weights; it shows no key that no query sees at the end."""
    view = hs.explore(**record.trace(item=item))
    for index, (number, head) in enumerate(view.meta["heads"]):
        expected = record[number].weights()[item, head]
        keys = view.meta["keys"]
        shown = view._data.weights(index, view.span[index], view.ramp, 1.0)
        np.testing.assert_allclose(shown, expected[:, :keys], atol=1e-6)
        assert not expected[:, keys:].any()
    return view


def test_the_view_of_a_layer():
    model, ids = model_of("llama"), tokens()
    model.set_attn_implementation("headspan")
    headspan.torch.set_spans(model, [[2, 5, 9, 20], None], ramp=3)
    mask = torch.ones_like(ids)
    mask[0, :9] = 0
    layers = recorded(model, ids, attention_mask=mask)
    trace = layers[0].trace(item=0)
    assert trace["key_start"] == 9
    weights = weights_of(trace)
    np.testing.assert_allclose(weights[:, 9:], layers[0].weights()[0, :, 9:], atol=1e-6)
    assert hs.explore(**trace) is not None


@pytest.mark.parametrize("packed", [False, True])
def test_the_view_of_windows_and_packed_texts(packed):
    model, ids = model_of("mistral"), tokens()
    model.set_attn_implementation("headspan")
    headspan.torch.set_spans(model, [[2, 5, 9, 20], None], ramp=3)
    places = torch.cat([torch.arange(13), torch.arange(17)])[None].expand(2, -1)
    layers = recorded(model, ids, **({"position_ids": places, "use_cache": False} if packed else {}))
    for layer in layers.values():
        trace = layer.trace(item=1)
        weights = weights_of(trace)
        np.testing.assert_allclose(weights, layer.weights()[1], atol=1e-6)
        assert (weights[:, 20, :14] == 0).all()
        assert hs.explore(**trace) is not None


def test_the_view_of_padding_within_a_text():
    model, ids = model_of("llama"), tokens()
    model.set_attn_implementation("headspan")
    mask = torch.ones_like(ids)
    mask[1, 11:14] = 0
    for layer in recorded(model, ids, attention_mask=mask).values():
        shown = layer.trace(item=1)
        weights = weights_of(shown)
        np.testing.assert_allclose(weights, layer.weights()[1], atol=1e-6)
        assert (weights[:, 20, 11:14] == 0).all()
        assert hs.explore(**shown) is not None


@pytest.mark.parametrize("padding", [None, "left", "right", "within"])
@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2", "gemma3", "gpt_oss", "gpt2", "bert"])
def test_all_layers_have_the_weights_of_the_model(family, padding):
    ids = tokens()
    mask = torch.ones_like(ids)
    mask[1, {None: slice(0), "left": slice(9), "right": slice(21, None), "within": slice(11, 14)}[padding]] = 0
    view = check(recorded(model_of(family), ids, **({} if padding is None else {"attention_mask": mask})))
    assert view.meta["names"][:2] == ["layer 0, head 0", "layer 0, head 1"]
    assert len(view.meta["names"]) == 8


def test_windows_and_padding_have_their_names():
    model, ids = model_of("gemma2"), tokens()
    mask = torch.ones_like(ids)
    mask[1, :9] = 0
    for mask_of, padding in ((mask, {"key_start": 9}), (mask.flip(1), {"key_stop": 21})):
        layers = recorded(model, ids, attention_mask=mask_of).trace(item=1)["layers"]
        local, everywhere = (
            {name: layer[name] for name in layer.keys() - {"query", "key", "value"}} for layer in layers.values()
        )
        assert local == {"causal": True, "softcap": 2.0, "pattern": Window(7), **padding}
        assert everywhere == {"causal": True, "softcap": 2.0, **padding}


@pytest.mark.parametrize("new", [1, 5])
@pytest.mark.parametrize("cache", ["static", "dynamic"])
@pytest.mark.parametrize("spans", [None, [[2, 5, 9, 20], None]])
def test_generate_has_the_keys_in_use(cache, spans, new):
    """The last call reads the prompt if there is one new token, and otherwise a token after it."""
    model = model_of("llama")
    model.set_attn_implementation("headspan")
    headspan.torch.set_spans(model, spans, ramp=3)
    with headspan.torch.record(model) as record, torch.no_grad():
        model.generate(tokens(), max_new_tokens=new, do_sample=False, cache_implementation=cache)
    view = check(record)
    assert (view.meta["queries"], view.meta["keys"]) == ((30, 30) if new == 1 else (1, 34))


def test_values_are_recorded():
    model, ids = model_of("llama"), tokens()
    record = recorded(model, ids)
    value = record[1].value
    assert value.shape == record[1].key.shape
    output = hs.attention(record[1].query, record[1].key, value, **record[1].options)
    model.set_attn_implementation("eager")
    out = []
    hook = model.model.layers[1].self_attn.o_proj.register_forward_pre_hook(lambda _, inputs: out.append(inputs[0]))
    with torch.no_grad():
        model(input_ids=ids)
    hook.remove()
    np.testing.assert_allclose(output.swapaxes(1, 2).reshape(2, 30, -1), out[0].numpy(), atol=1e-5)
    view = hs.explore(**record.trace())
    norms = np.frombuffer(view.norms, "f4").reshape(2, -1, 30)
    np.testing.assert_allclose(norms[1], np.linalg.norm(value[0], axis=-1), rtol=1e-6)


def test_some_of_the_layers():
    record = recorded(model_of("llama"), tokens())
    assert list(record.trace()["layers"]) == [0, 1]
    assert list(record.trace(1)["layers"]) == list(record.trace(layers=[1])["layers"]) == [1]
    assert hs.explore(**record.trace(1)).head == [1, 0]
    with pytest.raises(KeyError, match=r"layer must be one of the recorded layers \[0, 1\], got 2"):
        record.trace([0, 2])
    with headspan.torch.record(torch.nn.Identity()) as nothing:
        pass
    with pytest.raises(KeyError, match="a layer is recorded when"):
        nothing.trace()


def test_what_the_view_cannot_show_is_named():
    model, ids = model_of("t5"), tokens()
    model.set_attn_implementation("headspan")
    with headspan.torch.record(model.encoder) as record, torch.no_grad():
        model(input_ids=ids, decoder_input_ids=ids[:, :20])
    with pytest.raises(NotImplementedError, match=r"^the view does not show pair_bias: look at weights\(\)"):
        record[0].trace()
    with pytest.raises(NotImplementedError, match="layer 0: the view does not show pair_bias"):
        record.trace()


def test_tokens_are_shown_as_text():
    record = recorded(model_of("llama"), tokens(1))
    marked = ["\u0120the", "\u010a"] * 15
    assert record.trace(tokens=marked)["tokens"] == [" the", "\n"] * 15
    assert record[0].trace(tokens=marked)["tokens"] == [" the", "\n"] * 15
    assert hs.explore(**record.trace(tokens=marked)).meta["tokens"] == [" the", "\n"] * 15
    with pytest.raises(ValueError, match="tokens must hold 30 strings"):
        hs.explore(**record.trace(tokens=marked[:5]))
