"""Measurements for the report: the saving by learned spans, and the attention maps of a trained model."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import headspan as hs
from headspan.lab.model.forward import mean_spans
from headspan.ops.spans import farthest

Array = NDArray[Any]
Layer = tuple[Array, Array, Array]

LEAST_CLOSE, MOST_CLOSE = 16, 40  # numbers of characters whose attention is shown one by one


@dataclass(frozen=True)
class Saving:
    """Time and memory of attention with learned spans and of full causal attention.

    Attributes
    ----------
    forward, full_forward, both, full_both : float
        Median times over the rounds, in seconds, of the forward pass, and of forward and backward pass.
    cache, full_cache : int
        Size in bytes of the cached keys and values of all layers for generating text after `tokens` tokens.
    rounds : int
    shape : tuple of int
        Shape (batch, heads, tokens, head_dim) of each layer.
    """

    forward: float
    full_forward: float
    both: float
    full_both: float
    cache: int
    full_cache: int
    rounds: int
    shape: tuple[int, ...]


def measure_saving(layers: list[Layer], spans: Sequence[Any], ramp: float, rounds: int = 15) -> Saving:
    """Measure the time of attention over all layers, alternating the two kinds in each round.

    Parameters
    ----------
    layers : list of (query, key, value)
        Each array has the shape (batch, heads, tokens, head_dim).
    spans : sequence
        One entry per layer: shape (heads,), (batch, heads, tokens), or a number.
    ramp : float
    rounds : int
    """
    shape = layers[0][0].shape
    sizes = dict(zip(("batch", "num_heads", "tokens", "head_dim"), shape, strict=True))
    grad = np.ones(shape, layers[0][0].dtype)
    unlimited = [None] * len(layers)

    def forward(layer_spans: Any) -> None:
        for (query, key, value), span in zip(layers, layer_spans, strict=True):
            hs.attention(query, key, value, span=span, ramp=ramp)

    def both(layer_spans: Any) -> None:
        for (query, key, value), span in zip(layers, layer_spans, strict=True):
            hs.attention_vjp(query, key, value, span=span, ramp=ramp)[1](grad)

    seconds = _interleaved(
        [
            lambda: forward(spans),
            lambda: forward(unlimited),
            lambda: both(spans),
            lambda: both(unlimited),
        ],
        rounds,
    )
    one = {**sizes, "batch": 1, "decode": True}
    widest = [span.max(axis=(0, 2)) if np.ndim(span) == 3 else span for span in spans]  # a cache fits the widest span
    caches = [hs.cost(**one, span=span, ramp=ramp).cache_bytes or 0 for span in (*widest, None)]
    return Saving(
        forward=seconds[0],
        full_forward=seconds[1],
        both=seconds[2],
        full_both=seconds[3],
        cache=sum(caches[:-1]),
        full_cache=caches[-1] * len(layers),
        rounds=rounds,
        shape=shape,
    )


def _interleaved(calls: list[Callable[[], None]], rounds: int) -> list[float]:
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds + 1):
        for call, record in zip(calls, times, strict=True):
            started = time.perf_counter()
            call()
            record.append(time.perf_counter() - started)
    return [float(np.median(record[1:])) for record in times]  # the first round warms up


@dataclass(frozen=True)
class MapSample:
    """Attention weights of a model on one passage.

    Attributes
    ----------
    by_distance : ndarray, shape (layers, heads, close_tokens, distances)
        Weights of the last characters of the passage at each distance up to the longest reach, 0 before its beginning.
    profiles : ndarray, shape (layers, heads, tokens)
        Mean weight at each distance, over the queries that have a key at this distance.
    close : ndarray, shape (close_tokens, close_tokens)
        Weights of one head on the last characters of the passage.
    close_head : tuple of int
        Layer and head of `close`, which is the head with the widest span.
    close_tokens : int
    """

    by_distance: Array
    profiles: Array
    close: Array
    close_head: tuple[int, int]
    close_tokens: int


def sample_maps(layers: list[Layer], spans: Sequence[Any], ramp: float) -> MapSample:
    """Compute the attention weights of the first sequence in all layers, with `spans` as for `measure_saving`."""
    heads, tokens = layers[0][0].shape[1:3]
    spans = [span[:1] if np.ndim(span) == 3 else span for span in spans]
    means = mean_spans(heads, spans)
    layer, head = (int(i) for i in np.unravel_index(means.argmax(), means.shape))
    reaches = [farthest(np.max(span), ramp) for span in spans]
    close_tokens = min(tokens, int(np.clip(farthest(means[layer, head], ramp) + 8, LEAST_CLOSE, MOST_CLOSE)))
    distances = int(min(max(reaches), tokens - 1)) + 1
    by_distance, profiles = [], []
    for number, ((query, key, _), span) in enumerate(zip(layers, spans, strict=True)):
        weights = hs.attention_weights(query[:1], key[:1], span=span, ramp=ramp)[0]
        profiles.append(_mean_by_distance(weights))
        by_distance.append(_last_by_distance(weights, close_tokens, distances))
        if number == layer:
            close = weights[head, -close_tokens:, -close_tokens:]
    return MapSample(np.stack(by_distance), np.stack(profiles), close, (layer, head), close_tokens)


def _last_by_distance(weights: Array, rows: int, distances: int) -> Array:
    """Return the weights (heads, tokens, tokens) of the last rows at each distance, (heads, rows, distances)."""
    tokens = weights.shape[1]
    query = np.arange(tokens - rows, tokens)[:, None]
    key = query - np.arange(distances)
    return np.where(key >= 0, weights[:, query, np.maximum(key, 0)], 0)


def _mean_by_distance(weights: Array) -> Array:
    """Return the mean along each diagonal of weights (heads, tokens, tokens), starting at distance 0."""
    tokens = weights.shape[1]
    return np.stack([weights.diagonal(-x, axis1=1, axis2=2).mean(axis=1) for x in range(tokens)], axis=1)


def sequences(tokens: Array, context: int, batch: int) -> Array:
    """Return the first windows of `tokens`, (batch, context), or fewer or shorter ones if there are too few tokens."""
    context = min(context, len(tokens))
    count = min(batch, len(tokens) // context)
    return tokens[: count * context].reshape(count, context)
