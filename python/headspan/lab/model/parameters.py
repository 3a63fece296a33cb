"""The parameters of the model and their initialization."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headspan import _check
from headspan.lab.config import ModelConfig

Array = NDArray[Any]
Parameters = dict[str, Array]

SMALL_START = {"project": 0.2, "contract": 0.2, "head": 0.2}  # outputs to the residual stream or to the scores


def parameter_shapes(config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the name and shape of each parameter in the order in which they are drawn."""
    width, hidden = config.width, config.hidden
    if config.span_kind == "adaptive":
        yield "span", (config.layers, config.heads)
    if config.span_kind == "dynamic":
        yield "span_weight", (config.layers, config.heads, width)
        yield "span_bias", (config.layers, config.heads)
    yield "embedding", (config.vocabulary, width)
    for layer in range(config.layers):
        yield f"{layer}.attention_gain", (width,)
        for name in ("query", "key", "value", "project"):
            yield f"{layer}.{name}", (width, width)
        if config.taps > 1:
            yield f"{layer}.query_taps", (config.taps, width)
            yield f"{layer}.key_taps", (config.taps, width)
        yield f"{layer}.hidden_gain", (width,)
        yield f"{layer}.expand", (width, hidden)
        yield f"{layer}.contract", (hidden, width)
    yield "gain", (width,)
    yield "head", (width, config.vocabulary)


def init_parameters(config: ModelConfig, seed: int) -> Parameters:
    """Draw the initial parameters of a model.

    Returns
    -------
    dict of str to ndarray, float32
        ``span`` is (layers, heads), in characters. If characters predict their spans, ``span_weight``, (layers, heads,
        width), and ``span_bias``, (layers, heads), replace it. ``embedding`` is (vocabulary, width) and ``head``
        (width, vocabulary). The parameters of a block are named ``<layer>.<name>``.

    See Also
    --------
    ModelConfig : Configuration of the model.
    logits : The scores of the next character.

    Examples
    --------
    >>> from headspan.lab import lm
    >>> config = lm.ModelConfig(vocabulary=5, layers=2, heads=2, width=8, hidden=8, span_init=3)
    >>> lm.init_parameters(config, seed=0)["span"]
    array([[3., 3.],
           [3., 3.]], dtype=float32)
    """
    rng = np.random.default_rng([_check.integer("seed", seed, at_least=0), 0])
    starts = {"span": config.first_spans, "span_weight": 0.0, "span_bias": _bias_of(config)}
    parameters: Parameters = {}
    for name, shape in parameter_shapes(config):
        _check.check_size(name, shape, _check.SINGLE.itemsize)
        last = name.rpartition(".")[2]
        if name in starts:
            parameters[name] = np.full(shape, starts[name], np.float32)
        elif last.endswith("taps"):
            parameters[name] = rng.standard_normal(shape, np.float32)
            parameters[name] *= np.float32(0.1)
            parameters[name][0] = 1  # nearly the identity
        elif len(shape) == 1:
            parameters[name] = np.ones(shape, np.float32)
        else:
            inputs = 1 if name == "embedding" else shape[0]
            matrix = parameters[name] = rng.standard_normal(shape, np.float32)
            matrix *= np.float32(SMALL_START.get(last, 1.0) / np.sqrt(inputs))
    return parameters


def _bias_of(config: ModelConfig) -> Array:
    """Return the initial biases of dynamic spans, away from the flat ends of the sigmoid, where gradients vanish."""
    share = (config.first_spans / (config.span_limit or 1)).clip(0.01, 0.99)
    bias: Array = np.log(share / (1 - share))
    return bias


def spans_are_finite(parameters: Parameters) -> bool:
    """Return whether the spans of a model, or the parameters that predict them, are finite."""
    return all(np.isfinite(array).all() for name, array in parameters.items() if name.startswith("span"))
