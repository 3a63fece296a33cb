"""headspan itself."""

from __future__ import annotations

from typing import Any

import headspan as hs
import numpy as np
from headspan.patterns import Blocks, Local

from benchmarks.abilities.cases import CAP, DROPOUT, RAMP, SINKS, SPANS, Inputs, masks, texts


def _attend(given: Inputs, **options: Any) -> Any:
    return hs.attention(given["query"], given["key"], given["value"], **options)


def _gradients(given: Inputs, **options: Any) -> Any:
    return hs.attention_vjp(given["query"], given["key"], given["value"], **options)[1](given["grad_out"])


def _learned_span(given: Inputs) -> Any:
    gradients = _gradients(given, span=SPANS, ramp=RAMP)
    return gradients.span, gradients.query


def _cache(given: Inputs) -> Any:
    """Token by token, and smaller than all keys and values."""
    heads, head_dim = given["query"].shape[1], given["query"].shape[3]
    cache = hs.SpanCache(1, heads, head_dim, spans=SPANS, ramp=0)
    arrays = [given[name] for name in ("query", "key", "value")]
    parts = [cache.attend(*(x[:, :, i : i + 1] for x in arrays)) for i in range(arrays[0].shape[2])]
    if cache.nbytes >= arrays[1].nbytes + arrays[2].nbytes:
        raise ValueError("the cache is as large as all keys and values")
    return np.concatenate(parts, axis=2)


def _pictures(given: Inputs) -> Any:
    hs.plot.spans(SPANS, ramp=RAMP)
    return hs.attention_weights(given["query"], given["key"])


def tries() -> dict[str, tuple[str, Any]]:
    """Return how each ability is had, and what computes it."""
    its = masks()
    return {
        "forward": ("yes", _attend),
        "backward": ("yes", lambda given: _gradients(given)[:3]),
        "window": ("yes", lambda given: _attend(given, pattern=Local(8))),
        "window of each head": ("yes", lambda given: _attend(given, span=SPANS, ramp=0)),
        "learned span": ("yes", _learned_span),
        "pattern": ("yes", lambda given: _attend(given, pattern=Blocks(its["blocks"], 8))),
        "sinks": ("yes", lambda given: _attend(given, sinks=SINKS)),
        "soft cap": ("yes", lambda given: _attend(given, softcap=CAP)),
        "dropout": ("yes", lambda given: _attend(given, dropout=DROPOUT, seed=0)),
        "grouped heads": (
            "yes",
            lambda given: hs.attention(given["query"], given["key"][:, ::2], given["value"][:, ::2]),
        ),
        "packed": ("yes", lambda given: _attend(given, segment_ids=texts())),
        "cache": ("yes", _cache),
        "pictures": ("yes", _pictures),
    }
