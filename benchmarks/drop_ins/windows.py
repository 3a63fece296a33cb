"""A GPT in the form of a textbook: explicit scores, mask, softmax and weights, with windows in some of the layers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn


class Attention(nn.Module):
    """Causal self-attention within a window of tokens, which includes the token itself. None stands for no window."""

    def __init__(self, width: int, heads: int, window: int | None, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.window = heads, window
        self.w_query, self.w_key, self.w_value = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)
        self.cache: tuple[torch.Tensor, torch.Tensor] | None = None

    def forward(self, x: torch.Tensor, use_cache: bool = False) -> torch.Tensor:
        """Apply attention to tokens, (batch, tokens, width), and to the earlier tokens of a cache."""
        parts = (part(x).unflatten(-1, (self.heads, -1)) for part in (self.w_query, self.w_key, self.w_value))
        query, key, value = (part.transpose(1, 2) for part in parts)
        if use_cache:
            if self.cache is not None:
                key, value = (torch.cat(both, 2) for both in zip(self.cache, (key, value), strict=True))
            if self.window is not None:  # the first new token does not see more
                kept = self.window + query.shape[2] - 1
                key, value = key[:, :, -kept:], value[:, :, -kept:]
            self.cache = key, value
        scores = query @ key.transpose(2, 3) / key.shape[3] ** 0.5
        queries, keys = scores.shape[2:]
        distance = torch.arange(keys - queries, keys)[:, None] - torch.arange(keys)
        hidden = distance < 0
        if self.window is not None:
            hidden |= distance >= self.window
        weights = self.dropout(scores.masked_fill(hidden, -torch.inf).softmax(-1))
        out = weights @ value
        return self.out(out.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """A block of attention and two linear maps, each with layer normalisation."""

    def __init__(self, width: int, heads: int, window: int | None, dropout: float) -> None:
        super().__init__()
        self.attention = Attention(width, heads, window, dropout)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor, use_cache: bool = False) -> torch.Tensor:
        """Apply the block to tokens, (batch, tokens, width)."""
        x = x + self.attention(self.attention_norm(x), use_cache)
        return x + self.mlp(self.mlp_norm(x))


class Model(nn.Module):
    """A language model that computes scores of the next tokens."""

    def __init__(
        self, vocabulary: int, width: int, heads: int, windows: Sequence[int | None], length: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, window, dropout) for window in windows)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.begin = 0

    def forward(self, ids: torch.Tensor, use_cache: bool = False) -> torch.Tensor:
        """Return the scores of the next tokens, (batch, tokens, vocabulary)."""
        begin = self.begin if use_cache else 0
        x = self.tokens(ids) + self.places(torch.arange(begin, begin + ids.shape[1]))
        for block in self.blocks:
            x = block(x, use_cache)
        if use_cache:
            self.begin += ids.shape[1]
        return self.head(self.norm(x))
