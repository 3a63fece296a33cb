"""A small character transformer whose heads learn how far to look.

Pre-norm blocks of attention and a two-layer perceptron, rotary positions, and one span per head
and layer. Characters are bytes: the vocabulary is made of the byte values that occur in the text.

Parameters are a plain dict of float32 arrays, so that they can be saved, looked at and changed
with NumPy alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headspan._layers import (
    cross_entropy,
    embed,
    linear,
    negative_log_likelihood,
    rms_norm,
    rotate,
    squared_relu,
)
from headspan.autograd import attention

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


@dataclass(frozen=True)
class ModelConfig:
    """The shape of the model.

    Attributes
    ----------
    vocabulary : int
        Number of different characters (byte values).
    layers, heads : int
        Attention layers, and heads in each of them.
    width : int
        Channels of the residual stream; a multiple of twice the heads.
    hidden : int
        Channels inside the perceptron of a block.
    span_limit, span_init : float
        The largest span a head may learn and the span it starts from, in characters.
    ramp : float
        Length of the soft edge of the mask, in characters.
    """

    vocabulary: int
    layers: int = 3
    heads: int = 4
    width: int = 128
    hidden: int = 512
    span_limit: float = 512.0
    span_init: float = 64.0
    ramp: float = 32.0

    def __post_init__(self) -> None:
        for name in ("vocabulary", "layers", "heads", "width", "hidden"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.width % (2 * self.heads):
            raise ValueError(f"width must be a multiple of twice the heads ({2 * self.heads}), got {self.width}")
        if not 0 <= self.span_init <= self.span_limit:
            raise ValueError(
                f"span_init must be between 0 and span_limit ({self.span_limit:g}), got {self.span_init:g}"
            )
        if not self.ramp >= 0:
            raise ValueError(f"ramp must not be negative, got {self.ramp:g}")

    @property
    def head_dim(self) -> int:
        """Channels of one head."""
        return self.width // self.heads


def init_parameters(config: ModelConfig, seed: int) -> Parameters:
    """Draw the parameters a model starts from.

    Returns
    -------
    dict of str to ndarray, float32
        ``span`` is (layers, heads), in characters; ``embedding`` is (vocabulary, width) and
        ``head`` (width, vocabulary); the rest belongs to a block and is named ``<layer>.<name>``.
    """
    rng = np.random.default_rng([seed, 0])

    def normal(inputs: int, outputs: int, scale: float = 1.0) -> Array:
        matrix: Array = rng.standard_normal((inputs, outputs), np.float32)
        matrix *= np.float32(scale / np.sqrt(inputs))
        return matrix

    width, hidden = config.width, config.hidden
    parameters: Parameters = {
        "span": np.full((config.layers, config.heads), config.span_init, np.float32),
        "embedding": normal(1, config.vocabulary * width).reshape(-1, width),
    }
    for layer in range(config.layers):
        block = {
            "attention_gain": np.ones(width, np.float32),
            "query": normal(width, width),
            "key": normal(width, width),
            "value": normal(width, width),
            "project": normal(width, width, 0.2),
            "hidden_gain": np.ones(width, np.float32),
            "expand": normal(width, hidden),
            "contract": normal(hidden, width, 0.2),
        }
        parameters |= {f"{layer}.{name}": array for name, array in block.items()}
    parameters["gain"] = np.ones(width, np.float32)
    parameters["head"] = normal(width, config.vocabulary, 0.2)
    return parameters


def _turns(tokens: int, config: ModelConfig, real: Any) -> Array:
    """Rotary positions as complex numbers of modulus 1, shape (tokens, width / 2)."""
    planes = config.head_dim // 2
    frequency = ROTARY_BASE ** (-np.arange(planes) / planes)
    angle = np.arange(tokens)[:, None] * np.tile(frequency, config.heads)
    turns: Array = np.exp(1j * angle).astype(np.result_type(real, np.complex64))
    return turns


def _split_heads(x: Any, heads: int) -> Any:
    batch, tokens, width = x.shape
    return x.reshape((batch, tokens, heads, width // heads)).transpose((0, 2, 1, 3))


def _join_heads(x: Any) -> Any:
    batch, heads, tokens, head_dim = x.shape
    return x.transpose((0, 2, 1, 3)).reshape((batch, tokens, heads * head_dim))


def _hidden_states(parameters: Parameters, config: ModelConfig, tokens: Array, record: Any = None) -> Any:
    """Return the final residual stream (batch, tokens, width); record(q, k, v) is told per layer."""
    x = embed(parameters["embedding"], tokens)
    turn = _turns(tokens.shape[1], config, x.dtype)
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
    """
    return linear(_hidden_states(parameters, config, tokens), parameters["head"])


def loss(parameters: Parameters, config: ModelConfig, tokens: Array, targets: Array) -> Any:
    """Mean negative log-likelihood of targets (batch, tokens) after tokens, in nats."""
    return cross_entropy(logits(parameters, config, tokens), targets)


def trace(parameters: Parameters, config: ModelConfig, tokens: Array) -> list[tuple[Array, Array, Array]]:
    """Query, key and value of every layer, each (batch, heads, tokens, head_dim), for pictures."""
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
    """
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
    """
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
