"""The small character transformer of the demo, see `headspan.lab.model`."""

from headspan.lab.config import ModelConfig
from headspan.lab.model import (
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
