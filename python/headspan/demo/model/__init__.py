"""A small character transformer whose heads learn how far to look.

Pre-norm blocks of attention and a two-layer perceptron, rotary positions, and one span per head
and layer. Characters are bytes: the vocabulary is made of the byte values that occur in the text.

Parameters are a plain dict of float32 arrays, so that they can be saved, looked at and changed
with NumPy alone.
"""

import headspan.demo.extra  # noqa: F401 - raises an error that names the extra, before a library is missed
from headspan.demo.config import ModelConfig
from headspan.demo.model.forward import logits, loss, spans, trace
from headspan.demo.model.parameters import Parameters, init_parameters, parameter_shapes, spans_are_finite
from headspan.demo.model.predict import stream_bits, surprisal, window_bits

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
