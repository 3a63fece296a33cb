"""The hybrid layer for torch: the numbers of the NumPy function, and its gradients by autograd."""

import re

import headspan as hs
import numpy as np
import pytest
from tensors import torch

from headspan.torch import DynamicSpan, HybridAttention, SpanPredictor  # isort: skip

HEADS, DIM, TOKENS, BATCH = 2, 6, 9, 2
FORMS = {
    "batch": {"per": "batch"},
    "head": {"per": "head"},
    "token": {"per": "token"},
    "causal": {"per": "token", "causal": True},
    "without self": {"per": "head", "include_self": False},
    "epsilon": {"per": "batch", "epsilon": 0.3},
}
TEMPERATURES = {
    "sharpen longer": {"temperature_range": 0.7},
    "sharpen shorter": {"temperature_range": 0.7, "sharpen_longer": False},
    "learned": {"learn_temperature": True},
}
every_form = pytest.mark.parametrize("form", FORMS)
every_temperature = pytest.mark.parametrize("temperature", TEMPERATURES)


def layer_of(form, temperature):
    torch.manual_seed(0)
    layer = HybridAttention(DIM, HEADS, max_span=7.3, ramp=2.6, **FORMS[form], **TEMPERATURES[temperature]).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(0.2, 0.5)
    return layer


def tokens():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(BATCH, TOKENS, DIM, dtype=torch.float64, generator=generator, requires_grad=True)


def as_parameters(layer, of):
    """Parameters or their gradients as the NumPy function has them."""
    weights = {name: of(p).numpy() for name, p in layer.named_parameters()}
    return hs.hybrid.HybridParameters(
        norm_weight=weights["norm.weight"],
        norm_bias=weights["norm.bias"],
        global_qkv=weights["global_qkv.weight"].T,
        local_qkv=weights["local_qkv.weight"].T,
        predictor_weight=weights["predictor.projection.weight"],
        predictor_bias=weights["predictor.projection.bias"],
        projection=weights["projection.weight"].T,
        projection_bias=weights["projection.bias"],
        log_temperature=weights.get("log_temperature"),
    )


@every_temperature
@every_form
def test_values_and_gradients_are_those_of_the_numpy_function(form, temperature):
    layer, x = layer_of(form, temperature), tokens()
    options = {"num_heads": HEADS, "max_span": 7.3, "ramp": 2.6, **FORMS[form], **TEMPERATURES[temperature]}
    options.pop("learn_temperature", None)
    parameters = as_parameters(layer, lambda p: p.detach())
    expected, vjp = hs.hybrid.hybrid_attention_vjp(x.detach(), parameters, **options, return_span=True)
    results = layer(x, return_span=True)
    for ours, theirs in zip(results, expected, strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours.detach(), theirs, rtol=1e-12, atol=1e-12)
    assert torch.equal(layer(x), results[0])
    assert np.ptp(expected[1]) > 0.01  # spans differ

    rng = np.random.default_rng(2)
    upstream = [rng.standard_normal(part.shape) for part in expected[:2]]
    torch.autograd.backward(results[:2], [torch.tensor(part) for part in upstream])
    grad_x, gradients = vjp(*upstream)
    np.testing.assert_allclose(x.grad, grad_x, rtol=1e-10, atol=1e-11)
    for name, ours, theirs in zip(gradients._fields, as_parameters(layer, lambda p: p.grad), gradients, strict=True):
        if theirs is None:
            assert ours is None
        else:
            np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-11, err_msg=name)


def test_a_predictor_for_each_token_is_a_dynamic_span():
    predictor, x = SpanPredictor(DIM, 3, 50, per="token"), torch.randn(2, 7, DIM)
    dynamic = DynamicSpan(DIM, 3, 50)
    dynamic.load_state_dict(predictor.state_dict())
    assert torch.equal(predictor(x), dynamic(x))
    of_heads = SpanPredictor(DIM, 3, 50, per="head")
    of_heads.load_state_dict(predictor.state_dict())
    torch.testing.assert_close(of_heads(x), dynamic(x.mean(1, keepdim=True))[..., 0])


def test_names_of_the_parameters():
    assert [*HybridAttention(DIM, HEADS, max_span=9, learn_temperature=True).state_dict()] == [
        "log_temperature", "norm.weight", "norm.bias", "global_qkv.weight", "local_qkv.weight",
        "predictor.projection.weight", "predictor.projection.bias", "projection.weight", "projection.bias",
    ]  # fmt: skip


def test_a_span_is_learned_compiled_and_in_bfloat16():
    """The target is the sum of neighbours: a window that is too wide shrinks by the gradient of its span alone."""
    torch.manual_seed(0)
    layer = HybridAttention(8, 2, max_span=30, ramp=4, per="head")
    x = torch.randn(4, 40, 8)
    target = sum(x.roll(shift, 1) for shift in (-1, 0, 1)) / 2
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    optimizer = torch.optim.Adam(layer.parameters(), lr=1e-2)
    losses, spans = [], []
    for _ in range(60):
        out, span, _ = compiled(x, return_span=True)
        losses.append((out - target).square().mean())
        spans.append(span.mean().item())
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < 0.7 * losses[0]
    assert spans[-1] < 0.85 * spans[0]
    narrow = layer.bfloat16()(x.bfloat16())
    assert narrow.dtype == torch.bfloat16
    assert (narrow - layer.float()(x)).abs().max() < 0.1


WRONG = {
    "heads that do not divide": (lambda: HybridAttention(10, 4, max_span=9),
                                 "num_heads must divide embed_dim, 10, not 4"),
    "a mean that looks ahead": (lambda: HybridAttention(8, 4, max_span=9, causal=True),
                                "per must be 'token' when causal, since a mean over all tokens looks ahead"),
    "no form": (lambda: HybridAttention(8, 4, max_span=9, per="pair"), "per must be 'batch', 'head' or 'token', not"),
    "a range below 0": (lambda: HybridAttention(8, 4, max_span=9, temperature_range=-1),
                        "temperature_range must be at"),
    "no limit": (lambda: SpanPredictor(8, 4, 0), "max_span must be greater than 0, not 0"),
    "tokens of another width": (lambda: HybridAttention(8, 4, max_span=9)(torch.ones(2, 5, 7)),
                                "x must be of shape (batch, tokens, 8), not (2, 5, 7)"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments(case):
    call, sentence = WRONG[case]
    with pytest.raises((ValueError, TypeError), match=re.escape(sentence)):
        call()
