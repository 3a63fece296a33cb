"""A small character transformer whose heads learn how far to look.

Pre-norm blocks of attention and a two-layer perceptron, rotary positions, and one span per head
and layer. Characters are bytes: the vocabulary is made of the byte values that occur in the text.

Parameters are a plain dict of float32 arrays, so that they can be saved, looked at and changed
with NumPy alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headspan import _check
from headspan.autograd import attention
from headspan.demo.config import ModelConfig
from headspan.demo.layers import (
    cross_entropy,
    embed,
    linear,
    negative_log_likelihood,
    rms_norm,
    rotate,
    squared_relu,
)

__all__ = [
    "ModelConfig",
    "Parameters",
    "init_parameters",
    "logits",
    "loss",
    "surprisal",
    "trace",
    "window_bits",
]

Array = NDArray[Any]
Parameters = dict[str, Array]

ROTARY_BASE = 10_000.0
SMALL_START = {"project": 0.2, "contract": 0.2, "head": 0.2}  # matrices that write to the stream or read it out


def parameter_shapes(config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the name and the shape of every parameter, in the order in which they are drawn."""
    width, hidden = config.width, config.hidden
    yield "span", (config.layers, config.heads)
    yield "embedding", (config.vocabulary, width)
    for layer in range(config.layers):
        yield f"{layer}.attention_gain", (width,)
        for name in ("query", "key", "value", "project"):
            yield f"{layer}.{name}", (width, width)
        yield f"{layer}.hidden_gain", (width,)
        yield f"{layer}.expand", (width, hidden)
        yield f"{layer}.contract", (hidden, width)
    yield "gain", (width,)
    yield "head", (width, config.vocabulary)


def init_parameters(config: ModelConfig, seed: int) -> Parameters:
    """Draw the parameters a model starts from.

    Returns
    -------
    dict of str to ndarray, float32
        ``span`` is (layers, heads), in characters; ``embedding`` is (vocabulary, width) and
        ``head`` (width, vocabulary); the rest belongs to a block and is named ``<layer>.<name>``.

    Examples
    --------
    >>> from headspan import lm
    >>> config = lm.ModelConfig(vocabulary=5, layers=2, heads=2, width=8, hidden=8, span_init=3)
    >>> lm.init_parameters(config, seed=0)["span"]
    array([[3., 3.],
           [3., 3.]], dtype=float32)
    """
    rng = np.random.default_rng([_check.integer("seed", seed, at_least=0), 0])
    parameters: Parameters = {}
    for name, shape in parameter_shapes(config):
        _check.check_size(name, shape, _check.SINGLE.itemsize)
        if name == "span":
            parameters[name] = np.full(shape, config.span_init, np.float32)
        elif len(shape) == 1:
            parameters[name] = np.ones(shape, np.float32)
        else:
            inputs = 1 if name == "embedding" else shape[0]
            matrix = parameters[name] = rng.standard_normal(shape, np.float32)
            matrix *= np.float32(SMALL_START.get(name.rpartition(".")[2], 1.0) / np.sqrt(inputs))
    return parameters


def _batch(name: str, tokens: object, config: ModelConfig) -> Array:
    array = _check.indices(name, tokens, axes=("batch", "tokens"), below=config.vocabulary)
    _check_length(name, array, 1)
    return array


def _check_length(name: str, tokens: Array, least: int) -> None:
    if tokens.shape[-1] < least:
        raise ValueError(f"{name} must have a length of at least {least}, not {tokens.shape[-1]}")


def turns(tokens: int, config: ModelConfig, real: Any) -> Array:
    """Return rotary positions as complex numbers of modulus 1, shape (tokens, width / 2)."""
    planes = config.head_dim // 2
    frequency = ROTARY_BASE ** (-np.arange(planes) / planes)
    angle = np.arange(tokens)[:, None] * np.tile(frequency, config.heads)
    its: Array = np.exp(1j * angle).astype(np.result_type(real, np.complex64))
    return its


def _split_heads(x: Any, heads: int) -> Any:
    batch, tokens, width = x.shape
    return x.reshape((batch, tokens, heads, width // heads)).transpose((0, 2, 1, 3))


def _join_heads(x: Any) -> Any:
    batch, heads, tokens, head_dim = x.shape
    return x.transpose((0, 2, 1, 3)).reshape((batch, tokens, heads * head_dim))


def _hidden_states(parameters: Parameters, config: ModelConfig, tokens: Array, record: Any = None) -> Any:
    """Return the final residual stream (batch, tokens, width); record(q, k, v) is told per layer."""
    tokens = _batch("tokens", tokens, config)
    x = embed(parameters["embedding"], tokens)
    turn = turns(tokens.shape[1], config, x.dtype)
    for layer in range(config.layers):

        def weight(name: str, layer: int = layer) -> Any:
            return parameters[f"{layer}.{name}"]

        normed = rms_norm(x, weight("attention_gain"))
        query = rotate(linear(normed, weight("query")), turn)
        key = rotate(linear(normed, weight("key")), turn)
        value = linear(normed, weight("value"))
        query, key, value = (_split_heads(x, config.heads) for x in (query, key, value))
        if record is not None:
            record(query, key, value)
        heads = attention(query, key, value, span=parameters["span"][layer], ramp=config.ramp)
        x = x + linear(_join_heads(heads), weight("project"))
        normed = rms_norm(x, weight("hidden_gain"))
        x = x + linear(squared_relu(linear(normed, weight("expand"))), weight("contract"))
    return rms_norm(x, parameters["gain"])


def logits(parameters: Parameters, config: ModelConfig, tokens: Array) -> Any:
    """Score every character as the next one.

    Parameters
    ----------
    parameters : dict
        As made by `init_parameters`.
    config : ModelConfig
    tokens : ndarray of int, shape (batch, tokens)
        Indices into the vocabulary.

    Returns
    -------
    ndarray, float32, shape (batch, tokens, vocabulary)

    Examples
    --------
    >>> from headspan import lm
    >>> config = lm.ModelConfig(vocabulary=5, layers=1, heads=2, width=8, hidden=8)
    >>> lm.logits(lm.init_parameters(config, seed=0), config, [[0, 4, 2]]).shape
    (1, 3, 5)
    """
    return linear(_hidden_states(parameters, config, tokens), parameters["head"])


def loss(parameters: Parameters, config: ModelConfig, tokens: Array, targets: Array) -> Any:
    """Mean negative log-likelihood of targets (batch, tokens) after tokens, in nats.

    Examples
    --------
    >>> import numpy as np
    >>> from headspan import lm
    >>> from headspan.autograd import value_and_grad
    >>> config = lm.ModelConfig(vocabulary=5, layers=1, heads=2, width=8, hidden=8)
    >>> windows = np.array([[0, 4, 2, 1]])
    >>> def nats(parameters):
    ...     return lm.loss(parameters, config, windows[:, :-1], windows[:, 1:])
    >>> value, gradients = value_and_grad(nats)(lm.init_parameters(config, seed=0))
    >>> gradients["span"].shape
    (1, 2)
    """
    tokens, targets = _batch("tokens", tokens, config), _batch("targets", targets, config)
    if targets.shape != tokens.shape:
        raise ValueError(f"targets must have the shape of tokens, {tokens.shape}, not {targets.shape}")
    if targets.size == 0:
        raise ValueError("targets must hold at least one character, not none")
    return cross_entropy(logits(parameters, config, tokens), targets)


def trace(parameters: Parameters, config: ModelConfig, tokens: Array) -> list[tuple[Array, Array, Array]]:
    """Query, key and value of every layer, each (batch, heads, tokens, head_dim), for pictures.

    Examples
    --------
    >>> from headspan import lm
    >>> config = lm.ModelConfig(vocabulary=5, layers=3, heads=2, width=8, hidden=8)
    >>> layers = lm.trace(lm.init_parameters(config, seed=0), config, [[0, 4, 2]])
    >>> len(layers), layers[0][0].shape
    (3, (1, 2, 3, 4))
    """
    layers: list[tuple[Array, Array, Array]] = []
    _hidden_states(parameters, config, tokens, lambda *qkv: layers.append(qkv))
    return layers


def window_bits(parameters: Parameters, config: ModelConfig, windows: Array, batch: int = 8) -> Array:
    """Bits the model needs for each character of windows after the first.

    Parameters
    ----------
    parameters : dict
    config : ModelConfig
    windows : ndarray of int, shape (windows, tokens + 1)
    batch : int
        Windows computed at a time.

    Returns
    -------
    ndarray, float32, shape (windows, tokens)
        ``-log2 p(character | the characters before it in its window)``.

    Examples
    --------
    >>> from headspan import lm
    >>> config = lm.ModelConfig(vocabulary=5, layers=1, heads=2, width=8, hidden=8)
    >>> lm.window_bits(lm.init_parameters(config, seed=0), config, [[0, 4, 2], [2, 4, 0]]).shape
    (2, 2)
    """
    windows = _check.indices("windows", windows, axes=("windows", "tokens + 1"), below=config.vocabulary)
    _check.integer("batch", batch, at_least=1)
    _check_length("windows", windows, 2)
    bits = [np.empty((0, windows.shape[1] - 1), np.float32)]
    for first in range(0, len(windows), batch):
        part = windows[first : first + batch]
        scores = logits(parameters, config, part[:, :-1])
        bits.append(negative_log_likelihood(scores, part[:, 1:]) / np.float32(np.log(2)))
    return np.concatenate(bits)


def surprisal(parameters: Parameters, config: ModelConfig, tokens: Array, context: int) -> Array:
    """Bits the model needs for each character of a text after the first.

    Windows of `context` characters advance by half their length, so that every character but the
    first few is predicted from at least half a context.

    Parameters
    ----------
    parameters : dict
    config : ModelConfig
    tokens : ndarray of int, shape (tokens,)
    context : int

    Returns
    -------
    ndarray, float32, shape (tokens - 1,)

    Examples
    --------
    >>> import numpy as np
    >>> from headspan import lm
    >>> config = lm.ModelConfig(vocabulary=5, layers=1, heads=2, width=8, hidden=8)
    >>> lm.surprisal(lm.init_parameters(config, seed=0), config, np.arange(100) % 5, context=16).shape
    (99,)
    """
    tokens = _check.indices("tokens", tokens, axes=("tokens",), below=config.vocabulary)
    _check.integer("context", context, at_least=1)
    _check_length("tokens", tokens, 2)
    count = len(tokens) - 1
    if count <= context:
        whole: Array = window_bits(parameters, config, tokens[None])[0]
        return whole
    stride = max(1, context // 2)
    starts = np.arange(0, count - context + 1, stride)
    windows = np.lib.stride_tricks.sliding_window_view(tokens, context + 1)
    bits = window_bits(parameters, config, windows[starts])
    known = [bits[0], bits[1:, context - stride :].ravel()]
    missing = count - sum(map(len, known))
    if missing:
        known.append(window_bits(parameters, config, windows[-1:])[0, -missing:])
    return np.concatenate(known)
