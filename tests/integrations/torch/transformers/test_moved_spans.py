"""Spans that are moved in the view of a model: its loss and predictions follow, from the changed layer on."""

import headspan as hs
import numpy as np
import pytest
from families import DECODERS, model_of, tokens
from letters import letters
from peers import torch

import headspan.torch  # isort: skip

pytest.importorskip("anywidget", reason="needs anywidget: pip install '.[widget]'")

IDS = tokens(1, 40)[0]
LAYERS = {"num_hidden_layers": 4}


def headspan_model(family="llama", **changes):
    model = model_of(family, **changes)
    model.set_attn_implementation("headspan")
    return model


def moved(view, layer, span, head=None):
    """The spans of a view after a layer, or one of its heads, has moved."""
    return [
        span if number == layer and head in (None, of) else old
        for (number, of), old in zip(view.meta["heads"], view.span, strict=True)
    ]


@torch.no_grad()
def reference(model, ids, spans=None, ramp=32.0, first_tokens=0):
    """The loss, and the probabilities of all next tokens, of a model that is run as a whole with spans."""
    before = dict(vars(model.config))
    if spans is not None:
        headspan.torch.set_spans(model, spans, ramp=ramp, first_tokens=first_tokens)
    logits = model(ids[None]).logits[0].double()
    vars(model.config).clear()
    vars(model.config).update(before)
    loss = torch.nn.functional.cross_entropy(logits[:-1], ids[1:])
    return float(loss), logits.softmax(dim=-1).numpy()


def check(view, model, ids=IDS):
    spans = view.model_spans
    loss, probabilities = reference(model, ids, spans.spans, spans.ramp, spans.first_tokens)
    assert view.loss == pytest.approx(loss, abs=1e-5)
    view.asked = {"span": view.span, "ramp": view.ramp, "number": view.asked.get("number", 0) + 1}
    assert view.predicted["loss"] == view.loss
    assert (view.predicted["span"], view.predicted["ramp"]) == (view.span, view.ramp)
    candidates = np.frombuffer(view.candidates, "<i4").reshape(len(ids), 5)
    shares = np.frombuffer(view.probabilities, "<f4").reshape(len(ids), 6)
    best = np.sort(probabilities, axis=1)[:, ::-1][:, :5]
    np.testing.assert_allclose(shares[:, :5], best, atol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(probabilities, candidates.astype(int), 1), best, atol=1e-5)
    following = probabilities[np.arange(len(ids) - 1), ids[1:].numpy()]
    np.testing.assert_allclose(shares[:-1, 5], following, atol=1e-5)
    assert np.isnan(shares[-1, 5])


@pytest.mark.parametrize("family", DECODERS)
def test_the_loss_and_the_predictions_are_those_of_the_whole_model(family):
    model = headspan_model(family)
    view = headspan.torch.explore(model, IDS)
    full, _ = reference(model, IDS)
    assert view.recorded_loss == pytest.approx(full, abs=1e-5)
    assert view.loss == view.recorded_loss
    for layer, span, head in ((1, 3, None), (0, 9, 2), (1, 12, 0), (0, 40, 2)):
        view.span = moved(view, layer, span, head)
        check(view, model)
        assert view.loss != view.recorded_loss
    view.ramp = 4
    check(view, model)


def layers_run(model):
    """The layers that are run, by calls of their multilayer perceptron."""
    calls = []
    for layer, module in enumerate(model.model.layers):
        module.mlp.register_forward_hook(lambda *_, layer=layer: calls.append(layer))
    return calls


def test_layers_below_the_first_changed_one_are_not_run():
    model = headspan_model(**LAYERS)
    view = headspan.torch.explore(model, IDS)
    calls = layers_run(model)
    for span, layer in enumerate([2, 1, 3, 0, 3, 2]):
        calls.clear()
        view.span = moved(view, layer, span)
        assert view.loss == view.loss
        ran = list(range(layer, 4))
        assert calls == ran
        check(view, model)
        assert view.predicted["layers"] == len(ran)
    view.span = None
    calls.clear()
    assert view.loss == view.recorded_loss  # the same bits
    assert calls == [0, 1, 2, 3]
    view.span = [1000.0] * 16  # as far as all tokens
    view.ramp = 5  # without a limit it does not matter
    assert view.loss == view.recorded_loss
    assert calls == [0, 1, 2, 3]


def test_spans_of_the_model_stay_and_those_of_the_view_can_be_set(tmp_path):
    model = headspan_model(num_key_value_heads=2)
    headspan.torch.set_spans(model, [[2, 5, 100, np.inf], None], ramp=4, first_tokens=2)
    model.train()
    before = dict(vars(model.config))
    view = headspan.torch.explore(model, IDS)
    assert view.recorded["limited"]
    start = view.model_spans
    np.testing.assert_array_equal(start.spans, [[2, 5, 100, np.inf], [np.inf] * 4])
    assert (start.ramp, start.first_tokens, start.num_key_heads) == (4, 2, 2)
    view.span = [2, 5, 40, 8, 40, 3, 40, 40]
    assert view.loss != view.recorded_loss
    assert vars(model.config) == before
    assert all(module.training for module in model.modules())
    assert not any("forward" in vars(module) for module in model.modules())
    spans = view.model_spans
    np.testing.assert_array_equal(spans.spans, [[2, 5, 100, 8], [np.inf, 3, np.inf, np.inf]])
    model.eval()
    check(view, model)
    spans.save(tmp_path / "spans.json")
    loaded = hs.ModelSpans.load(tmp_path / "spans.json")
    headspan.torch.set_spans(model, loaded.spans, ramp=loaded.ramp, first_tokens=loaded.first_tokens)
    assert reference(model, IDS)[0] == pytest.approx(view.loss, abs=1e-5)
    again = headspan.torch.explore(model, IDS)
    assert again.recorded_loss == pytest.approx(view.loss, abs=1e-5)


def test_spans_of_some_layers_are_moved_among_those_of_all():
    model = headspan_model(**LAYERS)
    headspan.torch.set_spans(model, [[3], [4], [5], [6]], ramp=2)
    view = headspan.torch.explore(model, IDS, layers=[1, 3])
    view.span = [7.0] * 4 + [6.0] * 4
    np.testing.assert_array_equal(view.model_spans.spans[:, 0], [3, 7, 5, 6])
    check(view, model)


def test_an_error_reaches_the_user_and_the_next_result_is_right():
    model = headspan_model(**LAYERS)
    view = headspan.torch.explore(model, IDS)
    before = dict(vars(model.config))

    def fail(*_):
        raise RuntimeError("out of memory\nand more lines")

    hook = model.model.layers[2].mlp.register_forward_hook(fail)
    view.span = moved(view, 1, 3)
    view.asked = {"span": view.span, "ramp": view.ramp}
    assert view.predicted == {
        "span": view.span, "ramp": view.ramp, "error": "The model could not be recomputed: out of memory."
    }  # fmt: skip
    assert vars(model.config) == before
    with pytest.raises(RuntimeError, match="out of memory"):
        assert view.loss
    hook.remove()
    calls = layers_run(model)
    assert view.loss != view.recorded_loss
    assert calls == [2, 3]  # layer 1 had been run
    check(view, model)
    view.span = moved(view, 3, 3)
    hook = model.lm_head.register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        assert view.loss
    hook.remove()
    check(view, model)


@pytest.mark.parametrize(("change", "words"), [("live=False", "live=False"), ("learned", "freeze_spans")])
def test_a_view_that_is_not_live_shows_the_recording(change, words):
    model = headspan_model()
    if change == "learned":
        headspan.torch.convert(model, max_span=100, ramp=8)
    view = headspan.torch.explore(model, IDS, live=False if change == "live=False" else None)
    assert words in view.recorded["refusal"]
    assert view.loss == view.recorded_loss
    assert view.recorded_loss == pytest.approx(reference(model, IDS)[0], abs=1e-5)
    view.span = 3
    with pytest.raises(ValueError, match=f"the model cannot be computed with other spans: .*{words}"):
        assert view.loss
    if change == "learned":
        with pytest.raises(ValueError, match=r"live must be False or None, because .*freeze_spans"):
            headspan.torch.explore(model, IDS, live=True)


def test_large_hidden_states_are_kept_only_on_request(monkeypatch):
    monkeypatch.setattr("headspan.torch.transformers.rerun.MOST_BYTES", 4 * 40 * 24 * 2 - 1)
    model = headspan_model()
    assert "live=True keeps them" in headspan.torch.explore(model, IDS).recorded["refusal"]
    view = headspan.torch.explore(model, IDS, live=True)
    view.span = 3
    check(view, model)


def test_candidates_have_the_texts_of_the_tokenizer():
    view = headspan.torch.explore(headspan_model(vocab_size=11), "a b c d", letters())
    texts = view.recorded["texts"]
    assert texts.items() <= {str(place): text for place, text in enumerate(["<s>", *"abcdefghij"])}.items()
    assert {int(text) for text in texts} == set(np.frombuffer(view.recorded_candidates, "<i4").tolist())


def test_models_without_next_tokens_have_no_predictions():
    encoder = headspan_model("bert")
    assert not hasattr(headspan.torch.explore(encoder, IDS), "predicted")
    assert not hasattr(headspan.torch.explore(headspan_model().model, IDS), "predicted")
    one = headspan.torch.explore(headspan_model(), IDS[:1])
    assert one.loss is None
