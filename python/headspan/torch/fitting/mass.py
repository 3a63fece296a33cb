"""The attention mass of the heads of a model by distance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from headspan.torch.transformers.recording import record

_ROWS = 512  # number of queries that estimate the attention mass of a sequence
_ROWS_AT_ONCE = 32


def mass_by_distance(model: nn.Module, attentions: Sequence[nn.Module], ids: torch.Tensor) -> npt.NDArray[np.float64]:
    """Return the attention mass of each head at each distance, (layers, heads, tokens), for the first window of `ids`.

    To save memory, the model runs once for each layer and keeps only the queries and keys of that layer. The attention
    map is computed for evenly spaced queries, a few rows at a time.
    """
    tokens = ids.shape[1]
    rows = np.unique(np.linspace(0, tokens - 1, min(_ROWS, tokens)).astype(int))
    masses = []
    for attention in attentions:
        with torch.no_grad(), record(attention) as layers:
            model(ids[:1], use_cache=False)
        (layer,) = layers.values()
        mass = np.zeros((layer.query.shape[1], tokens))
        for chunk in np.array_split(rows, -(-len(rows) // _ROWS_AT_ONCE)):
            for row, weights in zip(chunk, np.moveaxis(layer.weights(rows=chunk)[0], 1, 0), strict=True):
                mass[:, : row + 1] += weights[:, row::-1]
        masses.append(mass)
    return np.stack(masses)
