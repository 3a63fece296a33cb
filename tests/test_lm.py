"""The small language model: every layer's gradient, and what the model may see."""

import numpy as np
import pytest
from autograd import value_and_grad
from autograd.test_util import check_grads
from headspan import _layers, lm

SMALL = lm.ModelConfig(vocabulary=11, layers=2, heads=2, width=8, hidden=12, span_limit=16, span_init=5.5, ramp=4)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


TOKENS = np.random.default_rng(3).integers(0, 11, (2, 9))
TURN = np.exp(1j * normal(9, 4))
LAYERS = {
    "linear": (_layers.linear, (normal(2, 3, 5), normal(5, 4, seed=1))),
    "embed": (lambda table: _layers.embed(table, TOKENS), (normal(11, 3),)),
    "rms_norm": (_layers.rms_norm, (normal(2, 3, 5), normal(5, seed=1))),
    "squared_relu": (_layers.squared_relu, (normal(4, 5),)),
    "rotate": (lambda x: _layers.rotate(x, TURN), (normal(2, 9, 8),)),
    "cross_entropy": (lambda x: _layers.cross_entropy(x, TOKENS), (normal(2, 9, 11),)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_gradient_of_layer_agrees_with_finite_differences(name):
    function, arguments = LAYERS[name]
    check_grads(function, modes=["rev"], order=1)(*arguments)


@pytest.mark.parametrize("name", LAYERS)
def test_layer_keeps_float32(name):
    function, arguments = LAYERS[name]
    if name == "rotate":
        out = _layers.rotate(arguments[0].astype(np.float32), TURN.astype(np.complex64))
    else:
        out = function(*(array.astype(np.float32) for array in arguments))
    assert out.dtype == np.float32


def test_layers_compute_what_they_say():
    x, gain = LAYERS["rms_norm"][1]
    expected = gain * x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-6)
    assert np.allclose(_layers.rms_norm(x, gain), expected, rtol=1e-12)
    logits = normal(2, 9, 11)
    probability = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    picked = np.take_along_axis(probability, TOKENS[..., None], axis=-1)
    assert np.isclose(_layers.cross_entropy(logits, TOKENS), -np.log(picked).mean(), rtol=1e-12)


def test_large_logits_do_not_overflow():
    assert _layers.cross_entropy(np.array([[1e4, 0.0]]), np.array([1])) == pytest.approx(1e4)


def test_rotary_positions_make_scores_depend_on_distance_only():
    config = lm.ModelConfig(vocabulary=2, heads=1, width=8)
    turn = lm._turns(20, config, np.float64)
    q, k = (np.broadcast_to(normal(8, seed=seed), (20, 8)).copy() for seed in (1, 2))
    scores = _layers.rotate(q, turn) @ _layers.rotate(k, turn).T
    assert np.allclose(scores[5:, 5:], scores[:-5, :-5], atol=1e-12)
    assert not np.allclose(scores[0], scores[0, 0])


def test_whole_model_gradient_agrees_with_finite_differences():
    parameters = {name: array.astype(float) for name, array in lm.init_parameters(SMALL, seed=1).items()}
    loss = value_and_grad(lambda p: lm.loss(p, SMALL, TOKENS[:, :-1], TOKENS[:, 1:]))
    _, gradients = loss(parameters)
    rng = np.random.default_rng(5)
    for name, array in parameters.items():
        direction = rng.standard_normal(array.shape)
        step = 1e-5
        up, down = (loss(parameters | {name: array + sign * step * direction})[0] for sign in (1, -1))
        assert np.isclose((up - down) / (2 * step), (gradients[name] * direction).sum(), rtol=1e-4, atol=1e-8), name


def test_no_character_sees_a_later_one():
    parameters = lm.init_parameters(SMALL, seed=0)
    changed = TOKENS.copy()
    changed[:, 6] = (changed[:, 6] + 1) % 11
    before, after = (lm.logits(parameters, SMALL, tokens) for tokens in (TOKENS, changed))
    assert np.array_equal(before[:, :6], after[:, :6])
    assert not np.array_equal(before[:, 6:], after[:, 6:])


def test_surprisal_is_that_of_the_whole_text_when_windows_hold_all_that_is_seen():
    config = lm.ModelConfig(vocabulary=11, layers=1, heads=2, width=8, hidden=8, span_limit=4, span_init=2, ramp=2)
    parameters = lm.init_parameters(config, seed=0)
    for size in (2, 10, 21, 32, 64, 65, 83):
        tokens = np.random.default_rng(size).integers(0, 11, size)
        whole = lm.window_bits(parameters, config, tokens[None])[0]
        assert np.allclose(lm.surprisal(parameters, config, tokens, context=20), whole, atol=1e-5)


def test_equal_seeds_draw_equal_parameters():
    one, two, other = (lm.init_parameters(SMALL, seed) for seed in (4, 4, 5))
    assert all(np.array_equal(one[name], two[name]) for name in one)
    assert not np.array_equal(one["embedding"], other["embedding"])
    assert {array.dtype for array in one.values()} == {np.dtype(np.float32)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layers": 0}, "layers must be at least 1, got 0"),
        ({"width": 10}, r"width must be a multiple of twice the heads \(4\), got 10"),
        ({"span_init": 17}, r"span_init must be between 0 and span_limit \(16\), got 17"),
        ({"span_init": float("nan")}, "span_init must be between 0 and"),
        ({"ramp": -1}, "ramp must not be negative, got -1"),
    ],
)
def test_bad_shape_of_model(change, message):
    with pytest.raises(ValueError, match=message):
        lm.ModelConfig(**({"vocabulary": 11, "heads": 2, "width": 8, "span_limit": 16, "span_init": 5} | change))
