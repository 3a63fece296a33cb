"""The spans that are compared at equal bytes of the cache, as tables of (layers, key heads)."""

from __future__ import annotations

import headspan.torch
import numpy as np
import torch
from headspan.torch.fitting.losses import next_token_loss
from headspan.torch.fitting.mass import mass_by_distance
from headspan.torch.fitting.places import Places
from numpy.typing import NDArray

SINKS, RAMP, RECENT = 4, 32.0, 128  # RECENT: the window of a key head that is not full, as DuoAttention has it
BEYOND = SINKS + int(RAMP)  # tokens in the cache of a head with span 0: those on the ramp, itself, and the first ones

Table = NDArray[np.float64]


def rows(table: Table, tokens: int) -> Table:
    """Return the tokens in the cache of each key head after a text."""
    return np.where(np.isinf(table), tokens, np.minimum(table + BEYOND, tokens + SINKS))


def of_rows(kept: Table, tokens: int) -> Table:
    """Return the spans with these numbers of tokens in the cache, without a limit for a head that keeps all."""
    return np.where(kept >= tokens, np.inf, np.maximum(np.floor(kept) - BEYOND, 0))


def one_span(fitted: Table, tokens: int) -> Table:
    """Return one span for all heads with at most as many bytes."""
    return of_rows(np.full_like(fitted, rows(fitted, tokens).mean()), tokens)


def one_span_a_layer(fitted: Table, tokens: int) -> Table:
    """Return one span for each layer, with at most as many bytes as the layer has."""
    return of_rows(np.broadcast_to(rows(fitted, tokens).mean(axis=1, keepdims=True), fitted.shape), tokens)


def dealt(fitted: Table, seed: int) -> Table:
    """Return the same spans, dealt to the key heads at random."""
    return np.random.default_rng(seed).permutation(fitted.ravel()).reshape(fitted.shape)


def full_or_window(scores: Table, budget: float, tokens: int) -> Table:
    """Return no limit for as many key heads with the highest scores as the budget allows, and a window for others."""
    window = float(RECENT - int(RAMP))
    short = rows(np.full(scores.shape, window), tokens)
    count = max(int((budget * tokens * scores.size - short.sum()) / (tokens - short.flat[0])), 0)
    table = np.full(scores.size, window)
    table[np.argsort(-scores.ravel(), kind="stable")[:count]] = np.inf
    return table.reshape(scores.shape)


def mass_beyond(model: torch.nn.Module, window: torch.Tensor) -> Table:
    """Return for each key head the largest attention mass beyond RECENT tokens among its query heads."""
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
