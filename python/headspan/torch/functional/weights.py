"""Differentiable attention weights."""

from __future__ import annotations

from typing import Any

import torch

from headspan.torch.functional.attend import attention


def weights(
    query: torch.Tensor, key: torch.Tensor, options: dict[str, Any], *, columns: int | None = None
) -> torch.Tensor:
    """Return attention weights of shape (batch, heads, tokens, columns), computed with one-hot vectors as values.

    The time grows with the cube of the number of tokens. `columns` defaults to the number of keys; additional columns
    are for keys that `options` add.
    """
    *leading, keys, _ = key.shape
    columns = keys if columns is None else columns
    one_hot = torch.eye(keys, columns, dtype=query.dtype, device=query.device)
    return attention(query, key, one_hot.expand(*leading, keys, columns), **options)
