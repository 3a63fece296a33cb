"""A model in the form of nanochat: rotary positions, normalised queries and keys, grouped heads, windows per layer.

Without a kernel for windows, a window is a dense mask, which takes longer than attention without a window.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

Cache = dict[int, tuple[torch.Tensor, torch.Tensor]]  # keys and values of earlier tokens, by layer


def windowed(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, window: int | None) -> torch.Tensor:
    """Return causal attention within `window` keys before the key of the query, or without a window for None."""
    queries, keys = query.shape[2], key.shape[2]
    if window is None and queries == keys:
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    places = torch.arange(keys - queries, keys)[:, None]
    distance = places - torch.arange(keys)
    seen = distance >= 0
    if window is not None:
        seen &= distance <= window
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=seen, enable_gqa=True)


def rotated(x: torch.Tensor, begin: int) -> torch.Tensor:
    """Apply rotary positions to vectors, (batch, tokens, heads, head_dim), and normalise them."""
    half = x.shape[-1] // 2
    places = torch.arange(begin, begin + x.shape[1], dtype=x.dtype)
    angles = places[:, None, None] * 10000 ** (-torch.arange(half, dtype=x.dtype) / half)
    first, second = x[..., :half], x[..., half:]
    turned = (first * angles.cos() + second * angles.sin(), second * angles.cos() - first * angles.sin())
    return functional.rms_norm(torch.cat(turned, -1), x.shape[-1:])


class Block(nn.Module):
    """A block of attention, with or without a window, and two linear maps."""

    def __init__(self, layer: int, width: int, heads: int, key_heads: int, window: int | None) -> None:
        super().__init__()
        self.layer, self.head_dim, self.window = layer, width // heads, window
        self.query = nn.Linear(width, width, bias=False)
        self.key, self.value = (nn.Linear(width, key_heads * self.head_dim, bias=False) for _ in range(2))
        self.out = nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def attend(self, x: torch.Tensor, cache: Cache | None) -> torch.Tensor:
        """Return the attention of new tokens to the cached and the new tokens, and add the new tokens to the cache."""
        parts = (part(x).unflatten(-1, (-1, self.head_dim)) for part in (self.query, self.key, self.value))
        query, key, value = parts
        before = None if cache is None else cache.get(self.layer)
        begin = 0 if before is None else before[0].shape[1]
        query, key = rotated(query, begin), rotated(key, begin)
        if before is not None:
            key, value = torch.cat([before[0], key], 1), torch.cat([before[1], value], 1)
        if cache is not None:
            cache[self.layer] = key, value
        out = windowed(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), self.window)
        return self.out(out.transpose(1, 2).flatten(2))

    def forward(self, x: torch.Tensor, cache: Cache | None = None) -> torch.Tensor:
        """Apply the block to tokens, (batch, tokens, width)."""
        x = x + self.attend(functional.rms_norm(x, x.shape[-1:]), cache)
        return x + self.down(self.up(functional.rms_norm(x, x.shape[-1:])).relu().square())


class Model(nn.Module):
    """A language model that computes scores of the next tokens."""

    def __init__(self, vocabulary: int, width: int, heads: int, key_heads: int, windows: Sequence[int | None]) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary, bias=False)
        self.blocks = nn.ModuleList(Block(i, width, heads, key_heads, window) for i, window in enumerate(windows))

    def forward(self, ids: torch.Tensor, cache: Cache | None = None) -> torch.Tensor:
        """Return the scores of the next tokens, (batch, tokens, vocabulary)."""
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x, cache)
        return self.head(functional.rms_norm(x, x.shape[-1:]))
