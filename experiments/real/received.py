"""Attention that keeps a fixed number of tokens for each key head: the newest, and those with the most received weight.

The rule is that of `headspan.memory.StreamingAttention`, here with a number of tokens for each key head, with spans,
and for all layers of a model.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import arms
import numpy as np
import torch
from arms import RAMP, SINKS, Table
from headspan.torch.fitting.losses import next_token_loss
from transformers import AttentionInterface

PIECE = 32  # tokens after which rows are removed; until then, queries see them as well


class Rule(NamedTuple):
    """What a model keeps.

    Attributes
    ----------
    rows : ndarray of int, shape (layers, key_heads)
        The number of tokens that stay in each key head when rows are removed.
    newest : int
        The number of newest tokens that stay, at most half of the rows.
    decay : float
        The factor by which received weight shrinks with every token.
    spans : Table, optional
        Spans of the key heads. Tokens beyond their reach are removed.
    """

    rows: np.ndarray
    newest: int
    decay: float
    spans: Table | None = None


def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rule: Rule, layer: int) -> torch.Tensor:
    """Return causal attention of one layer, (heads, tokens, head_dim), without a batch."""
    key_heads, tokens, dim = key.shape
    groups = len(query) // key_heads
    query = query.reshape(key_heads, groups, tokens, dim) * dim**-0.5
    rows = torch.as_tensor(rule.rows[layer])
    newest = torch.clamp(rows // 2, max=rule.newest)
    spans = torch.full((key_heads,), torch.inf) if rule.spans is None else torch.tensor(rule.spans[layer]).float()
    kept, received = torch.zeros(key_heads, tokens, dtype=torch.bool), torch.zeros(key_heads, tokens)
    positions, out = torch.arange(tokens), torch.empty_like(query)
    for first in range(0, tokens, PIECE):
        last = min(first + PIECE, tokens)
        kept[:, first:last] = True
        distance = positions[first:last, None] - positions[:last]
        mask = ((RAMP + spans[:, None, None] - distance) / RAMP).clamp(0, 1)
        mask = torch.where(positions[:last] < SINKS, 1.0, mask) * kept[:, None, :last] * (distance >= 0)
        scores = torch.einsum("hgqd,hkd->hgqk", query[:, :, first:last], key[:, :last]) + mask.log()[:, None]
        weights = scores.softmax(dim=-1)
        out[:, :, first:last] = torch.einsum("hgqk,hkd->hgqd", weights, value[:, :last])
        shrunk = rule.decay ** (last - 1 - positions[first:last].float())
        received[:, :last] *= rule.decay ** (last - first)
        received[:, :last] += torch.einsum("hgqk,q->hk", weights, shrunk)
        if last < tokens:
            _remove(kept[:, :last], received[:, :last], rows, newest, spans, last)
    return out.flatten(0, 1)


def _remove(
    kept: torch.Tensor, received: torch.Tensor, rows: torch.Tensor, newest: torch.Tensor, spans: torch.Tensor, last: int
) -> None:
    """Remove the tokens that the next query cannot reach, and the tokens beyond the number of rows."""
    positions = torch.arange(last)
    kept &= (last - positions < spans[:, None] + RAMP) | (positions < SINKS)
    is_newest = positions >= last - newest[:, None]
    rank = torch.where(is_newest, torch.inf, received).masked_fill(~kept, -torch.inf)
    order = rank.flip(1).argsort(dim=1, descending=True, stable=True)  # of equal tokens, the newer stays
    stays = torch.zeros_like(kept).scatter(1, last - 1 - order, positions < rows[:, None])
    kept &= stays


@torch.no_grad()
def losses(model: torch.nn.Module, rule: Rule, windows: torch.Tensor) -> list[float]:
    """Return the loss of the second half of each window, in nats per token."""
    arms.set_table(model, None)
    with attending(model, rule):
        return [float(next_token_loss(model, window[None])) for window in windows]


@contextmanager
def attending(model: Any, rule: Rule) -> Iterator[None]:
    """Let a model attend by a rule."""

    def function(module: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> tuple[torch.Tensor, None]:
        (heads,), (keys,), (values,) = query, key, value  # one window at a time
        return attend(heads, keys, values, rule, module.layer_idx).transpose(0, 1)[None], None

    AttentionInterface.register("received", function)
    before = model.config._attn_implementation
    model.set_attn_implementation("received")
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def rows_of(table: Table, tokens: int) -> np.ndarray:
    """Return how many tokens the spans of a table keep in each key head, as `price_of` counts them."""
    rows = np.where(np.isinf(table), tokens, np.floor(table) + RAMP + SINKS)
    return np.minimum(rows, tokens).astype(int)


def equal_rows(fitted: Table, tokens: int) -> np.ndarray:
    """Return as many tokens for every key head, at most as many bytes as the spans keep."""
    return _on_average(np.full(fitted.shape, rows_of(fitted, tokens).sum() // fitted.size), tokens)


def fitted_rows(fitted: Table, tokens: int) -> np.ndarray:
    """Return as many tokens for each key head as the spans keep."""
    return _on_average(rows_of(fitted, tokens), tokens)


def rows_inside(larger: Table, fitted: Table, tokens: int) -> np.ndarray:
    """Return equal shares of the tokens that larger spans keep, at most as many bytes as the spans keep."""
    rows = rows_of(larger, tokens)
    return _on_average((rows * (rows_of(fitted, tokens).sum() / rows.sum())).astype(int), tokens)


def _on_average(rows: np.ndarray, tokens: int) -> np.ndarray:
    """Return the numbers of rows that stay, half a piece less, so that queries see `rows` tokens on average."""
    return np.where(rows >= tokens, tokens, np.maximum(rows - PIECE // 2, 1))
