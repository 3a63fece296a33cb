"""Spans fitted to models of transformers: the loss that is reported is that of the model afterwards."""

import headspan as hs
import numpy as np
import pytest
from families import make_loud, model_of, tokens
from letters import letters
from peers import torch, transformers
from torch.nn import functional as F

import headspan.torch  # isort: skip
from headspan.torch.fitting.data import windows_of
from headspan.torch.fitting.fit import slopes_of
from headspan.torch.fitting.losses import Losses
from headspan.torch.fitting.mass import mass_by_distance
from headspan.torch.fitting.places import Places

IDS = tokens(8, 60)


def made(family="llama", **changes):
    model = model_of(family, **changes)
    model.set_attn_implementation("headspan")
    return model


@torch.no_grad()
def mean_loss(model, ids):
    half = ids.shape[1] // 2
    logits = model(ids).logits[:, half - 1 : -1]
    return float(F.cross_entropy(logits.flatten(0, 1), ids[:, half:].flatten()))


@pytest.mark.parametrize("method", ["profile", "learn"])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_the_model_has_the_spans_and_the_loss_that_are_reported(family, method):
    model = made(family)
    weights = {name: x.clone() for name, x in model.state_dict().items()}
    before = mean_loss(model, IDS[6:])
    fit = headspan.torch.fit_spans(model, IDS, budget=0.3, method=method, ramp=4)
    assert fit.loss_before == pytest.approx(before, abs=1e-5)
    assert fit.loss_after == pytest.approx(mean_loss(model, IDS[6:]), abs=1e-5)
    assert fit.fitted_after == pytest.approx(mean_loss(model, IDS[:6]), abs=1e-5)
    assert fit.fitted_after <= fit.uniform.fitted_loss
    layers, heads = fit.spans.shape
    assert fit.pairs == hs.cost(tokens=60, num_heads=layers * heads, head_dim=6, span=fit.spans.ravel(), ramp=4).pairs
    assert fit.share <= 0.3
    assert all(torch.equal(x, weights[name]) for name, x in model.state_dict().items())
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert not any(hasattr(module, "headspan_span") for module in model.modules())
    headspan.torch.set_spans(model, np.full(fit.spans.shape, fit.uniform.span), ramp=4)
    assert fit.uniform.loss == pytest.approx(mean_loss(model, IDS[6:]), abs=1e-5)


def test_heads_that_share_keys_share_a_span_and_the_cache_has_the_bytes_reported():
    model = made()
    assert model.config.num_key_value_heads == 2
    fit = headspan.torch.fit_spans(model, IDS, budget=0.3, ramp=1)
    assert (fit.spans[:, 0::2] == fit.spans[:, 1::2]).all()
    cache = headspan.torch.head_cache(model)
    with torch.no_grad():
        model(IDS[:1], cache=cache, use_cache=True)
    assert cache.nbytes == pytest.approx(fit.cache_bytes, rel=0.1)
    assert fit.cache_bytes < fit.full_cache_bytes / 3


def test_a_head_that_needs_all_tokens_has_no_limit():
    model = made()
    headspan.torch.fit_spans(model, IDS, budget=1.0, ramp=4, method="profile")
    longer, limited = tokens(1, 200), model.config.headspan_spans
    with torch.no_grad():
        logits = model(longer).logits
        headspan.torch.set_spans(model, np.where(np.array(limited) > 1e9, 500, limited), ramp=4)
        torch.testing.assert_close(logits, model(longer).logits)
    assert (np.array(limited) > 1e9).any()


def test_sinks_are_kept_for_the_fit_and_given_to_the_model():
    model = made()
    fit = headspan.torch.fit_spans(model, IDS, budget=0.4, ramp=2, first_tokens=4)
    assert model.config.headspan_first_tokens == 4
    assert fit.loss_after == pytest.approx(mean_loss(model, IDS[6:]), abs=1e-5)
    pattern = hs.patterns.Full() | hs.patterns.Global(range(4))
    counted = hs.cost(tokens=60, num_heads=8, head_dim=6, span=fit.spans.ravel(), ramp=2, pattern=pattern)
    assert fit.pairs == counted.pairs
    headspan.torch.set_spans(model, fit.spans, ramp=2)
    assert abs(mean_loss(model, IDS[6:]) - fit.loss_after) > 1e-4
    with pytest.raises(ValueError, match="budget must be at least"):
        headspan.torch.fit_spans(model, IDS, budget=0.01, ramp=2, first_tokens=9)
    assert model.config.headspan_first_tokens == 0


def test_fitted_spans_replace_learned_spans():
    model = made()
    learned = headspan.torch.convert(model, max_span=20, ramp=4)
    fit = headspan.torch.fit_spans(model, IDS, budget=0.8)
    assert fit.ramp == 4
    np.testing.assert_allclose([span().detach() for span in learned], fit.spans, rtol=1e-5)
    assert fit.loss_after == pytest.approx(mean_loss(model, IDS[6:]), abs=1e-5)


def test_an_error_leaves_the_model_without_spans():
    model = made().train()

    def fails(model, ids):
        assert not model.training
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        headspan.torch.fit_spans(model, IDS, budget=0.3, ramp=4, loss=fails)
    assert getattr(model.config, "headspan_spans", None) is None
    assert not any(hasattr(module, name) for module in model.modules() for name in ("headspan_span", "headspan_ramp"))
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())


@torch.no_grad()
def test_mass_by_distance_is_that_of_the_whole_map():
    model = made()
    with headspan.torch.record(model) as layers:
        model(IDS[:1])
    expected = np.zeros((2, 4, 60))
    for index, layer in layers.items():
        weights = layer.weights()[0]
        for row in range(60):
            expected[index][:, : row + 1] += weights[:, row, row::-1]
    attentions = [layer.self_attn for layer in model.model.layers]
    mass = mass_by_distance(model, attentions, IDS)
    np.testing.assert_allclose(mass, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(mass.sum(-1), 60, rtol=1e-5)


def test_wrong_arguments():
    def bad(error, match, model=None, data=IDS, **options):
        with pytest.raises(error, match=match):
            headspan.torch.fit_spans(model or made(), data, **{"budget": 0.5} | options)

    bad(ValueError, "fitting needs a model with attn_implementation='headspan', not 'eager'", model=model_of("llama"))
    bad(ValueError, "fitting is for layers of full attention, not of .*sliding_attention", model=made("mistral"))
    bad(TypeError, r"data must be token ids of shape \(windows, tokens\), or texts with a tokenizer", data=IDS.float())
    bad(TypeError, r"held_out must be token ids of shape \(windows, tokens\)", held_out=[IDS])
    bad(ValueError, "budget must be at least .* with a ramp of 32 on 60 tokens", budget=0.3)
    bad(ValueError, "loss must be 'distill', 'next_token' or a function, not 'kl'", loss="kl")
    bad(TypeError, "data must be a text or a sequence of texts if a tokenizer is given", data=[3], tokenizer=letters())
    bad(ValueError, "data must contain a text of at least 50 tokens", data="a b", tokenizer=letters(), tokens=50)


@pytest.mark.parametrize("bos", [False, True])
def test_texts_are_cut_into_windows(bos):
    windows = windows_of("data", ["a b c d e f g", "h", "i j a b"], letters(bos), 4)
    expected = [[0, 1, 2, 3], [0, 4, 5, 6], [0, 9, 10, 1]] if bos else [[1, 2, 3, 4], [9, 10, 1, 2]]
    assert windows.tolist() == expected
    assert windows_of("data", "a b c d", letters(), 4).tolist() == [[1, 2, 3, 4]]


def test_a_model_is_fitted_to_texts_as_to_their_windows():
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(list("abcdefghij"), 400)) for _ in range(2)]
    options = {"budget": 0.5, "budget_of": "cache", "ramp": 2, "steps": 8}
    fit = headspan.torch.fit_spans(made(), texts, tokenizer=letters(), tokens=60, **options)
    same = headspan.torch.fit_spans(made(), windows_of("data", texts, letters(), 60), **options)
    assert np.array_equal(fit.spans, same.spans)
    assert fit.cache_bytes <= 0.5 * fit.full_cache_bytes


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_distillation_is_the_distance_of_predictions_and_its_gradient(family):
    model, half = made(family), 30
    places = Places(model)
    full, part = (np.full((2, 4), span) for span in (60.0, 9.0))
    with places.lent(4.0, 0) as lent:

        def put(spans):
            for layer, heads in zip(lent, spans, strict=True):
                layer.value = torch.tensor(heads, dtype=torch.float32, requires_grad=True)

        losses = Losses(model, None, distills=True)
        increase = losses.increase(0, IDS[:3], lambda: put(full), lambda: put(part))
        slopes = slopes_of(increase, [layer.value for layer in lent])
        with torch.no_grad():
            put(part)
            seen = model(IDS[:3]).logits[:, half - 1 : -1].double().log_softmax(-1)
            put(full)
            expected = model(IDS[:3]).logits[:, half - 1 : -1].double().log_softmax(-1)
    distance = (expected.exp() * (expected - seen)).sum(-1).mean()
    assert float(increase.detach()) == pytest.approx(float(distance), rel=1e-3)
    assert (slopes != 0).all()


@pytest.mark.parametrize("loss", ["distill", "next_token"])
def test_both_losses_of_next_tokens_keep_the_budget(loss):
    model = made()
    fit = headspan.torch.fit_spans(model, IDS, budget=0.3, ramp=4, loss=loss, steps=12)
    assert fit.share <= 0.3
    assert fit.loss_after == pytest.approx(mean_loss(model, IDS[6:]), abs=1e-5)


def masked(ids):
    """Batches of a masked language model, in which every fifth token is masked and predicted."""
    hidden = torch.zeros_like(ids, dtype=torch.bool)
    hidden[:, ::5] = True
    pairs = zip(ids.masked_fill(hidden, 1).split(2), ids.masked_fill(~hidden, -100).split(2), strict=True)
    return [{"input_ids": inputs, "labels": labels} for inputs, labels in pairs]


def test_a_masked_language_model_needs_its_own_loss():
    model = made("bert")
    with pytest.raises(ValueError, match="loss must be given for BertForMaskedLM, whose attention is bidirectional"):
        headspan.torch.fit_spans(model, IDS, budget=0.4, ramp=2)
    assert not hasattr(model.config, "headspan_spans")
    batches = masked(IDS)
    options = {"tokens": 60, "budget": 0.4, "ramp": 2, "held_out": batches[3:]}
    fit = headspan.torch.fit_spans(model, batches[:3], loss=lambda model, batch: model(**batch).loss, **options)
    assert model.config.headspan_spans == fit.spans.tolist()
    with torch.no_grad():
        assert fit.loss_after == pytest.approx(float(model(**batches[3]).loss), abs=1e-5)


@pytest.mark.parametrize(
    ("kind", "got"),
    [
        ("LlamaModel", "no logits"),
        ("LlamaForSequenceClassification", r"shape \(6, 2\)"),
        ("LlamaForTokenClassification", r"shape \(6, 60, 2\)"),
    ],
)
def test_a_model_that_predicts_no_tokens_needs_its_own_loss(kind, got):
    model = getattr(transformers, kind)(made().config).train()
    with pytest.raises(
        ValueError, match=rf"logits of shape \(windows, tokens, vocab.* got {got} from {kind}; pass a loss"
    ):
        headspan.torch.fit_spans(model, IDS, budget=0.4, ramp=2)
    assert model.training
    assert not hasattr(model.config, "headspan_spans")


def test_learned_spans_in_some_layers_only_are_refused():
    model = made()
    headspan.torch.convert(model.model.layers[0], max_span=20, ramp=4)
    with pytest.raises(ValueError, match="model must have learned spans in all attentions or in none"):
        headspan.torch.fit_spans(model, IDS, budget=0.8)


def encoder(name, **changes):
    """An encoder of transformers whose attentions have no numbers, for hidden states or token ids of 40 places."""
    sizes = {"hidden_size": 24, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 32}
    if name == "Whisper":
        sizes = {"d_model": 24, "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 32}
        changes |= {"num_mel_bins": 8, "max_source_positions": 40, "is_encoder_decoder": False}
    config = getattr(transformers, f"{name}Config")(**sizes | changes)
    config._attn_implementation = "headspan"
    torch.manual_seed(0)
    kind = transformers.models.whisper.modeling_whisper.WhisperEncoder if name == "Whisper" else None
    model = (kind or getattr(transformers, f"{name}Model"))(config).eval()
    make_loud(model)
    return model


ENCODERS = {
    "Albert": {"vocab_size": 50, "embedding_size": 16, "num_hidden_groups": 2},
    "Bert": {"vocab_size": 50},
    "Whisper": {},
}


def inputs_of(name):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(6, 8, 80, generator=generator) if name == "Whisper" else tokens(6, 40)


@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_is_fitted_with_the_pairs_on_both_sides(name):
    model = encoder(name, **ENCODERS[name])
    with torch.no_grad():
        batches = [(inputs, model(inputs).last_hidden_state) for inputs in inputs_of(name).split(2)]

    def loss(model, batch):
        return 1 + (model(batch[0]).last_hidden_state - batch[1]).square().mean()

    options = {"loss": loss, "tokens": 40, "budget": 0.5, "ramp": 2, "steps": 8}
    fit = headspan.torch.fit_spans(model, batches[:2], held_out=batches[2:], **options)
    counted = hs.cost(tokens=40, num_heads=8, head_dim=6, span=fit.spans.ravel(), ramp=2, causal=False)
    assert fit.pairs == counted.pairs <= 0.5 * fit.full_pairs
    assert fit.full_pairs == 8 * 40 * 40
    assert not fit.is_causal
    assert "cache" not in str(fit)
    assert model.config.headspan_spans == np.where(fit.spans >= 40, 1e30, fit.spans).tolist()
    with torch.no_grad():
        assert fit.loss_after == pytest.approx(float(loss(model, batches[2])), abs=1e-5)
    with pytest.raises(ValueError, match=r"causal must be False for .*, or not given, not True"):
        headspan.torch.fit_spans(model, batches[:2], held_out=batches[2:], causal=True, **options)
    with pytest.raises(ValueError, match="budget_of must be 'pairs' if causal is False"):
        headspan.torch.fit_spans(model, batches[:2], held_out=batches[2:], budget_of="cache", **options)


def test_layers_that_share_one_attention_cannot_have_spans_of_their_own():
    model = encoder("Albert", vocab_size=50, embedding_size=16)
    match = "each of the 2 layers must have its own attention, but AlbertModel has 1; set num_hidden_groups"
    with pytest.raises(ValueError, match=match):
        headspan.torch.set_spans(model, 9)
    assert getattr(model.config, "headspan_spans", None) is None


def test_an_attention_without_a_number_does_not_find_its_spans():
    model = encoder("Albert", **ENCODERS["Albert"])
    other = encoder("Albert", **ENCODERS["Albert"])
    headspan.torch.set_spans(model, 9, ramp=2)
    other.config.headspan_spans, other.config.headspan_ramp = model.config.headspan_spans, 2
    with pytest.raises(ValueError, match="AlbertAttention has no number, layer_idx"):
        other(tokens(1, 40))
    headspan.torch.set_spans(other, other.config.headspan_spans, ramp=2)
    with torch.no_grad():
        assert torch.equal(other(tokens(1, 40))[0], model(tokens(1, 40))[0])
