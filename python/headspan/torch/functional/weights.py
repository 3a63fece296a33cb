"""The weights of an attention with their gradient."""

from __future__ import annotations

from typing import Any

import torch

from headspan.torch.functional.attend import attention


def weights(
    query: torch.Tensor, key: torch.Tensor, options: dict[str, Any], *, columns: int | None = None
) -> torch.Tensor:
    """Return weights, (batch, heads, tokens, columns): what attention makes of values that each name their key.

    The time grows with the cube of the tokens. Columns are those of the keys unless given; more are for keys that
    `options` adds.
    """
    *leading, keys, _ = key.shape
    columns = keys if columns is None else columns
    names = torch.eye(keys, columns, dtype=query.dtype, device=query.device)
    return attention(query, key, names.expand(*leading, keys, columns), **options)
