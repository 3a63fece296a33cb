"""Bits per character of a model on texts that are longer than a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headspan import _check
from headspan.lab.config import ModelConfig
from headspan.lab.model import layers
from headspan.lab.model.forward import check_length, forward
from headspan.lab.model.memory import Memory
from headspan.lab.model.parameters import Parameters

Array = NDArray[Any]


def window_bits(parameters: Parameters, config: ModelConfig, windows: Array, batch: int = 8) -> Array:
    """Return the bits of each character in `windows` except the first of each window.

    Parameters
    ----------
    parameters : dict
    config : ModelConfig
    windows : ndarray of int, shape (windows, tokens + 1)
    batch : int
        Number of windows per forward pass.

    Returns
    -------
    ndarray, float32, shape (windows, tokens)
        ``-log2 p(character | the characters before it in its window)``.

    See Also
    --------
    stream_bits : The bits of each character, for a text that is read as one stream.
    surprisal : The bits of each character of a text.

    Examples
    --------
    >>> from headspan.lab import lm
    >>> config = lm.ModelConfig(vocabulary=5, layers=1, heads=2, width=8, hidden=8)
    >>> lm.window_bits(lm.init_parameters(config, seed=0), config, [[0, 4, 2], [2, 4, 0]]).shape
    (2, 2)
    """
    windows = _check.indices("windows", windows, axes=("windows", "tokens + 1"), below=config.vocabulary)
    _check.integer("batch", batch, at_least=1)
    check_length("windows", windows, 2)
    bits = [np.empty((0, windows.shape[1] - 1), np.float32)]
    for first in range(0, len(windows), batch):
        bits.append(_bits(parameters, config, windows[first : first + batch]))
    return np.concatenate(bits)


def _bits(parameters: Parameters, config: ModelConfig, windows: Array, memory: Memory | None = None) -> Array:
    scores = forward(layers, parameters, config, windows[:, :-1], memory).scores
    bits: Array = layers.negative_log_likelihood(scores, windows[:, 1:]) / np.float32(np.log(2))
    return bits


def surprisal(parameters: Parameters, config: ModelConfig, tokens: Array, context: int) -> Array:
    """Return the bits of each character of a text except the first.

    The windows of `context` characters overlap by half their length. Therefore every character after the first
    ``context // 2`` is predicted from at least half a context.

    Parameters
    ----------
    parameters : dict
    config : ModelConfig
    tokens : ndarray of int, shape (tokens,)
    context : int

    Returns
    -------
    ndarray, float32, shape (tokens - 1,)

    See Also
    --------
    stream_bits : The bits of each character, for a text that is read as one stream.
    window_bits : The bits of each character in windows.
    loss : The mean negative log-likelihood.

    Examples
    --------
    >>> import numpy as np
    >>> from headspan.lab import lm
    >>> config = lm.ModelConfig(vocabulary=5, layers=1, heads=2, width=8, hidden=8)
    >>> lm.surprisal(lm.init_parameters(config, seed=0), config, np.arange(100) % 5, context=16).shape
    (99,)
    """
    tokens = _check.indices("tokens", tokens, axes=("tokens",), below=config.vocabulary)
    _check.integer("context", context, at_least=1)
    check_length("tokens", tokens, 2)
    count = len(tokens) - 1
    if count <= context:
        single: Array = window_bits(parameters, config, tokens[None])[0]
        return single
    stride = max(1, context // 2)
    starts = np.arange(0, count - context + 1, stride)
    windows = np.lib.stride_tricks.sliding_window_view(tokens, context + 1)
    bits = window_bits(parameters, config, windows[starts])
    parts = [bits[0], bits[1:, context - stride :].ravel()]
    missing = count - sum(map(len, parts))
    if missing:
        parts.append(window_bits(parameters, config, windows[-1:])[0, -missing:])
    return np.concatenate(parts)


def stream_bits(parameters: Parameters, config: ModelConfig, tokens: Array, segment: int = 2048) -> Array:
    """Return the bits of each character of a text except the first, reading the text as one stream.

    Heads see the whole of their reach, also across segments, as in training with ``batches="stream"``.

    Parameters
    ----------
    parameters : dict
    config : ModelConfig
    tokens : ndarray of int, shape (tokens,)
    segment : int
        Number of characters per forward pass. The results are independent of it up to rounding.

    Returns
    -------
    ndarray, float32, shape (tokens - 1,)

    See Also
    --------
    window_bits : The bits of each character in windows.
    surprisal : The bits of each character of a text.

    Examples
    --------
    >>> import numpy as np
    >>> from headspan.lab import lm
    >>> config = lm.ModelConfig(vocabulary=5, layers=1, heads=2, width=8, hidden=8)
    >>> lm.stream_bits(lm.init_parameters(config, seed=0), config, np.arange(100) % 5, segment=16).shape
    (99,)
    """
    tokens = _check.indices("tokens", tokens, axes=("tokens",), below=config.vocabulary)
    _check.integer("segment", segment, at_least=1)
    check_length("tokens", tokens, 2)
    memory = Memory(config)
    segments = (tokens[None, first : first + segment + 1] for first in range(0, len(tokens) - 1, segment))
    return np.concatenate([_bits(parameters, config, part, memory)[0] for part in segments])
