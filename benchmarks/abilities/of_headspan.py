"""The abilities of headspan."""

from __future__ import annotations

from typing import Any

import headspan as hs
import numpy as np
from headspan.patterns import Blocks, Window

from benchmarks.abilities.cases import CAP, DROPOUT, RAMP, SINKS, SPANS, Inputs, masks, texts


def _attend(arrays: Inputs, **options: Any) -> Any:
    return hs.attention(arrays["query"], arrays["key"], arrays["value"], **options)


def _gradients(arrays: Inputs, **options: Any) -> Any:
    return hs.attention_vjp(arrays["query"], arrays["key"], arrays["value"], **options)[1](arrays["grad_out"])


def _learned_span(arrays: Inputs) -> Any:
    gradients = _gradients(arrays, span=SPANS, ramp=RAMP)
    return gradients.span, gradients.query


def _cache(arrays: Inputs) -> Any:
    """Attend token by token with a cache, which must be smaller than all keys and values."""
    heads, head_dim = arrays["query"].shape[1], arrays["query"].shape[3]
    cache = hs.SpanCache(1, heads, head_dim, span=SPANS, ramp=0)
    query, key, value = (arrays[name] for name in ("query", "key", "value"))
    parts = [cache.attend(*(x[:, :, i : i + 1] for x in (query, key, value))) for i in range(query.shape[2])]
    if cache.nbytes >= key.nbytes + value.nbytes:
        raise ValueError("the cache is as large as all keys and values")
    return np.concatenate(parts, axis=2)


def _pictures(arrays: Inputs) -> Any:
    hs.plot.spans(SPANS, ramp=RAMP)
    return hs.attention_weights(arrays["query"], arrays["key"])


def tries() -> dict[str, tuple[str, Any]]:
    """Return for each ability "yes" and the function that computes it."""
    blocks = masks()["blocks"]
    return {
        "forward": ("yes", _attend),
        "backward": ("yes", lambda arrays: _gradients(arrays)[:3]),
        "window": ("yes", lambda arrays: _attend(arrays, pattern=Window(9))),
        "window of each head": ("yes", lambda arrays: _attend(arrays, span=SPANS, ramp=0)),
        "learned span": ("yes", _learned_span),
        "pattern": ("yes", lambda arrays: _attend(arrays, pattern=Blocks(blocks, 8))),
        "sinks": ("yes", lambda arrays: _attend(arrays, sinks=SINKS)),
        "soft cap": ("yes", lambda arrays: _attend(arrays, softcap=CAP)),
        "dropout": ("yes", lambda arrays: _attend(arrays, dropout=DROPOUT, seed=0)),
        "grouped heads": (
            "yes",
            lambda arrays: hs.attention(arrays["query"], arrays["key"][:, ::2], arrays["value"][:, ::2]),
        ),
        "packed": ("yes", lambda arrays: _attend(arrays, segment_ids=texts())),
        "cache": ("yes", _cache),
        "pictures": ("yes", _pictures),
    }
