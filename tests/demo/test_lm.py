"""The small language model: every layer's gradient, and what the model may see."""

import math

import numpy as np
import pytest
from autograd import value_and_grad
from autograd.test_util import check_grads
from headspan.lab import model as lm
from headspan.lab.model import forward
from headspan.lab.model import layers as _layers

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
    turn = forward.turns(20, config, np.float64)
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
        expected = lm.window_bits(parameters, config, tokens[None])[0]
        assert np.allclose(lm.surprisal(parameters, config, tokens, context=20), expected, atol=1e-5)


def test_equal_seeds_draw_equal_parameters():
    one, two, other = (lm.init_parameters(SMALL, seed) for seed in (4, 4, 5))
    assert all(np.array_equal(one[name], two[name]) for name in one)
    assert not np.array_equal(one["embedding"], other["embedding"])
    assert {array.dtype for array in one.values()} == {np.dtype(np.float32)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layers": 0}, "layers must be at least 1, not 0"),
        ({"layers": 1.5}, "layers must be an integer, not 1.5"),
        ({"vocabulary": "a"}, "vocabulary must be an integer, not 'a'"),
        ({"width": 10}, r"width must be a multiple of twice the heads \(4\), not 10"),
        ({"span_init": 17}, r"span_init must be at most span_limit \(16\), not 17"),
        ({"span_init": math.nan}, "span_init must be finite, not nan"),
        ({"span_limit": math.inf}, "span_limit must be finite, not inf"),
        ({"span_limit": 1e39}, r"span_limit must be at most \d+ characters, not 1e\+39"),
        ({"span_limit": "far"}, "span_limit must be a number, not 'far'"),
        ({"ramp": -1}, "ramp must be at least 0, not -1"),
        ({"ramp": math.inf}, "ramp must be finite, not inf"),
    ],
)
def test_bad_shape_of_model(change, message):
    with pytest.raises((ValueError, TypeError), match=message):
        lm.ModelConfig(**({"vocabulary": 11, "heads": 2, "width": 8, "span_limit": 16, "span_init": 5} | change))


def test_sizes_are_kept_as_plain_numbers():
    config = lm.ModelConfig(vocabulary=np.int64(11), span_limit=np.float32(512), ramp=4)
    assert [type(x) for x in (config.vocabulary, config.span_limit, config.ramp)] == [int, float, float]


def test_a_model_no_memory_can_hold_is_refused():
    config = lm.ModelConfig(vocabulary=11, heads=1, width=2 * 10**30)
    with pytest.raises(MemoryError, match=r"embedding of shape \(11, 2000.*\) is too large for memory"):
        lm.init_parameters(config, seed=0)


PARAMETERS = lm.init_parameters(SMALL, seed=0)
ROW = np.zeros((1, 10), int)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lm.loss(PARAMETERS, SMALL, ROW, ROW[:, :5]), r"targets must have the shape of tokens, \(1, 10\), not"),
        (lambda: lm.loss(PARAMETERS, SMALL, ROW, ROW - 1), "targets must be between 0 and 10, got -1"),
        (lambda: lm.loss(PARAMETERS, SMALL, ROW[:0], ROW[:0]), "targets must contain at least one character, got none"),
        (lambda: lm.logits(PARAMETERS, SMALL, ROW - 1), "tokens must be between 0 and 10, got -1"),
        (lambda: lm.logits(PARAMETERS, SMALL, ROW + 11), "tokens must be between 0 and 10, got 11"),
        (lambda: lm.logits(PARAMETERS, SMALL, ROW[0]), r"tokens must be of shape \(batch, tokens\), not \(10,\)"),
        (lambda: lm.logits(PARAMETERS, SMALL, ROW[:, :0]), "tokens must have a length of at least 1, not 0"),
        (lambda: lm.logits(PARAMETERS, SMALL, ROW == 0), "tokens must be integers, not bool"),
        (lambda: lm.logits(PARAMETERS, SMALL, [[0, 1], [2]]), "tokens must be an array of numbers"),
        (lambda: lm.trace(PARAMETERS, SMALL, ROW / 2), "tokens must be integers, not float64"),
        (lambda: lm.window_bits(PARAMETERS, SMALL, ROW, batch=-1), "batch must be at least 1, not -1"),
        (lambda: lm.window_bits(PARAMETERS, SMALL, ROW - 1), "windows must be between 0 and 10, got -1"),
        (lambda: lm.window_bits(PARAMETERS, SMALL, ROW[:, :0]), "windows must have a length of at least 2, not 0"),
        (lambda: lm.surprisal(PARAMETERS, SMALL, ROW[0, :0], 8), "tokens must have a length of at least 2, not 0"),
        (lambda: lm.surprisal(PARAMETERS, SMALL, ROW, 8), r"tokens must be of shape \(tokens,\), not \(1, 10\)"),
        (lambda: lm.surprisal(PARAMETERS, SMALL, ROW[0], 0), "context must be at least 1, not 0"),
        (lambda: lm.init_parameters(SMALL, seed=-1), "seed must be at least 0, not -1"),
    ],
)
def test_what_the_model_cannot_read_is_refused(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_lists_are_tokens_too():
    assert np.array_equal(lm.logits(PARAMETERS, SMALL, TOKENS.tolist()), lm.logits(PARAMETERS, SMALL, TOKENS))
    assert lm.surprisal(PARAMETERS, SMALL, [3, 10], context=8).shape == (1,)


def test_what_adds_to_the_stream_starts_small():
    drawn = lm.init_parameters(lm.ModelConfig(vocabulary=50), 0)
    one = 128**-0.5
    for name, expected in {"0.project": 0.2 * one, "2.contract": 0.1 * one, "head": 0.2 * one, "1.query": one}.items():
        np.testing.assert_allclose(drawn[name].std(), expected, rtol=0.05, err_msg=name)


def test_rotary_frequencies_fall():
    turn = forward.turns(3, lm.ModelConfig(vocabulary=2, heads=2, width=16), np.float64)
    expected = np.exp(1j * np.arange(3)[:, None] * np.tile(10_000.0 ** (-np.arange(4) / 4), 2))
    np.testing.assert_allclose(turn, expected, atol=1e-12)
