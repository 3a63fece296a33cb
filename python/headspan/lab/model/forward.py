"""The forward pass of the model, shared by all packages that compute its gradient.

A module `layers` implements the operations on arrays: `headspan.lab.model.layers` for NumPy arrays and ``autograd``,
and `headspan.lab.training.engines.torch_layers` for tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headspan import _check
from headspan.lab.config import ModelConfig
from headspan.lab.model import layers as of_numpy
from headspan.lab.model.memory import Memory
from headspan.lab.model.parameters import Parameters
from headspan.ops.spans import farthest

Array = NDArray[Any]

ROTARY_BASE = 10_000.0


def _batch(name: str, tokens: object, config: ModelConfig) -> Array:
    array = _check.indices(name, tokens, axes=("batch", "tokens"), below=config.vocabulary)
    check_length(name, array, 1)
    return array


def check_length(name: str, tokens: Array, least: int) -> None:
    """Raise ValueError if there are fewer than `least` tokens."""
    if tokens.shape[-1] < least:
        raise ValueError(f"{name} must have a length of at least {least}, not {tokens.shape[-1]}")


@lru_cache(maxsize=8)  # all layers of a pass, and all passes of the same length, share the result
def turns(tokens: int, config: ModelConfig, real: Any) -> Array:
    """Return the rotary positions as complex numbers of modulus 1, shape (tokens, width / 2)."""
    planes = config.head_dim // 2
    frequency = ROTARY_BASE ** (-np.arange(planes) / planes)
    angle = np.arange(tokens)[:, None] * np.tile(frequency, config.heads)
    rotations: Array = np.exp(1j * angle).astype(np.result_type(real, np.complex64))
    return rotations


class SpansNotFiniteError(ValueError):
    """The predicted spans of some characters are not finite, which attention does not accept."""


class Pass(NamedTuple):
    """The result of a forward pass on a batch.

    Attributes
    ----------
    scores : array, shape (batch, characters, vocabulary)
        Scores of each character of the vocabulary as the next one.
    heads : list of (query, key, value)
        One tuple per layer, each array (batch, heads, characters, head_dim). Keys and values start with the memory's.
    spans : list
        One entry per layer: shape (heads,), (batch, heads, characters) for predicted spans, or a number.
    """

    scores: Any
    heads: list[tuple[Any, Any, Any]]
    spans: list[Any]


def forward(layers: Any, parameters: Any, config: ModelConfig, tokens: Array, memory: Memory | None = None) -> Pass:
    """Run the model on a batch and add the batch to `memory`, unless that is None.

    Raises
    ------
    SpansNotFiniteError
        If the predicted spans of some characters are not finite.
    """
    tokens = _batch("tokens", tokens, config)
    count = tokens.shape[1]
    x = layers.embed(parameters["embedding"], tokens)
    heads, spans = [], []
    for layer in range(config.layers):

        def weight(name: str, layer: int = layer) -> Any:
            return parameters[f"{layer}.{name}"]

        normed = layers.rms_norm(x, weight("attention_gain"))
        span = _span(layers, parameters, config, layer, normed)
        states = normed
        if memory is not None:
            before = memory.before(layer, int(farthest(np.max(layers.value_of(span)), config.ramp)))
            memory.keep(layer, layers.value_of(x))
            if before is not None:
                states = layers.join(layers.rms_norm(layers.constant(before), weight("attention_gain")), normed)
        turn = turns(states.shape[1], config, layers.value_of(x).dtype)
        recent = _last(states, count + config.taps - 1)
        query, key = layers.linear(recent, weight("query")), layers.linear(states, weight("key"))
        if config.taps > 1:
            query, key = layers.mix(query, weight("query_taps")), layers.mix(key, weight("key_taps"))
        query = layers.rotate(_last(query, count), turn[-count:])
        key = layers.rotate(key, turn)
        value = layers.linear(states, weight("value"))
        query, key, value = (layers.split_heads(part, config.heads) for part in (query, key, value))
        heads.append((query, key, value))
        spans.append(span)
        attended = layers.attention(query, key, value, span=span, ramp=config.ramp)
        x = x + layers.linear(layers.join_heads(attended), weight("project"))
        normed = layers.rms_norm(x, weight("hidden_gain"))
        x = x + layers.linear(layers.squared_relu(layers.linear(normed, weight("expand"))), weight("contract"))
    scores = layers.linear(layers.rms_norm(x, parameters["gain"]), parameters["head"])
    return Pass(scores, heads, spans)


def _last(x: Any, count: int) -> Any:
    return x if x.shape[1] <= count else x[:, -count:]  # the gradient of a slice takes time, so avoid it


def _span(layers: Any, parameters: Any, config: ModelConfig, layer: int, x: Any) -> Any:
    if config.span_kind == "fixed":
        return config.span_init
    if config.span_kind == "adaptive":
        return parameters["span"][layer]
    span = layers.dynamic_span(x, parameters["span_weight"][layer], parameters["span_bias"][layer], config.span_limit)
    if not np.isfinite(layers.value_of(span)).all():  # attention does not accept such spans
        raise SpansNotFiniteError("the spans that characters predict must be finite")
    return span


def mean_spans(heads: int, spans: Sequence[Any]) -> Array:
    """Return the mean span of each head, (layers, heads), from the spans of a `Pass`."""
    each = [span.mean(axis=(0, 2)) if np.ndim(span) == 3 else np.broadcast_to(span, heads) for span in spans]
    return np.stack(each)


def logits(parameters: Parameters, config: ModelConfig, tokens: Array) -> Any:
    """Compute the scores of all characters of the vocabulary as the next character.

    Parameters
    ----------
    parameters : dict
        Parameters as returned by `init_parameters`.
    config : ModelConfig
    tokens : ndarray of int, shape (batch, tokens)
        Indices into the vocabulary.

    Returns
    -------
    ndarray, float32, shape (batch, tokens, vocabulary)

    See Also
    --------
    loss : The mean negative log-likelihood.
    trace : The queries, keys and values of each layer.

    Examples
    --------
    >>> from headspan.lab import lm
    >>> config = lm.ModelConfig(vocabulary=5, layers=1, heads=2, width=8, hidden=8)
    >>> lm.logits(lm.init_parameters(config, seed=0), config, [[0, 4, 2]]).shape
    (1, 3, 5)
    """
    return forward(of_numpy, parameters, config, tokens).scores


def loss(parameters: Parameters, config: ModelConfig, tokens: Array, targets: Array) -> Any:
    """Return the mean negative log-likelihood of `targets`, (batch, tokens), given `tokens`, in nats.

    See Also
    --------
    logits : The scores of the next character.
    surprisal : The bits of each character of a text.

    Examples
    --------
    >>> import numpy as np
    >>> from headspan.lab import lm
    >>> from autograd import value_and_grad
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
        raise ValueError("targets must contain at least one character, got none")
    return of_numpy.cross_entropy(logits(parameters, config, tokens), targets)


def trace(parameters: Parameters, config: ModelConfig, tokens: Array) -> list[tuple[Array, Array, Array]]:
    """Return query, key and value of each layer, each of shape (batch, heads, tokens, head_dim).

    See Also
    --------
    spans : The spans of a model.
    headspan.explore : Interactive view of a trace.

    Examples
    --------
    >>> from headspan.lab import lm
    >>> config = lm.ModelConfig(vocabulary=5, layers=3, heads=2, width=8, hidden=8)
    >>> layers = lm.trace(lm.init_parameters(config, seed=0), config, [[0, 4, 2]])
    >>> len(layers), layers[0][0].shape
    (3, (1, 2, 3, 4))
    """
    return forward(of_numpy, parameters, config, tokens).heads


def spans(parameters: Parameters, config: ModelConfig, tokens: Array) -> Array:
    """Return the span of each layer, head and character.

    Returns
    -------
    ndarray, shape (layers, batch, heads, tokens)
        Spans in characters. Unless characters predict their spans, all characters of a head have the same span.

    See Also
    --------
    trace : The queries, keys and values of each layer.
    headspan.plot.spans : Draws the span of every head.

    Examples
    --------
    >>> from headspan.lab import lm
    >>> config = lm.ModelConfig(vocabulary=5, layers=1, heads=2, width=8, hidden=8, span_kind="dynamic", span_init=256)
    >>> lm.spans(lm.init_parameters(config, seed=0), config, [[0, 4, 2]])[0, 0, 0]
    array([256., 256., 256.], dtype=float32)
    """
    result = forward(of_numpy, parameters, config, tokens)
    batch, heads, count, _ = result.heads[0][0].shape
    each = [np.asarray(span, result.scores.dtype) for span in result.spans]
    each = [span if span.ndim == 3 else np.broadcast_to(span, heads)[None, :, None] for span in each]
    return np.stack([np.broadcast_to(span, (batch, heads, count)) for span in each])
