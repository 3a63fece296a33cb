"""The adapter to autograd: the same numbers as headspan's own, one pass forward and one back."""

import importlib
import sys

import autograd.numpy as anp
import headspan as hs
import numpy as np
import pytest
from autograd import grad, make_vjp
from autograd.test_util import check_grads
from headspan.autograd import attention
from headspan.ops.arguments.options import DIFFERENTIABLE
from headspan.ops.execution import functional

SPANS = {
    "scalar": np.array(3.3),
    "heads": np.array([2.2, 5.6]),
    "batch and heads": np.array([[2.2, 5.6], [0.3, 9.1]]),
    "tokens": np.linspace(0.3, 9.1, 2 * 2 * 7).reshape(2, 2, 7),
}


@pytest.fixture
def qkv():
    return np.random.default_rng(0).standard_normal((3, 2, 2, 7, 4))


@pytest.fixture
def calls(monkeypatch):
    """How often attention ran forward and backward."""
    counts = {"forward": 0, "backward": 0}

    def counted(name, original):
        def counting(*args, **kwargs):
            counts[name] += 1
            return original(*args, **kwargs)

        return counting

    for name in counts:
        monkeypatch.setattr(f"headspan.autograd.{name}", counted(name, getattr(functional, name)))
    return counts


@pytest.mark.parametrize("span", SPANS.values(), ids=SPANS)
def test_gradients_of_all_arguments_are_those_of_attention_vjp(qkv, span):
    options = {"ramp": 4, "include_self": False, "scale": 0.7}
    parameters = {
        "span": span,
        "temperature": np.array([0.8, 1.3]),
        "alibi_slopes": np.array([0.1, 0.02]),
        "sinks": np.array([0.5, -1.0]),
        "key_bias": np.linspace(-1, 1, qkv[1].shape[-2]),
        "distance_bias": np.linspace(-1, 1, 5),
        "pair_bias": np.linspace(-1, 1, qkv[0].shape[-2] * qkv[1].shape[-2]).reshape(-1, qkv[1].shape[-2]),
        "block_gates": np.linspace(0.5, 1, 4).reshape(2, 2),
        "persistent_key": np.linspace(-1, 1, 3 * qkv[1].shape[-1]).reshape(3, -1),
        "persistent_value": np.linspace(1, -1, 3 * qkv[2].shape[-1]).reshape(3, -1),
    }
    options["gate_block_size"] = -(-qkv[1].shape[-2] // 2)
    assert tuple(parameters) == DIFFERENTIABLE
    arguments = (*qkv, *parameters.values())
    weight = np.random.default_rng(1).standard_normal(qkv[0].shape)

    def loss(arguments):
        q, k, v, *rest = arguments
        return (attention(q, k, v, **dict(zip(parameters, rest, strict=True)), **options) * weight).sum()

    out, vjp = hs.attention_vjp(*qkv, **parameters, **options)
    assert loss(arguments) == (out * weight).sum()
    for ours, theirs in zip(grad(loss)(arguments), vjp(weight), strict=True):
        assert ours.shape == theirs.shape
        assert np.array_equal(ours, theirs)


def test_gradients_agree_with_finite_differences(qkv):
    def out(q, k, v, z):
        return attention(q, k, v, span=z, ramp=4)

    check_grads(out, modes=["rev"], order=1)(*qkv, SPANS["heads"])


def test_log_sum_exp_is_differentiated(qkv):
    def both(q, k, v, z):
        out, lse = attention(q, k, v, span=z, ramp=4, return_lse=True)
        return out.sum() + (lse * lse).sum()

    check_grads(both, modes=["rev"], order=1)(*qkv, SPANS["batch and heads"])


def test_runs_forward_once_and_backward_once(qkv, calls):
    q, k, v = qkv
    vjp, _ = make_vjp(lambda args: attention(*args[:3], span=args[3]).sum())((q, k, v, SPANS["heads"]))
    assert calls == {"forward": 1, "backward": 0}
    vjp(1.0)
    assert calls == {"forward": 1, "backward": 1}


def test_only_the_span_may_be_differentiated(qkv, calls):
    assert grad(lambda z: attention(*qkv, span=z, ramp=4).sum())(SPANS["heads"]).shape == (2,)
    assert calls == {"forward": 1, "backward": 1}


def test_without_a_gradient_nothing_is_kept(qkv, calls):
    assert np.array_equal(attention(*qkv, span=3.0), hs.attention(*qkv, span=3.0))
    assert calls == {"forward": 0, "backward": 0}


def test_two_calls_in_one_function_do_not_mix(qkv):
    q, k, v = qkv

    def loss(z):
        return attention(q, k, attention(q, k, v, span=z[0], ramp=4), span=z[1], ramp=4).sum()

    check_grads(loss, modes=["rev"], order=1)(np.array([2.2, 4.7]))


def test_second_derivatives_are_refused_in_a_sentence(qkv):
    first = grad(lambda z: attention(*qkv, span=z, ramp=4).sum())
    with pytest.raises(NotImplementedError, match="no second derivatives"):
        grad(lambda z: first(z).sum())(SPANS["heads"])


def test_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "autograd", None)
    monkeypatch.delitem(sys.modules, "headspan.autograd")
    with pytest.raises(ModuleNotFoundError, match=r"pip install '\.\[demo\]'"):
        importlib.import_module("headspan.autograd")


LOSSES = {
    "mean": anp.mean,
    "maximum": lambda out: anp.sum(anp.maximum(out, 0)),
    "where": lambda out: anp.sum(anp.where(out > 0, out, 0.1 * out)),
    "std": anp.std,
    "a constant of float64": lambda out: anp.sum(out * np.linspace(0.0, 1.0, 4)),
    "cross-entropy": lambda out: anp.mean(anp.log(anp.sum(anp.exp(out), axis=-1)) - out[..., 0]),
}  # fmt: skip


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_models_of_float32_with_numbers_of_float64(qkv, loss):
    """Autograd makes cotangents of float64 for them; the gradients are those of the same model in float64."""
    span = np.array([2.2, 5.6], np.float32)

    def of(query, key, value, span):
        return loss(attention(query, key, value, span=span, ramp=4))

    ours = grad(of, (0, 1, 2, 3))(*qkv.astype(np.float32), span)
    exact = grad(of, (0, 1, 2, 3))(*qkv, span.astype(np.float64))
    for gradient, expected in zip(ours, exact, strict=True):
        assert gradient.dtype == np.float32
        np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-6)


def test_only_the_gradients_that_are_asked_for(qkv, monkeypatch):
    asked = []
    original = functional.backward

    def watching(*args, needs, **kwargs):
        asked.append(set(needs))
        return original(*args, needs=needs, **kwargs)

    monkeypatch.setattr("headspan.autograd.backward", watching)
    grad(lambda span: anp.sum(attention(*qkv, span=span, ramp=4)))(np.array([2.2, 5.6]))
    assert asked == [{"span"}]
