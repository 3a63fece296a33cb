"""A small character transformer whose heads learn their attention spans.

The model has pre-norm blocks of attention and a two-layer perceptron, rotary positions, and one span per head and
layer. Characters are bytes, and the vocabulary is the set of byte values that occur in the text.

The parameters are a plain dict of float32 arrays. NumPy is enough to save, inspect and change them.
"""

import headspan.lab.extra  # noqa: F401 - checks first that the optional dependencies are installed
from headspan.lab.config import ModelConfig
from headspan.lab.model.forward import logits, loss, spans, trace
from headspan.lab.model.parameters import Parameters, init_parameters, parameter_shapes, spans_are_finite
from headspan.lab.model.predict import stream_bits, surprisal, window_bits

__all__ = [
    "ModelConfig",
    "Parameters",
    "init_parameters",
    "logits",
    "loss",
    "parameter_shapes",
    "spans",
    "spans_are_finite",
    "stream_bits",
    "surprisal",
    "trace",
    "window_bits",
]
