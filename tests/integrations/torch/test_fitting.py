"""Spans fitted to layers of PyTorch: what each head needs is found, and nothing else of the model is changed."""

import copy

import headspan as hs
import numpy as np
import pytest
from headspan.patterns import Window
from tensors import torch

from headspan.torch import AdaptiveSpanAttention, TransformerBlock, convert, fit_spans  # isort: skip
from headspan.torch.fitting.data import Data
from headspan.torch.fitting.fit import slopes_of
from headspan.torch.fitting.losses import Losses
from headspan.torch.fitting.places import Places

TOKENS, WIDTH = 96, 16


class Needs(torch.nn.Module):
    """Two layers whose heads see the given numbers of tokens, limited by their patterns."""

    def __init__(self, needs, **options):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList(
            AdaptiveSpanAttention(
                WIDTH, len(row), max_span=TOKENS, ramp=2, pattern=[Window(n + 1) for n in row], **options
            )
            for row in needs
        )
        for parameter in self.parameters():
            parameter.data.mul_(1.5)

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return x


class Distance:
    """The error of the results of a model with respect to those with full attention."""

    def __init__(self, model, x):
        full = copy.deepcopy(model)
        for layer in full.layers:
            with torch.no_grad():
                layer.span.fraction.fill_(1.0)
        with torch.no_grad():
            self.batches = [torch.stack([one, full(one)]) for one in x.split(2)]

    def __call__(self, model, batch):
        x, expected = batch
        return 1 + (model(x) - expected).square().mean()


def texts(count=6):
    return torch.randn(count, TOKENS, WIDTH, generator=torch.Generator().manual_seed(1))


def fit(model, **options):
    distance = Distance(model, texts())
    arguments = {"tokens": TOKENS, "loss": distance, "held_out": distance.batches[2:]} | options
    return fit_spans(model, distance.batches[:2], **arguments)


@pytest.mark.parametrize("method", ["profile", "learn"])
def test_heads_get_the_spans_that_they_need(method):
    needs = np.array([[3, 40, 3, 3], [3, 3, 3, 20]])
    model = Needs(needs)
    result = fit(model, tolerance=1e-3, method=method)
    assert (result.spans >= needs / 3 - 1).all()
    assert (result.spans <= 1.5 * needs + 3).all()
    assert result.spans.argmax() == 1
    windows = [point.pairs for point in result.uniform_curve if point.loss <= 1.001 * result.fitted_before]
    assert result.pairs < 0.75 * min(windows)
    for layer, spans in zip(model.layers, result.spans, strict=True):
        np.testing.assert_allclose(layer.span().detach(), spans, rtol=1e-5)
        assert layer.ramp == result.ramp == 2
    distance = Distance(model, texts())
    with torch.no_grad():
        assert float(distance(model, distance.batches[2])) == pytest.approx(result.loss_after, abs=1e-5)


def state(model):
    flags = [(name, parameter.requires_grad) for name, parameter in model.named_parameters()]
    modes = [module.training for module in model.modules()]
    return copy.deepcopy(model.state_dict()), flags, modes, [type(layer.span) for layer in model.layers]


def assert_same(before, after, *, but=()):
    assert before[1:] == after[1:]
    assert before[0].keys() == after[0].keys()
    assert all(torch.equal(x, after[0][name]) for name, x in before[0].items() if not name.endswith(but or "-"))


@pytest.mark.parametrize("method", ["profile", "learn"])
def test_weights_flags_and_modes_stay_as_they_are(method):
    model = Needs([[3, 20], [20, 3]])
    model.layers[0].q_proj.weight.requires_grad_(False)
    model.layers[1].eval()
    spans = [layer.span for layer in model.layers]
    before = state(model)
    fit(model, budget=0.4, method=method, ramp=3)
    assert_same(before, state(model), but="span.fraction")
    assert [layer.span for layer in model.layers] == spans
    assert all(parameter.grad is None for parameter in model.parameters())
    assert {layer.ramp for layer in model.layers} == {3}


@pytest.mark.parametrize("at", [0, 7, 40])
def test_an_error_leaves_the_model_unchanged(at):
    model = Needs([[3, 20], [20, 3]])
    distance, calls = Distance(model, texts()), []

    def fails(model, batch):
        calls.append(0)
        if len(calls) > at:
            raise RuntimeError("no more")
        return distance(model, batch)

    before = state(model)
    with pytest.raises(RuntimeError, match="no more"):
        fit(model, budget=0.4, loss=fails)
    assert_same(before, state(model))
    assert {layer.ramp for layer in model.layers} == {2}


def test_the_gradient_is_that_of_finite_differences():
    model = Needs([[60, 60], [60, 60]]).double()
    distance = Distance(model, texts().double())
    losses, batch = Losses(model, distance, distills=False), distance.batches[1]
    full, spans = np.full((2, 2), float(TOKENS)), np.array([[7.5, 30.25], [2.75, 11.5]])
    places = Places(model)
    with places.lent(4.0) as lent:

        def put(values, *, needs=False):
            for span, row in zip(lent, values, strict=True):
                span.value = torch.tensor(row, dtype=torch.float64, requires_grad=needs)

        increase = losses.increase(1, batch, lambda: put(full), lambda: put(spans, needs=True))
        slopes = slopes_of(increase, [span.value for span in lent])
        for at in np.ndindex(2, 2):
            step = np.zeros((2, 2))
            step[at] = 1e-4
            ends = []
            for sign in (1, -1):
                put(spans + sign * step)
                ends.append(float(distance(model, batch).detach()))
            assert slopes[at] == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-5)
        put(full)
        before = float(distance(model, batch).detach())
        put(spans)
        assert float(increase.detach()) == pytest.approx(float(distance(model, batch).detach()) - before, rel=1e-9)


def test_converted_models_are_fitted():
    torch.manual_seed(0)
    model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=True), 2)
    spans = convert(model, max_span=TOKENS, ramp=4)
    causal = torch.nn.Transformer.generate_square_subsequent_mask(TOKENS)
    with torch.no_grad():
        expected = model.eval()(texts(), mask=causal, is_causal=True)
    model.train()

    def loss(model, x):
        return 1 + (model(x, mask=causal, is_causal=True) - expected[: len(x)]).square().mean()

    result = fit_spans(model, texts()[:2], held_out=texts()[:2], budget=0.4, loss=loss)
    assert result.pairs == hs.cost(tokens=TOKENS, num_heads=4, head_dim=8, span=result.spans.ravel(), ramp=4).pairs
    assert result.share <= 0.4
    assert result.fitted_after <= result.uniform.fitted_loss
    np.testing.assert_allclose([span().detach() for span in spans], result.spans, rtol=1e-5)
    assert model.training


def test_batches_count_by_their_numbers_of_windows():
    seen = []

    def loss(batch):
        seen.append(len(batch))
        return batch.mean()

    data = Data("data", torch.arange(10.0)[:, None] + 1, 4)
    assert data.mean(loss) == pytest.approx(5.5)
    assert seen == [4, 4, 2]


def test_steps_see_each_batch_once_an_epoch_in_changing_order():
    data = Data("data", torch.arange(7.0)[:, None], 1)
    epochs = [[data.of_step(7 * epoch + place) for place in range(7)] for epoch in range(5)]
    assert all(sorted(epoch) == list(range(7)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 3


def test_losses_are_measured_on_some_windows_and_learned_on_all():
    model, measured, learned = Needs([[3, 20]]), set(), set()

    def loss(model, batch):
        (learned if torch.is_grad_enabled() else measured).update(batch[:, 0, 0].tolist())
        return 1 + model(batch).square().mean()

    x = texts(12)
    fit_spans(model, x, budget=0.5, loss=loss, batch=1, steps=20, eval_windows=2)
    assert learned == set(x[:9, 0, 0].tolist())
    assert set(x[[9, 11], 0, 0].tolist()) <= measured  # held out
    assert not set(x[[10], 0, 0].tolist()) & measured


def test_an_interrupted_fit_goes_on_to_the_same_bits():
    x, stop, steps = texts(8), 0, []

    def loss(model, batch):
        if torch.is_grad_enabled():
            steps.append(0)
            if len(steps) == stop:
                raise KeyboardInterrupt
        return 1 + model(batch).square().mean()

    def fitted(**options):
        model = Needs([[3, 20], [20, 3]])
        steps.clear()
        result = fit_spans(model, x, budget=0.4, loss=loss, batch=2, steps=12, **options)
        spans = np.stack([layer.span().detach() for layer in model.layers])
        np.testing.assert_allclose(spans, result.spans, rtol=1e-5)
        return result

    uninterrupted = fitted()
    stop = 8
    part = fitted()
    assert (part.state.step, part.share <= 0.4) == (7, True)
    stop = 0
    resumed = fitted(state=part.state)
    assert len(steps) == 5
    assert np.array_equal(uninterrupted.spans, resumed.spans)
    assert all(np.array_equal(one, other) for one, other in zip(uninterrupted.state, resumed.state, strict=True))


def test_a_fit_has_the_same_bits_with_every_number_of_threads():
    def fitted(threads):
        before = hs.get_num_threads()
        hs.set_num_threads(threads)
        try:
            return fit_spans(Needs([[3, 20], [20, 3]]), texts(), budget=0.4, loss=loss, batch=2, steps=12)
        finally:
            hs.set_num_threads(before)

    def loss(model, batch):
        return 1 + model(batch).square().mean()

    one, three = fitted(1), fitted(3)
    assert np.array_equal(one.spans, three.spans)
    assert all(np.array_equal(a, b) for a, b in zip(one.state, three.state, strict=True))


def test_the_last_quarter_is_held_out():
    model, seen = Needs([[3, 20]]), []

    def loss(model, batch):
        seen.append(batch[:, 0, 0])
        return 1 + model(batch).square().mean()

    x = texts(8)
    fit_spans(model, x, budget=0.5, loss=loss, method="profile", batch=16)
    fitted, held_out = x[:6, 0, 0], x[6:, 0, 0]
    assert [len(batch) for batch in seen[-3:]] == [2, 2, 2]
    assert all(torch.equal(batch, held_out) for batch in seen[-3:])
    assert all(torch.equal(batch, fitted) for batch in seen[:-3])


def bad(error, match, model=None, data=None, **options):
    arguments = {"budget": 0.5, "loss": lambda model, x: model(x).square().mean()} | options
    with pytest.raises(error, match=match):
        fit_spans(model or Needs([[3, 20]]), texts(4) if data is None else data, **arguments)


def test_wrong_arguments():
    bad(ValueError, "model must have attentions with spans: ", model=torch.nn.Linear(2, 2))
    bad(ValueError, "model must have attentions with spans: ", model=torch.nn.MultiheadAttention(8, 2))
    bad(TypeError, "the spans of attention must be an AdaptiveSpan, not DynamicSpan",
        model=TransformerBlock(WIDTH, 2, max_span=TOKENS, ramp=2, dynamic=True))  # fmt: skip
    bad(ValueError, r"all attentions of the model must have the same heads, not \[\(2, 2, 8\), \(4, 4, 4\)\]",
        model=Needs([[3, 3], [3, 3, 3, 3]]))  # fmt: skip
    bad(ValueError, "loss must be given for a model that is not one of transformers", loss=None)
    bad(TypeError, "data must be a sequence of batches, or a tensor of windows, not 3", data=3)
    bad(TypeError, "loss must be a function of a model and a batch, not 3", loss=3)
    bad(TypeError, "loss must return a tensor of one number, not 3.0", loss=lambda *_: 3.0)
    bad(TypeError, "loss must return a tensor of one number, not Tensor", loss=lambda model, x: model(x))
    bad(ValueError, "loss must depend on the spans of the model", loss=lambda *_: torch.tensor(2.0))
    bad(ValueError, "what loss returns must be finite, not nan", loss=lambda *_: torch.tensor(float("nan")))
    bad(ValueError, "data must have at least 2 windows if held_out is not given", data=texts(1))
    bad(ValueError, "tokens must be given if data is not a tensor", data=[texts(1), texts(1)])
    bad(ValueError, r"data must be of shape \(windows, tokens, ...\), not \(4,\)", data=torch.ones(4), held_out=texts())
    bad(ValueError, "exactly one of budget and tolerance must be given, got both", tolerance=0.1)
    bad(ValueError, "batch must be at least 1, not 0", batch=0)
    bad(TypeError, "tokens must be an integer, not 9.5", tokens=9.5)
