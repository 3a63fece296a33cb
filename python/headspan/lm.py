"""The small character transformer of the demo, see `headspan.demo.model`."""

from headspan.demo.config import ModelConfig
from headspan.demo.model import (
    Parameters,
    init_parameters,
    logits,
    loss,
    spans,
    stream_bits,
    surprisal,
    trace,
    window_bits,
)

__all__ = [
    "ModelConfig",
    "Parameters",
    "init_parameters",
    "logits",
    "loss",
    "spans",
    "stream_bits",
    "surprisal",
    "trace",
    "window_bits",
]
