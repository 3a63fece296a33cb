"""The spans that are compared at equal bytes of the cache, as tables of (layers, key heads)."""

from __future__ import annotations

import headspan.torch
import numpy as np
import torch
from headspan.fitting.search.price import Price, cache_price
from headspan.fitting.search.windows import one_span, one_span_per_layer
from headspan.torch.fitting.losses import next_token_loss
from headspan.torch.fitting.mass import mass_by_distance
from headspan.torch.fitting.places import Places
from numpy.typing import NDArray

SINKS, RAMP, RECENT = 4, 32.0, 128  # RECENT: the window of a key head that is not full, as DuoAttention has it

Table = NDArray[np.float64]


def price_of(table: Table, tokens: int) -> Price:
    """Return the price of a table, with one query head for each key head."""
    return cache_price(table, table.shape[1], tokens=tokens, ramp=RAMP, first_tokens=SINKS)


def cache_bytes(table: Table, tokens: int) -> int:
    """Return the bytes of the cache of a table at the last token, for a head_dim of 1."""
    price = price_of(table, tokens)
    return price.cache_bytes(np.minimum(table, tokens))


def equal_span(fitted: Table, tokens: int) -> Table:
    """Return one span for all heads with at most as many bytes."""
    return _unlimited(one_span(price_of(fitted, tokens), fitted), tokens)


def equal_span_per_layer(fitted: Table, tokens: int) -> Table:
    """Return one span for each layer, with at most as many bytes as the layer has."""
    return _unlimited(one_span_per_layer(price_of(fitted, tokens), fitted), tokens)


def _unlimited(table: Table, tokens: int) -> Table:
    return np.where(table >= tokens, np.inf, table)


def dealt(fitted: Table, seed: int) -> Table:
    """Return the same spans, dealt to the key heads at random."""
    return np.random.default_rng(seed).permutation(fitted.ravel()).reshape(fitted.shape)


def full_or_window(scores: Table, fitted: Table, tokens: int) -> Table:
    """Return no limit for as many of the key heads with the highest scores as the bytes allow, and else a window."""
    table = np.full(scores.shape, RECENT - RAMP)
    price = price_of(table, tokens)
    one = price.cache_bytes(price.full) - price.cache_bytes(table)
    count = max(int((cache_bytes(fitted, tokens) - price.cache_bytes(table)) / one * scores.size), 0)
    table.flat[np.argsort(-scores.ravel(), kind="stable")[:count]] = np.inf
    return table


def mass_beyond(model: torch.nn.Module, window: torch.Tensor) -> Table:
    """Return for each key head the largest attention mass beyond RECENT tokens among its query heads."""
    set_table(model, None)
    places = Places(model)
    mass = mass_by_distance(model, places.attentions, window[None])
    beyond = mass[..., RECENT:].sum(axis=-1) / mass.sum(axis=-1)
    return beyond.reshape(len(mass), places.sizes.key_heads, -1).max(axis=2)


def set_table(model: torch.nn.Module, table: Table | None) -> None:
    """Set the spans of all key heads, or none."""
    if table is None:
        headspan.torch.set_spans(model, None)
        return
    heads = model.config.num_attention_heads // table.shape[1]
    headspan.torch.set_spans(model, np.repeat(table, heads, axis=1), ramp=RAMP, first_tokens=SINKS)


@torch.no_grad()
def losses(model: torch.nn.Module, table: Table | None, windows: torch.Tensor) -> list[float]:
    """Return the loss of the second half of each window, in nats per token."""
    set_table(model, table)
    return [float(next_token_loss(model, window[None])) for window in windows]
